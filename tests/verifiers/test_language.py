"""The share of words in a language: across scripts, inside sentences, without formulas and code."""

import time

import pytest

from verifiers.language import part_of, share
from verifiers.registry import get, judge
from verifiers.tongues import identified, known, languages
from verifiers.words import prose, words

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
@pytest.mark.parametrize("asked", PURE)
def test_a_pure_text_is_all_in_its_language(spoken, asked):
    assert share(PURE[spoken], asked)[0] == (1.0 if spoken == asked else 0.0)


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
def test_the_thinking_and_the_answer_are_told_apart(response, prefilled, parts):
    found = tuple(part_of(response, p, prefilled_think=prefilled) for p in ("thinking", "answer"))
    assert found == parts


def test_the_language_comes_from_the_reference_or_the_facts():
    one = get("language")
    text = "<think>我们知道。</think>We know that."
    assert judge(one.problem({"language": "zh-CN"}), text).score == 1.0
    assert judge(one.problem({"language": "en", "part": "answer"}), text).score == 1.0
    bad = judge(one.problem({"language": "tlh"}), text)
    assert bad.status == "error" and "'tlh' is no ISO 639-1 code" in bad.detail
    assert "part must be" in judge(one.problem({"language": "en", "part": "x"}), text).detail


@pytest.mark.parametrize(
    ("text", "language"),
    [(text, language) for language, text in PURE.items()]
    + [("HELLO AND WELCOME TO ALL OF YOU", "en"), ("hola amigo", "es"), ("12 + 3", ""), ("", "")],
)
def test_one_language_is_named_for_a_whole_text(text, language):
    assert identified(text) == language


def test_every_language_named_is_known():
    assert all(known(one) for one in languages()) and not known("xx") and not known("")


def test_words_are_runs_of_letters_or_single_ideographs():
    assert words("It's 3 o’clock: 三点钟 です x1") == ["It's", "o’clock", *"三点钟です", "x"]


JUNK = ("\\[" * 50_000, "$" * 100_001, "`" * 100_000, "<a" * 50_000, "a." * 99_999)


@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
def test_junk_takes_time_in_proportion_to_its_length(junk):
    began = time.process_time()
    share(junk, "en")
    assert time.process_time() - began < 1.0
