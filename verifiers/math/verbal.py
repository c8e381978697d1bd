"""Gold answers in words or letters: phrases, lists of words, names of figures such as ABC."""

import re

from veriloop.verifiers.math.foreign import is_foreign_word
from veriloop.verifiers.math.grammar import BASES
from veriloop.verifiers.math.names import words
from veriloop.verifiers.math.times import simplified
from veriloop.verifiers.math.units import UNITS
from veriloop.verifiers.math.wording import bare_words, meaning, number_words

_HEAD = re.compile(r" (?:function|number|integer|curve|shape|triangle|day)$")  # an odd function
_KNOWN_WORDS = words("yes no odd even true false none dne red blue both")
_WORDS_GOLD = re.compile(r"\\text|\\mathrm|\\mbox|[A-Za-z]{4}")
_YES_NO = ("yes", "no", "true", "false")
_WORD = re.compile(r"[a-z]+")
_LETTERS = re.compile(
    r"\s*(?:\\(triangle|angle|overline|overleftrightarrow|overrightarrow|vec)|"
    r"(triangle|angle|segment|line|ray)(?=\s))?\s*\{?\s*([A-Z](?:\s*[A-Z])+)\s*\}?\s*"
)
_GAP = re.compile(r"\\[,;: ]|\s*(?:,|>|->|\\(?:to|rightarrow)(?![a-z]))\s*|[${}]|\band\b")
_STYLE = re.compile(r"\\(?:text(?:bf|it|rm|sf|normal)?|math(?:rm|bf|it|sf)|mbox)(?![a-z])")
_UNORDERED = frozenset({"triangle", "overline", "overleftrightarrow", "segment", "line"})
_KINDS = {"overline": "segment", "overleftrightarrow": "line", "vec": "ray",
          "overrightarrow": "ray"}  # fmt: skip
_BETWEEN = re.compile(r"\s*(?:[,;&/]|\band\b)\s*")
_ONLY = re.compile(r"^only\s+|\s+only$")
_OPTION_GAP = re.compile(r"\s*(?:[,;&/]|\band\b|\bonly\b)\s*|\s+")
_BASED = re.compile(
    r"\(?(?=\w*\d\w*_|\w*\d\w*\))(?=\d*[a-f])([0-9a-f]+)\)?_\(?(?:base)?"
    r"(1[1-6]|eleven|twelve|sixteen)\)?"
)
_ALL = re.compile(r"^(?:all|every|any)\s+(?:of\s+)?(?:the\s+)?")
_ROMAN = re.compile(r"[ivx]+|[a-j]")
_TEXT = re.compile(r"[\w\s.,;:'()/-]+")


def phrase(gold: str) -> str | None:
    """The meaning of a gold answer in words; None if it may be a formula, a number or a unit."""
    bare = bare_words(gold)
    if bare is None or number_words(bare) is not None:
        return None
    sense = meaning(bare)
    if is_foreign_word(bare):
        return sense
    verbal = sense != bare or bare in _KNOWN_WORDS or _WORDS_GOLD.search(gold)
    return sense if verbal and len(bare) > 1 and not (len(bare) < 4 and bare in UNITS) else None


def is_known(sense: str) -> bool:
    """Whether a phrase cannot be a product of symbols."""
    return sense in _KNOWN_WORDS or " " in sense


def same_phrase(expected: str, answer: str) -> bool:
    bare = bare_words(answer)
    expected = _ONLY.sub("", expected)
    if bare is None and expected in _YES_NO:
        first, _, rest = re.sub("[.;:]", ",", answer).partition(",")
        bare = None if set(_YES_NO) & set(_WORD.findall(rest.lower())) else bare_words(first)
    if bare is None:
        return False
    sense = _ALL.sub("", meaning(_ONLY.sub("", bare)))
    expected = _ALL.sub("", expected)
    names = len(sense) == 1 and expected.endswith(f" {sense}")  # B for point B
    return names or expected in (sense, _HEAD.sub("", sense))


def letters(text: str, *, gaps: bool = False) -> tuple[str, str] | None:
    """(kind of figure or "", letters) of a run of capitals: ABC, \\triangle ABC, segment AB.

    `gaps`: separators may stand between the letters, as in A, B, C and A > B > C.
    """
    bare = _STYLE.sub("", text)
    match = _LETTERS.fullmatch((_GAP.sub(" ", bare) if gaps else bare).strip(" .${}"))
    if match is None or meaning(match.group(3).lower()) in _KNOWN_WORDS | {"does not exist"}:
        return None
    kind = match.group(1) or match.group(2) or ""
    return _KINDS.get(kind, kind), "".join(match.group(3).split())


def same_letters(gold: tuple[str, str], answer: tuple[str, str]) -> bool:
    """Equality in order; a triangle or segment has no order, an angle may be reversed.

    Letters alone may be a ranking or a word, so their order matters.
    """
    kind = gold[0] or answer[0]
    if (answer[0] or kind) != kind:
        return False
    if gold[0] in _UNORDERED:
        return sorted(gold[1]) == sorted(answer[1])
    return gold[1] == answer[1] or (gold[0] == "angle" and gold[1] == answer[1][::-1])


def word_list(text: str) -> list[str] | None:
    """The words of a list such as "I and III" or "red, blue"; None if it is no list of words."""
    pieces = [
        bare_words(piece) for piece in _BETWEEN.split(_ONLY.sub("", simplified(text))) if piece
    ]
    listed = [meaning(piece) for piece in pieces if piece]
    return listed if len(listed) == len(pieces) > 1 else None


def same_word_list(gold: str, answer: str) -> bool:
    """Whether both have the same words.

    The order matters for words with commas only, which may be a ranking, but not for statements
    such as I, II and III.
    """
    expected, actual = word_list(gold), word_list(answer)
    if expected is None or actual is None:
        return False
    if re.search(r"\band\b|&", gold) or all(map(_ROMAN.fullmatch, expected)):
        return len(expected) == len(actual) and set(expected) == set(actual)
    return expected == actual


def options(text: str, *, listed: bool = True) -> str:
    """The letters of several options in order, as A, C or (A) and (C); "" for other texts.

    `listed`: separators between the letters are required.
    """
    bare = _OPTION_GAP.sub(" ", simplified(text).replace(")", " ").replace("(", " "))
    letters = "".join(bare.split())
    several = len(set(letters)) == len(letters) > 1 and re.fullmatch("[a-j]+", letters)
    capitals = not re.search(r"(?<![a-z\\])[a-j](?![a-z])", text)
    return "".join(sorted(letters)) if several and capitals and (" " in bare or not listed) else ""


def based(text: str) -> tuple[str, str] | None:
    """(digits, base) of a numeral with letters as digits, as 1A3_{16}; else None."""
    match = _BASED.fullmatch(simplified(text).replace(" ", ""))
    return (match[1], BASES.get(match[2], match[2])) if match else None


def is_plain_text(gold: str) -> bool:
    """Whether a gold answer that is no formula is text with numbers, as Room 12."""
    bare = simplified(gold)
    return bool(_TEXT.fullmatch(bare) and re.search(r"[^\W\d_]{3}", bare))


def same_text(gold: str, answer: str) -> bool:
    return re.findall(r"\w+", simplified(gold)) == re.findall(r"\w+", simplified(answer))
