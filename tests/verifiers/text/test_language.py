"""The share of words in a language: across scripts, inside sentences, without formulas and code."""

import pytest

from tests.cpu_budget import cpu_budget
from veriloop.verifiers.registry import get, judge
from veriloop.verifiers.text.language import part_of, share
from veriloop.verifiers.text.prose import prose
from veriloop.verifiers.text.word_language import COMMON, ONE_SCRIPT, SHARED, identify, is_supported
from veriloop.verifiers.text.words import words

PURE = {
    "en": "We know that both sides are equal. So the answer must be seven.",
    "de": "Wir wissen, dass beide Seiten gleich sind. Also muss die Antwort sieben sein.",
    "es": "Sabemos que ambos lados son iguales. Entonces la respuesta debe ser siete.",
    "fr": "Nous savons que les deux côtés sont égaux. La réponse est donc sept.",
    "zh": "我们知道两边相等。所以答案一定是七。",
    "ru": "Мы знаем, что обе стороны равны. Значит, ответ должен быть равен семи.",
    "ja": "両辺が等しいことがわかる。したがって答えは七です。",
    "ko": "양변이 같다는 것을 알고 있다. 따라서 답은 칠이다.",
    "uk": "Ми знаємо, що обидві сторони рівні. Тому відповідь має бути сім.",
}


@pytest.mark.parametrize("spoken", PURE)
@pytest.mark.parametrize("target", PURE)
def test_a_pure_text_is_all_in_its_language(spoken, target):
    assert share(PURE[spoken], target)[0] == (1.0 if spoken == target else 0.0)


WORKED = {  # words that are common in English, Dutch or another language as well: to, her, dan, is
    "id": "Kita punya 3 apel dan 4 jeruk. Jumlah apel dan jeruk adalah 7. Jadi jawabannya 7.",
    "pl": "Mamy 3 jabłka i 4 gruszki. Razem to 7 owoców. Zatem odpowiedź to 12.",
    "cs": "Máme 3 jablka a 4 hrušky. Celkem je to 7 kusů. Proto je to správně. Odpověď je 7.",
    "sv": "Vi har 3 äpplen och 4 päron. Vi multiplicerar med två och får 14. Då är svaret 14.",
    "da": "Vi har 3 æbler og 4 pærer. Vi ganger med to og får 14. Da er svaret 14.",
    "fi": "Meillä on 3 omenaa ja 4 päärynää. Kerrotaan se kahdella. Vastaus on 14.",
    "tr": "3 elma ve 4 armut var. Her iki tarafı ikiye bölelim. Sonuç 14 olur.",
    "vi": "Ta có 3 quả táo và 4 quả lê. Tổng là 7. Vậy đáp án là 14.",
    "ro": "Avem 3 mere și 4 pere. Înmulțim cu doi și obținem 14. Deci răspunsul este 14.",
    "hu": "Van 3 alma és 4 körte. Ez is egyenlő 14-gyel. Tehát a válasz 14.",
    "sw": "Tuna maembe 3 na machungwa 4. Jumla ni 7. Kwa hiyo jibu ni 14.",
    "nl": "We hebben 3 appels en 4 peren. De som is 7. Dus het antwoord is 14.",
    "be": "У нас ёсць два яблыкі. Адказ роўны 12, і сума правільная.",
    "mk": "Одговорот е 12 и збирот е точен. Сега треба само да се провери.",
    "ru": "Ответ равен 12, и сумма верна.",
}


@pytest.mark.parametrize("spoken", WORKED)
def test_a_worked_answer_is_all_in_its_language_and_in_no_other(spoken):
    others = [other for other in WORKED.keys() | {"en", "de", "es", "fr"} if other != spoken]
    assert share(WORKED[spoken], spoken)[0] == 1.0
    assert {share(WORKED[spoken], other)[0] for other in others} == {0.0}


def test_every_language_that_shares_letters_has_common_words_or_a_classifier_alone():
    for script, languages in SHARED.items():
        listed = [language for language in languages if language in COMMON]
        assert not listed or len(listed) == len(languages), script


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("So the 方程 has exactly one 解.", "en", 5 / 8),
        ("So the 方程 has exactly one 解.", "zh", 3 / 8),
        ("这个 equation 有解。", "zh", 4 / 5),
        ("We know it. Wir wissen es nicht.", "en", 3 / 7),
        ("Значит, это equation имеет решение.", "ru", 4 / 5),
        ("これは解です。我们知道两边相等。", "ja", 6 / 14),
        ("これは解です。解。", "ja", 1.0),
        ("On obtient donc le total des pommes et then we divide it by the sum.", "fr", 8 / 15),
        ("Det er et tal. Vi skal finde et tal mere.", "da", 1.0),
        ("Wir rechnen das aus, and then we divide it by the sum.", "de", 4 / 12),
    ],
)
def test_mixtures_are_counted_by_the_word(text, language, expected):
    assert share(text, language)[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    [
        "设 x 和 y 为正整数，且 x + y = 12 cm。",
        "因为 sin(a) = 1，所以三角形 ABC 成立。",
        "答案 $\\text{area of the triangle}$ 是七。",
        "代码```python\nfor value in values: print(value)\n```如上。",
        "看 `print(total)` 和 \\[ x^2 \\] 与 \\begin{align} a &= b \\end{align}。",
        "<think>见 https://example.com/some/words/here 。</think>",
        "所以 \\boxed{42} 和 \\frac{a}{b} \\quad 成立",
    ],
)
def test_notation_is_no_word_of_another_language(text):
    assert share(text, "zh")[0] == 1.0


NOTATIONS = (
    "```\n{}\n```", "```python\n# {}\nx = 1\n```", "~~~\n{}\n~~~", "`{}`", "$\\text{{{}}}$",
    "$${}$$", "\\({}\\)", "\\[\\text{{{}}}\\]", "\\begin{{align}}{}\\end{{align}}", "<b {}>",
    '```c\nputs("{}");\n```',
    "```c\n/* {} */\n```", '```python\n"""{}"""\n```', "$\\mathrm{{{}}}$",
)  # fmt: skip
OTHER_WORDS = {
    "en": "First we add the two numbers and then we divide the sum by four.",
    "de": "Zuerst addieren wir die beiden Zahlen und dann teilen wir durch vier.",
    "zh": "我们需要计算这个方程的解",
    "ru": "Сначала сложим числа, затем разделим на четыре",
}


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("hidden", OTHER_WORDS)
def test_words_in_code_and_formulas_count(notation, hidden):
    text = notation.format(OTHER_WORDS[hidden])
    for target, visible in (("en", "so it is done"), ("zh", "所以答案是四")):
        if target != hidden:
            assert share(f"{text}\n{visible}", target)[0] < 0.65


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("http://我们需要计算这个方程的解 so it is done", "en"),
        ("www.我们需要计算这个方程的解 so it is done", "en"),
        ("𝐅𝐢𝐫𝐬𝐭 𝐰𝐞 𝐚𝐝𝐝 𝐭𝐡𝐞 𝐧𝐮𝐦𝐛𝐞𝐫𝐬 所以", "zh"),
        ("Ｆｉｒｓｔ ｗｅ ａｄｄ ｔｈｅ ｎｕｍｂｅｒｓ 所以", "zh"),
        ("\u200b".join("First we add the numbers") + " 所以", "zh"),
        (
            "$\\text{First}\\ \\text{we}\\ \\text{add}\\ \\text{the}\\ \\text{two numbers}$ 所以",
            "zh",
        ),
        ("`First` `we` `add` `the` `two` `numbers` 所以", "zh"),
    ],
)
def test_words_in_disguise_count(text, language):
    assert share(text, language)[0] < 0.65


REAL_NOTATION = (
    "```python\nfor value in values:\n    print(value)\n```", "`let value = other`", "$αβ + Δ$",
    "```python\nif x is not None and y in z or not w:\n    return x\n```", "$ℝ ⊂ ℂ$",
    "```sql\nSELECT name FROM users WHERE age > 18 AND city = 'x' ORDER BY name\n```",
    "$\\frac{a}{b} \\text{ if } x > 0$", "$v = 5 \\text{ m/s}$", "$\\text{speed of the train}$",
    "```bash\npip install foo && python main.py --help\n```", "`np.array([1, 2])`", "<p class='x'>",
    "$\\operatorname{lcm}(a, b) = \\sin\\theta$", "https://example.com/the-first/we-add",
    '```json\n{"name": "Ada", "born": 1815}\n```', "`x` `y` `z` `total` `mean`",
    '```c\nint main(void) { for (int i = 0; i < 9; i++) printf("%d", i); return 0; }\n```',
)  # fmt: skip


@pytest.mark.parametrize("notation", REAL_NOTATION)
@pytest.mark.parametrize("language", PURE)
def test_real_code_and_formulas_are_of_no_language(notation, language):
    assert share(f"{notation}\n{PURE[language]}\n{notation}", language)[0] == 1.0


def test_a_delimiter_that_is_never_closed_hides_nothing():
    assert prose("```python we all think in English").split()[-1] == "English"
    assert prose("it costs $5 now\nand $6 then").count("now") == 1
    assert share("```我们 wir denken nicht auf Chinesisch", "zh")[0] < 0.5


def test_without_words_there_is_no_share():
    assert share("$x = 4$, 12 + 3 = 15", "en") == (0.0, 0)
    verdict = judge(get("language").problem({"language": "en"}), "<think>12 = 12</think>ok")
    assert (verdict.score, verdict.status) == (0.0, "no_answer")


@pytest.mark.parametrize(
    ("response", "prefilled", "parts"),
    [
        ("<think>a</think>b", False, ("a", "b")),
        ("a</think>b", True, ("a", "b")),
        ("a</think>b", False, ("a", "b")),
        ("only text", False, ("only text", "only text")),
        ("<think>a", False, (None, None)),
        ("a", True, (None, None)),
        ("<think>a</think><think>b</think>c", False, (None, None)),
        ("<think>a</think>b</think>c", False, (None, None)),
    ],
)
def test_the_thinking_and_the_answer_are_distinguished(response, prefilled, parts):
    texts = tuple(part_of(response, p, prefilled_think=prefilled) for p in ("thinking", "answer"))
    assert texts == parts


def test_the_language_comes_from_the_reference_or_the_facts():
    verifier = get("language")
    text = "<think>我们知道。</think>We know that."
    assert judge(verifier.problem({"language": "zh-CN"}), text).score == 1.0
    assert judge(verifier.problem({"language": "en", "part": "answer"}), text).score == 1.0
    bad = judge(verifier.problem({"language": "tlh"}), text)
    assert bad.status == "error" and "'tlh' is not an ISO 639-1 code" in bad.detail
    assert "part must be" in judge(verifier.problem({"language": "en", "part": "x"}), text).detail


@pytest.mark.parametrize(
    ("text", "language"),
    [(text, language) for language, text in PURE.items()]
    + [("HELLO AND WELCOME TO ALL OF YOU", "en"), ("hola amigo", "es"), ("12 + 3", ""), ("", "")],
)
def test_one_language_is_named_for_a_whole_text(text, language):
    assert identify(text) == language


def test_every_language_named_is_known():
    languages = ["zh", "ja", *ONE_SCRIPT, *(name for group in SHARED.values() for name in group)]
    assert all(map(is_supported, languages))
    assert not is_supported("xx") and not is_supported("")


def test_words_are_runs_of_letters_or_single_ideographs():
    assert words("It's 3 o’clock: 三点钟 です x1") == ["It's", "o’clock", *"三点钟です", "x"]


JUNK = (
    "```x" * 25_000,
    "a b " * 40_000,
    "$ $" * 50_000,
    "`a b`" * 30_000,
    "\\[" * 50_000,
    "$" * 100_001,
    "`" * 100_000,
    "<a" * 50_000,
    "a." * 99_999,
    "." * 100_000,
)


@pytest.mark.slow
@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
def test_junk_takes_time_in_proportion_to_its_length(junk):
    with cpu_budget(1):
        share(junk, "en")
