"""The language of each word of a text: by script first, then by sentence.

Ideographs in a sentence with kana count as Japanese. Languages that share a script are
distinguished by their most common words, and otherwise by py3langid, whose wheel has its model.
"""

import re
from collections.abc import Sequence
from copy import copy
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

from veriloop.verifiers.text.words import CJK, words

SCRIPTS: dict[str, str] = {  # script -> its letters, as the inside of a character class
    "latin": "A-Za-zªºÀ-ÖØ-öø-ɏḀ-ỿ",
    "cyrillic": "Ѐ-ԯ",
    "greek": "Ͱ-Ͽἀ-῿",
    "arabic": "ؠ-ۿݐ-ݿ",
    "hebrew": "א-ת",
    "devanagari": "ऀ-ॿ",
    "bengali": "ঀ-৿",
    "gurmukhi": "\u0a00-\u0a7f",
    "gujarati": "\u0a80-\u0aff",
    "tamil": "஀-௿",
    "telugu": "ఀ-౿",
    "kannada": "\u0c80-\u0cff",
    "malayalam": "\u0d00-\u0d7f",
    "thai": "ก-๛",
    "hangul": "ᄀ-ᇿ가-힣",
}
ONE_SCRIPT: dict[str, str] = {  # languages that are the only one with their script
    "el": "greek", "he": "hebrew", "bn": "bengali", "ta": "tamil", "te": "telugu", "th": "thai",
    "ko": "hangul", "pa": "gurmukhi", "gu": "gujarati", "kn": "kannada", "ml": "malayalam",
}  # fmt: skip
SHARED: dict[str, tuple[str, ...]] = {  # scripts with several languages, which are distinguished
    "latin": (
        "en", "de", "es", "fr", "it", "pt", "nl", "sv", "da", "fi", "pl", "cs", "tr", "vi", "id",
        "ro", "hu", "sw",
    ),
    "cyrillic": ("ru", "uk", "bg", "sr", "be", "mk"),
    "arabic": ("ar", "fa", "ur"),
    "devanagari": ("hi", "mr", "ne"),
}  # fmt: skip
COMMON: dict[str, str] = {  # common words; a word of several languages identifies none
    "en": "the and of is are we that this with have which it so be for to by then let can "
    "what how if not from there but will would should find you our they as was has each "
    "an its i'm let's on first second both because when where therefore hence wait "
    "check get gives since must also per number times equal equals answer into only now "
    "do due come or i he she him her his their all these those them than more some any "
    "my your out up two three one does did about after before at care most till",
    "de": "der die das und ist wir ein eine nicht mit für auf den dem sich also daher dann "
    "wenn so dass von zu im sind durch auch wird werden kann muss aber oder wie noch "
    "nur es haben des was bei aus nach über diese dieser dieses zuerst beide einen "
    "einem einer ergibt gilt somit will zahl lösung gleichung antwort jetzt weil zwei "
    "drei ich an bleiben hier er nie",
    "es": "el los las que es una por para con como entonces del se su pero más está esto esta "
    "lo y ese tenemos ahora primero ambos lados también cuando donde porque hay cada al "
    "la de un en podemos así número ecuación respuesta luego tanto dos tres debe nos "
    "sus son todo da si te ni ha dar",
    "fr": "le les est une des dans que qui nous pour par avec donc sur ce cette sont pas il "
    "elle alors aussi mais ou où du au aux ces cela deux trois on et peut faut chaque "
    "puis ensuite de un la l'équation nombre réponse d'abord c'est maintenant comme "
    "être avons reste obtient son ses à en avant plus doit suite premier première je ne "
    "si te ni",
    "it": "gli che è una per con sono della del di dei quindi anche ma più come questo questa "
    "il la non abbiamo perché ogni allora dove numero due se al lo le un su si te ne ha "
    "mai hai fra ni",
    "pt": "o os as que é uma para com não do da dos das em mas mais então isso temos agora "
    "são se também ou ao pelo pela número por de um como resposta portanto logo "
    "primeiro depois está este esta ambos equação soma obtemos podemos te dar ni",
    "nl": "het een en van is dat we niet zijn voor op dus dan ook maar naar deze wordt kan "
    "over moet nu uit bij ze of was je te ne",
    "sv": "och att det som en är på för med av till den inte har om vi ett men så kan från "
    "var eller när då alltså därför nu båda talet svaret två tre detta dessa deras hans "
    "hennes ska",
    "da": "og at det et som en er på for med af til den ikke har om vi men så kan fra var "
    "eller når da altså derfor nu begge tallet svaret to tre dette disse deres hans "
    "hendes skal",
    "fi": "ja on ei että se joka niin kun kuin mutta tai jos sitten siis nyt myös ovat oli "
    "olla tämä nämä kaksi kolme yhteensä luku vastaus saadaan meillä koska voidaan "
    "yhtälö",
    "pl": "na że się nie to jest do jak od za po co tak jeśli więc czyli zatem mamy oraz lub "
    "ale dla przez przy ten ta te tego tej tym są jego jej ich który która które gdy "
    "wtedy teraz razem każdy liczba równa równe odpowiedź dwa trzy bo już być może",
    "cs": "na že se je to do jak od za po co tak pokud proto tedy máme nebo ale pro přes při "
    "ten ta tyto toho jsou jeho její jejich který která které když pak teď nyní celkem "
    "každý číslo rovno rovná odpověď dva tři už být může",
    "tr": "ve bir bu için ile de da ne olarak olan var daha çok gibi ise en sonra önce şimdi "
    "her iki üç eşit cevap sayı yani ancak çünkü eğer değil toplam göre olur",
    "vi": "và là của có được cho trong không với các một này đó những khi để từ ta số bằng "
    "nên vì vậy thì hai ba cần phải đã sẽ tổng đáp nếu ra vào cả mỗi",
    "id": "dan yang di itu dengan untuk tidak ini dari dalam akan pada ke karena ada adalah "
    "kita jika maka jadi juga atau oleh sebagai bahwa jumlah dua tiga setiap sama punya "
    "kemudian sehingga bilangan jawaban",
    "ro": "și este în la de cu nu pe care un să mai din dar pentru sunt dacă atunci deci avem "
    "sau ca al ale ei lui doi trei două fiecare numărul egal răspunsul acum prin astfel "
    "apoi",
    "hu": "és az egy hogy nem is van ez azt meg de ha akkor tehát vagy csak már ki mint még "
    "el be kell lesz így most két három összesen szám válasz egyenlő mivel mert minden",
    "sw": "na ya wa kwa ni katika za la kama hii hiyo hivyo lakini au si pia tuna basi sasa "
    "kila mbili tatu jumla idadi jibu sawa kwanza kisha ili yake zake huo",
    "ru": "и в не на что это мы из по для как но если то же его её теперь поэтому значит "
    "тогда все так с к от у за при ещё уже или только нужно будет равна равно есть их "
    "он она этот эта эти до ответ сумма получаем следовательно сначала",
    "uk": "і в не на що це ми із по для як але якщо то його її тепер тому тоді всі так з до "
    "від у та за при ще або тільки треба буде є їх він вона цей ця ці",
    "bg": "и в не на че това ние от по за как но ако то го сега затова тогава всички така с "
    "към у при още или само трябва ще е са са той тя този тази тези до се да",
    "sr": "и у не на да је то ми из по за као али ако његов сада зато онда сви тако с до од",
    "be": "на не што гэта мы па для як але калі то яго яе цяпер таму тады ўсе так да ад пры "
    "яшчэ або толькі будзе ёсць іх ён яна лік адказ",
    "mk": "и во на не што тоа ние од по за како но ако сега затоа тогаш сите така со до или "
    "само треба ќе се тој таа овој оваа бројот одговорот",
}
LETTERS_OF: dict[str, str] = {"ru": "ыэё", "uk": "їєґ", "be": "ў", "sr": "ђћ", "mk": "ѓќѕ"}
CERTAIN = 100.0  # more than py3langid's log-probs of a word differ
RUN = 5  # minimum number of words of a sentence that py3langid classifies

_SENTENCE = re.compile(r"(?<![.!?…])[.!?…]++\s++|[。！？；\n;]+")
_KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa\u31f0-\u31ff\uff66-\uff9d]")
_IDEOGRAPH = re.compile(rf"[{CJK}]")
_IN_SCRIPT = {script: re.compile(f"[{letters}]") for script, letters in SCRIPTS.items()}
_DISTINCTIVE = re.compile(f"[{''.join(LETTERS_OF.values())}]")
_NOTATION = re.compile(
    r"[A-Za-z]{1,2}|[A-Z]{1,4}|(?:sin|cos|tan|cot|sec|csc|log|exp|max|min|mod|gcd|lcm|lim|sqrt|"
    r"arcsin|arccos|arctan|det|deg|dim|ker|sup|inf|sgn|abs|frac|times|cdot|pi|theta|alpha|beta|"
    r"gamma|delta|lambda|mol|kHz|MHz|kWh|kPa|rad|xyz|abc)"
)


def is_supported(language: str) -> bool:
    """Whether words of this language can be counted."""
    return language in ("zh", "ja") or language in ONE_SCRIPT or _script(language) != ""


@cache
def _script(language: str) -> str:
    if language in ONE_SCRIPT:
        return ONE_SCRIPT[language]
    return next((script for script, members in SHARED.items() if language in members), "")


def count_words(text: str, language: str) -> tuple[int, int]:
    """(words in `language`, words in other languages) of prose; see `words.prose`.

    For a target with another script, Latin tokens that look like variables, units or functions
    are not counted.
    """
    script = _script(language)
    target = others = 0
    previous = language  # the language of the last identified sentence
    for sentence in _SENTENCE.split(text):
        tokens = words(sentence)
        if not tokens:
            continue
        if language in ("zh", "ja"):
            inside, previous = _ideographs(sentence, tokens, language, previous)
        else:
            inside, previous = _alphabetic(sentence, tokens, script, language, previous)
        total = len(tokens)
        if script != "latin":
            total -= sum(map(_is_notation, tokens))
        target += inside
        others += total - inside
    return target, others


def _is_notation(token: str) -> bool:
    """Whether a Latin token looks like a variable, a unit or a function, and not like a word."""
    if not token.isascii() or _NOTATION.fullmatch(token) is None:
        return False
    return len(token) != 2 or token.lower() not in _SHORT_WORDS


def _ideographs(sentence: str, tokens: list[str], language: str, previous: str) -> tuple[int, str]:
    """(words of one sentence that are in `language`, the language of its ideographs)."""
    count = sum(1 for token in tokens if _IDEOGRAPH.match(token))
    if not count:
        return 0, previous
    detected = "ja" if _KANA.search(sentence) else "zh"
    if detected == "zh" and count <= RUN and previous == "ja":
        detected = "ja"  # a heading such as 証明 or 解 has no kana
    return (count if detected == language else 0), detected


def _alphabetic(
    sentence: str, tokens: list[str], script: str, language: str, previous: str
) -> tuple[int, str]:
    """(words of one sentence that are in `language`, the language of those in its script).

    Common words of one language decide; those of several split the sentence between them. Without
    any, a short sentence has the previous language, and py3langid classifies a longer one.
    """
    if script == "latin" and sentence.isascii():
        own = words(sentence.lower())
    else:
        letters = _IN_SCRIPT[script]
        own = [token.lower() for token in tokens if letters.match(token)]
    if not own or script not in SHARED:
        return len(own), language
    votes = _votes(own, script)
    candidates = set(votes) - {""}
    if len(candidates) > 1:
        return _by_neighbours(own, votes).count(language), previous
    if candidates:
        (detected,) = candidates
    else:
        detected = previous if len(own) < RUN else _classify(" ".join(own), SHARED[script])
    return (len(own) if detected == language else 0), detected


def _by_neighbours(own: Sequence[str], votes: Sequence[str]) -> list[str]:
    """The language of each word of a sentence with several languages.

    The words between two common words of different languages are split at the position where
    py3langid's scores of the single words fit best.
    """
    marked = [index for index, vote in enumerate(votes) if vote]
    labels = [votes[marked[0]]] * marked[0]
    for start, end in pairwise(marked):
        between, (left, right) = own[start + 1 : end], (votes[start], votes[end])
        leans = [_lean(word, left, right) for word in between] if left != right else []
        sums = [sum(leans[:cut]) - sum(leans[cut:]) for cut in range(len(leans) + 1)]
        cut = sums.index(max(sums))
        labels += [left] * (1 + cut) + [right] * (len(between) - cut)
    return labels + [votes[marked[-1]]] * (len(votes) - marked[-1])


@lru_cache(maxsize=1 << 16)
def _lean(word: str, left: str, right: str) -> float:
    """log P(word | left) - log P(word | right) by py3langid; CERTAIN for a word that is common in
    one of them alone."""
    common = [word in _LISTED[language] for language in (left, right)]
    if common[0] != common[1]:
        return CERTAIN if common[0] else -CERTAIN
    identifier = _identifier((left, right))
    scores = identifier.nb_classprobs(identifier.instance2fv(word))
    scores = dict(zip(identifier.nb_classes, scores, strict=True))
    return float(scores[left] - scores[right])


def _marks() -> dict[str, str]:
    """Word -> the only language that has it among its common words."""
    owners: dict[str, set[str]] = {}
    for language, listed in COMMON.items():
        for word in listed.split():
            owners.setdefault(word, set()).add(language)
    return {
        word: languages.pop()
        for word, languages in owners.items()
        if len(languages) == 1 and len(word) > 1
    }


_MARKS = _marks()
_LISTED = {
    language: frozenset(COMMON.get(language, "").split())
    for languages in SHARED.values()
    for language in languages
}
_SHORT_WORDS = frozenset(word for word in COMMON["en"].split() if len(word) == 2)


def _votes(own: list[str], script: str) -> list[str]:
    """The language that each word identifies, alone or by one of its letters; "" for none."""
    if script != "cyrillic":
        return [_MARKS.get(word, "") for word in own]
    return [_MARKS.get(word) or _letter(word) for word in own]


def _letter(word: str) -> str:
    if (letter := _DISTINCTIVE.search(word)) is None:
        return ""
    if "і" in word and letter.group() in LETTERS_OF["ru"]:
        return "be"  # Belarusian has і in place of the Russian и
    return next(language for language, letters in LETTERS_OF.items() if letter.group() in letters)


def _classify(text: str, languages: tuple[str, ...]) -> str:
    return _identifier(languages).classify(text[:400])[0]


@cache
def _identifier(languages: tuple[str, ...]) -> Any:
    """py3langid's model restricted to these languages. Loading it takes half a second."""
    identifier = copy(_model())
    identifier.set_languages(list(languages))
    return identifier


@cache
def _model() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_pickled_model(MODEL_FILE)


def identify(text: str) -> str:
    """The language of a text as an ISO 639-1 code; "" without words.

    Decided by the script if only one language has it, else by common words, then by py3langid.
    """
    tokens = words(text)
    ideographs = sum(1 for token in tokens if _IDEOGRAPH.match(token))
    if 2 * ideographs > len(tokens):
        return "ja" if 10 * len(_KANA.findall(text)) > ideographs else "zh"
    sizes = {
        script: sum(1 for token in tokens if letters.match(token))
        for script, letters in _IN_SCRIPT.items()
    }
    script = max(sizes, key=lambda name: sizes[name])
    if not sizes[script]:
        return ""
    if script not in SHARED:
        return next(language for language, name in ONE_SCRIPT.items() if name == script)
    own = [token.lower() for token in tokens if _IN_SCRIPT[script].match(token)]
    votes = [vote for vote in _votes(own, script) if vote]
    if len(set(votes)) == 1 and 4 * len(votes) >= len(own):
        return votes[0]
    return _classify(" ".join(own), SHARED[script])
