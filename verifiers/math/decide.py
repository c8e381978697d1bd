"""One gold answer, one given answer: the same text, the same number, choice, words or meaning."""

import re
from fractions import Fraction
from functools import lru_cache

from verifiers.math.algebra import equal_by_algebra, refusal
from verifiers.math.compare import same
from verifiers.math.glyphs import plain
from verifiers.math.names import words
from verifiers.math.statements import read
from verifiers.math.tokens import Comma
from verifiers.math.tree import (
    EMPTY,
    INFINITY,
    REALS,
    Chain,
    Form,
    Node,
    UnreadableError,
    contains,
    number,
)
from verifiers.math.units import UNITS
from verifiers.math.wording import bare_words, choice, meaning, number_words

MAX_CHARS = 2_000

_SPACING = re.compile(
    r"\\(?:left|right|displaystyle|[,;:! ])(?![a-zA-Z])|\\[()\[\]]|[$~]|\*\*(?=\s*$)"
)
_LOOSE_SPACE = re.compile(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])")
_NUMBER = re.compile(r"[+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)")
_FRACTION = re.compile(r"([+-]?)(?:\\frac\{([+-]?\d+)\}\{([+-]?\d+)\}|(\d+)/(\d+))")
_CHOICE_GOLD = re.compile(
    r"\W*(?:\\(?:text|textbf|mathrm|mathbf)\s*\{)?\s*(?:\(\s*[A-Ja-j]\s*\)|[A-J])(?![A-Za-z]).*"
)
_HEAD = re.compile(r" (?:function|number|integer|curve|shape|triangle|day)$")  # an odd function
_KNOWN_WORDS = words("yes no odd even true false none dne red blue both")
_WORDS_GOLD = re.compile(r"\\text|\\mathrm|\\mbox|[A-Za-z]{4}")
_TAIL = re.compile(
    r"(?<=[A-Za-z}])[\s~]+(?:to|of|in|for|that|which|with|from|on|at|by|such|when|so|because|since)\b"
    r"[^0-9\\$=<>]*$"
)
_EXCEPT = re.compile(
    r"^\s*(?:\\text\s*\{)?\s*(?:all\s+)?(?:real numbers|reals)\s+except\s*\}?\s*(?:x\s*=)?(.+)$"
)
_SEPARATED = re.compile(r"\d(?:,|\{,\}|\.)\d")
_DECIMAL = re.compile(r"\d[\d\s.]*(?:,|\{,\})\d")
_SPECIAL = {
    "empty": EMPTY, "infinity": INFINITY, "reals": REALS, "minus infinity": Node("neg", (INFINITY,))
}  # fmt: skip


def normal(text: str) -> str:
    """The answer in one spelling: glyphs written out, no spacing commands, plain fractions."""
    text = _SPACING.sub("", plain(text).replace("{,}", ","))
    text = text.replace("\\$", "").replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    return _LOOSE_SPACE.sub("", text).strip().removesuffix(".")


def exact(text: str) -> Fraction | None:
    """The rational a normalised text spells: 12, 1,234, 0.5, 3/4 or \\frac{3}{4}; else None."""
    if _NUMBER.fullmatch(text):
        return Fraction(text.replace(",", ""))
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    sign, over, under = match.group(1), match.group(2) or match.group(4), match.group(3)
    under = under or match.group(5)
    return Fraction(int(sign + "1") * int(over), int(under)) if int(under) else None


@lru_cache(maxsize=8192)
def decide(gold: str, answer: str, decimal_comma: bool = False) -> tuple[bool, str]:
    """Whether the answer is right, and which rule said so.

    Both are bare LaTeX or text, of at most MAX_CHARS characters. `decimal_comma`: the response is
    in a language that writes 2,5. Raises ValueError when nothing can read the gold answer.
    """
    one, other = normal(gold), normal(answer)
    decimal = decimal_comma and _SEPARATED.search(answer) is not None
    if not decimal:
        if one == other and one:
            return True, "same text"
        values = exact(one), exact(other)
        if values[0] is not None and values[1] is not None and "." not in one + other:
            return values[0] == values[1], "exact rationals"
    try:
        return _by_kind(plain(gold), plain(answer), decimal_comma)
    except RecursionError:
        return False, "nested too deeply"


def _by_kind(gold: str, answer: str, decimal_comma: bool) -> tuple[bool, str]:
    picked = _choice_of(gold)
    if picked is not None:
        return _same_choice(picked, answer)
    said = _words_of(gold)
    if said is not None and said not in _SPECIAL:
        return _same_words(said, answer), "words"
    wanted = _forms(gold, "gold")
    if said is not None:
        wanted = (_single(_SPECIAL[said]),)
    if not wanted:
        return _by_algebra(gold, answer)
    given = _given(answer, decimal_comma, any(map(_has_unit, wanted)))
    if not given:
        return False, "not readable as an answer"
    return any(same(g, a) for g in wanted for a in given), "mathematics"


def _choice_of(gold: str) -> tuple[str, str] | None:
    return choice(gold) if _CHOICE_GOLD.fullmatch(gold.strip()) else None


def _same_choice(picked: tuple[str, str], answer: str) -> tuple[bool, str]:
    given = choice(answer)
    if given is None:
        right = bool(picked[1]) and normal(picked[1]) == normal(answer)
        return right, "the text of the option" if right else "not one of the options"
    return given[0] == picked[0], "choice"


def _words_of(gold: str) -> str | None:
    """The meaning of a gold answer in words; None where it is mathematics."""
    bare = bare_words(gold)
    if bare is None or number_words(bare) is not None:
        return None
    said = meaning(bare)
    verbal = said in _SPECIAL or bare in _KNOWN_WORDS or _WORDS_GOLD.search(gold)
    if not verbal or (len(bare) == 1) or (len(bare) < 4 and bare in UNITS):
        return None
    if said not in _SPECIAL and "\\text" not in gold and _forms(gold, "gold"):
        return None  # log x, sin x
    return said


def _same_words(wanted: str, answer: str) -> bool:
    given = bare_words(answer)
    if given is None and wanted in ("yes", "no", "true", "false"):
        given = bare_words(re.split(r"[,.;:]", answer, maxsplit=1)[0])
    if given is None:
        return False
    said = meaning(given)
    return wanted in (said, _HEAD.sub("", said))


def _single(node: Node) -> Form:
    return Form((Chain((node,)),))


@lru_cache(maxsize=2048)
def _forms(text: str, role: str, comma: Comma = "thousands", letters: int = 1) -> tuple[Form, ...]:
    """Every reading of the text: letters as symbols, and as units."""
    text = _EXCEPT.sub(r"\\mathbb{R}\\setminus\\{\1\\}", text)
    found: list[Form] = []
    for unit_letters in range(letters + 1):
        try:
            form = read(text, comma=comma, unit_letters=unit_letters)
        except (UnreadableError, RecursionError):
            continue
        if form not in found:
            found.append(form)
    return tuple(found)


def _given(answer: str, decimal_comma: bool, units: bool) -> tuple[Form, ...]:
    bare = bare_words(answer)
    if bare is not None:
        special = _SPECIAL.get(meaning(bare))
        if special is not None:
            return (_single(special),)
        for cut in (None, -1, -2):
            value = number_words(" ".join(bare.split()[:cut]))
            if value is not None:
                return (_single(number(value)),)
    commas: list[Comma] = ["thousands"]
    if decimal_comma and _DECIMAL.search(answer):
        commas = ["decimal"]
    if decimal_comma and re.search(r"\d\.\d{3}(?!\d)", answer):
        commas = ["decimal", "decimal, grouped points"]
    text = _TAIL.sub("", answer)
    return tuple(
        form for comma in commas for form in _forms(text, "given", comma, 2 if units else 1)
    )


def _has_unit(form: Form) -> bool:
    return any(contains(side, "unit") for part in form.parts for side in part.sides)


def _by_algebra(gold: str, answer: str) -> tuple[bool, str]:
    if not gold.strip() or gold.count("{") != gold.count("}"):
        raise ValueError(f"reference answer {gold!r} is neither text nor readable mathematics")
    if reason := refusal(answer, gold):
        return False, reason
    return equal_by_algebra(gold, answer), "computer algebra"
