"""Decide whether an answer matches the gold answer: text, number, choice, words, mathematics."""

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from veriloop.verifiers.math import algebra
from veriloop.verifiers.math.compare import same
from veriloop.verifiers.math.families import declared, names_of, same_family, with_letter
from veriloop.verifiers.math.foreign import with_or
from veriloop.verifiers.math.glyphs import plain
from veriloop.verifiers.math.items import items
from veriloop.verifiers.math.names import ALSO, APPLIED, DENIED, EITHER
from veriloop.verifiers.math.parts import labelled, option, unlabelled
from veriloop.verifiers.math.sides import one_number, other_dollars, plain_dollars
from veriloop.verifiers.math.statements import read
from veriloop.verifiers.math.times import same_time
from veriloop.verifiers.math.tokens import Comma
from veriloop.verifiers.math.tree import (
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
from veriloop.verifiers.math.units import names_prefixed
from veriloop.verifiers.math.verbal import (
    based,
    is_known,
    is_plain_text,
    letters,
    options,
    phrase,
    same_letters,
    same_phrase,
    same_text,
    same_word_list,
    word_list,
)
from veriloop.verifiers.math.wording import (
    LAST_MULTIPLIERS,
    MULTIPLIERS,
    bare_words,
    choice,
    meaning,
    names_another,
    number_words,
)
from veriloop.verifiers.withdrawal import withdrawn

MAX_CHARS = 2_000

_SPACING = re.compile(
    r"\\(?:left|right|displaystyle|[,;:! ])(?![a-zA-Z])|\\[()\[\]]|[$~]|\*\*(?=\s*$)"
)
_STYLED = re.compile(  # one word in style commands: \\textbf{\\text{Bob}}
    r"(?:\\(?:text(?:bf|it|rm|sf|tt|up|normal)?|math(?:rm|bf|it|sf|tt)|mbox|emph|operatorname)\{)+"
    r"([^\W\d_]+)\.?(?P<closed>\}+)"
)
_LOOSE_SPACE = re.compile(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])")
_NUMBER = re.compile(r"[+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)")
_FRACTION = re.compile(r"([+-]?)(?:\\frac\{([+-]?\d+)\}\{([+-]?\d+)\}|(\d+)/(\d+))")
_CHOICE_GOLD = re.compile(
    r"\W*(?:\\(?:text|textbf|mathrm|mathbf)\s*\{)?\s*(?:\(\s*[A-Ja-j]\s*\)|[A-J])"
    r"(?![A-Za-z]|\s*-(?!.*[A-Za-z]{3})).*"  # A - 1 is a difference
)
_LETTERED = re.compile(
    r"\s*(?:\\(?:text|textbf|mathrm|mathbf)\s*\{)?\s*\(\s*[A-J]\s*\)\s*\}?"
    r"(?:\\[ ,;]|\\q?quad|[\s~])"
)
_TAIL = re.compile(
    r"(?<=[A-Za-z}])[\s~]+(?:to|of|in|for|that|which|with|from|on|at|by|such|when|so|because|since)\b"
    r"[^0-9\\$=<>]*$"
)
_EXCEPT = re.compile(
    r"^\s*(?:\\text\s*\{)?\s*(?:all\s+)?(?:real numbers|reals)\s+except\s*\}?\s*(?:x\s*=)?(.+)$"
)
_SEPARATED = re.compile(r"\d(?:,|\{,\}|\.)\d")
_BRACKETED_PAIR = re.compile(r"[(\[{][\s-]*\d+(?:,-?\d+)+\s*(?:\\right\s*)?\\?[)\]}\[]")
_DECIMAL = re.compile(r"\d[\d\s.]*(?:,|\{,\})\d")
_REPEATED = re.compile(  # 7 \\text{ (seven)}
    r"(.+?)(?:[\s~]|\\[ ,])*(?:\\text\s*\{\s*)?\(\s*(?:\\text\s*\{\s*)?"
    r"([A-Za-z -]+?)\s*\}?\s*\)\s*\}?"
)
_CONTINUUM = re.compile(r"\\in\s*(?:\\mathbb\s*(?:\{\s*)?[RQC]\b|\\R(?![A-Za-z])|ℝ|ℚ|ℂ)")
_REAL = re.compile(r"(?<![A-Za-z\\])([a-z])\s*\\in\s*\\mathbb\s*(?:\{\s*)?R\b")
_CHANGES = frozenset(
    {*DENIED, *EITHER, *ALSO, *APPLIED, *MULTIPLIERS, *LAST_MULTIPLIERS, "to", "mod", "per"}
)
_SPECIAL = {
    "empty": EMPTY, "infinity": INFINITY, "reals": REALS, "minus infinity": Node("neg", (INFINITY,))
}  # fmt: skip


def normal(text: str) -> str:
    """The answer in a normal form: LaTeX for glyphs, no spacing commands, plain fractions."""
    text = _SPACING.sub("", plain(text).replace("{,}", ","))
    text = text.replace("\\$", "").replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    return _LOOSE_SPACE.sub("", text).strip().removesuffix(".")


def _unstyled(text: str) -> str:
    """The word of a normalised text without the style commands around it; other texts as is."""
    match = _STYLED.fullmatch(text)
    balanced = match is not None and text.count("{") == len(match["closed"])
    return match[1] if match and balanced else text


def exact(text: str) -> Fraction | None:
    """The rational value of a normalised text such as 12, 1,234, 0.5, 3/4 or \\frac{3}{4}."""
    if _NUMBER.fullmatch(text):
        return Fraction(text.replace(",", ""))
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    sign, over, under = match.group(1), match.group(2) or match.group(4), match.group(3)
    under = under or match.group(5)
    return Fraction(int(sign + "1") * int(over), int(under)) if int(under) else None


@lru_cache(maxsize=8192)
def decide(
    gold: str,
    answer: str,
    decimal_comma: bool = False,
    computer_algebra: algebra.Use = "fallback",
) -> tuple[bool, str]:
    """(whether the answer is correct, the rule that decided).

    Both are bare LaTeX or text of at most MAX_CHARS characters. `decimal_comma`: the response is in
    a language that writes 2,5. Raises ValueError if the gold answer cannot be parsed, and
    UndecidedError if it is not worked out and computer algebra finds no value or is not used.
    """
    gold, answer = one_number(gold, answer), one_number(answer, gold)
    if "$" in gold + answer:
        if other_dollars(gold, answer):
            return False, "another currency"
        gold, answer = plain_dollars(gold), plain_dollars(answer)
    gold_text, answer_text = normal(gold), normal(answer)
    decimal = decimal_comma and _SEPARATED.search(answer) is not None
    if not decimal:
        if _unstyled(gold_text) == _unstyled(answer_text) != "":
            return True, "same text"
        values = exact(gold_text), exact(answer_text)
        if values[0] is not None and values[1] is not None and "." not in gold_text + answer_text:
            return values[0] == values[1], "exact rationals"
    try:
        texts = _spaced(with_or(plain(gold))), _spaced(with_or(plain(answer)))
        return _by_kind(*texts, decimal_comma, computer_algebra)
    except RecursionError:
        return False, "nested too deeply"


def _spaced(text: str) -> str:
    """The text with single blanks and without empty lines."""
    lines = (" ".join(line.split()) for line in text.rstrip("\u3002").splitlines())
    return "\n".join(line for line in lines if line)


def _by_kind(gold: str, answer: str, decimal_comma: bool, use: algebra.Use) -> tuple[bool, str]:
    if _open_braces(gold):
        raise ValueError(f"reference answer {gold!r} is neither text nor readable mathematics")
    parts = labelled(gold)
    if parts is not None:
        return _same_parts(parts, answer, decimal_comma, use), "parts"
    gold_choice = choice(gold) if _CHOICE_GOLD.fullmatch(gold.strip()) else None
    if gold_choice is not None:
        return _same_choice(gold_choice[0], gold, answer, decimal_comma, use)
    if bare := _without_labels(answer) or _without_letter(answer):
        answer = bare
    right = same_time(gold, answer)
    if right is not None:
        return right, "times"
    right = _in_words(gold, answer)
    if right is not None:
        return right, "words"
    return _by_mathematics(gold, answer, decimal_comma, use)


def _open_braces(text: str) -> int:
    return len(re.findall(r"(?<!\\)\{", text)) - len(re.findall(r"(?<!\\)\}", text))


def _by_mathematics(
    gold: str, answer: str, decimal_comma: bool, use: algebra.Use
) -> tuple[bool, str]:
    right = _as_families(gold, answer, decimal_comma)
    if right is not None:
        return right, "families"
    special = _SPECIAL.get(phrase(gold) or "")
    gold_forms = _spelled(gold) or _forms(gold, "gold")
    if special is not None:
        gold_forms = (_single(special),)
    if not gold_forms:
        if is_plain_text(gold):
            return same_text(gold, answer), "text"
        raise ValueError(f"reference answer {gold!r} is neither text nor readable mathematics")
    answer_forms = _answer_forms(answer, decimal_comma, any(map(_has_unit, gold_forms)))
    if not answer_forms:
        return False, "cannot be parsed as an answer"
    answer_forms += _with_parameter_of(gold, answer, answer_forms)
    if any(same(g, a) for g in gold_forms for a in answer_forms):
        return True, "mathematics"
    if any(map(_has_unit, _answer_forms(answer, decimal_comma, False))):
        in_units = [form for form in answer_forms if _has_unit(form)]
        if any(same(g, a) for g in _in_letters(gold, gold_forms) for a in in_units):
            return True, "mathematics"
    right = algebra.match(gold_forms, answer_forms, use)
    return (False, "mathematics") if right is None else (right, "computer algebra")


def _in_letters(gold: str, forms: Sequence[Form]) -> tuple[Form, ...]:
    """The gold answer with letters as a unit with a prefix, as in 2 \\mu m and 5 mV.

    They may be a product, and are only read so where the answer has a unit too.
    """
    if _SPECIAL.get(phrase(gold) or "") or _spelled(gold):
        return ()
    read_so = _forms(gold, "gold", "thousands", 2)
    return tuple(form for form in read_so if form not in forms and _has_prefix(form))


def _has_prefix(form: Form) -> bool:
    return any(names_prefixed(side) for part in form.parts for side in part.sides)


def _with_parameter_of(gold: str, answer: str, forms: Sequence[Form]) -> tuple[Form, ...]:
    """The answer with the real parameter of the gold answer: c x, c in R for k x, k in R."""
    own, other = _REAL.search(gold), _REAL.search(answer)
    if not own or not other or own[1] in re.sub(r"\\[A-Za-z]+", "", answer):
        return ()
    return tuple(with_letter(form, other[1], own[1]) for form in forms)


def _as_families(gold: str, answer: str, decimal_comma: bool) -> bool | None:
    """Whether both have the same members; None if neither declares an integer parameter."""
    (gold_text, gold_letter), (answer_text, answer_letter) = declared(gold), declared(answer)
    if gold_letter is None and answer_letter is None:
        return None
    if gold_letter is not None and answer_letter is None and _CONTINUUM.search(answer):
        return False
    gold_forms = _forms(gold_text, "gold")
    gold_items = [listed for form in gold_forms if (listed := items(form))]
    depends = gold_letter is None or any(gold_letter.letter in names_of(g) for g in gold_items)
    if not gold_items or not depends:
        return None
    answer_forms = _answer_forms(answer_text, decimal_comma, False)
    if any(
        same_family(g, a, gold_letter, answer_letter)
        for a in map(items, answer_forms)
        if a
        for g in gold_items
    ):
        return True
    if not gold_letter or not answer_letter or gold_letter.signed != answer_letter.signed:
        return False
    renaming = answer_letter.letter, gold_letter.letter
    return any(same(g, with_letter(a, *renaming)) for g in gold_forms for a in answer_forms)


def _same_parts(parts: dict[str, str], answer: str, decimal_comma: bool, use: algebra.Use) -> bool:
    """Whether each part of the answer is correct; parts in order may omit their labels."""
    answer_parts = labelled(answer)
    if answer_parts is None:
        pieces = [answer] if len(parts) == 1 else unlabelled(answer, len(parts))
        answer_parts = dict(zip(parts, pieces, strict=True)) if pieces else {}
    return answer_parts.keys() == parts.keys() and all(
        decide(text, answer_parts[label], decimal_comma, use)[0] for label, text in parts.items()
    )


def _without_labels(answer: str) -> str:
    return ", ".join((labelled(answer) or {}).values())


def _without_letter(answer: str) -> str:
    """The text of an option that the answer names by its letter in brackets too; else ""."""
    return option(answer) if _LETTERED.match(answer) and choice(answer) else ""


def _same_choice(
    letter: str, gold: str, answer: str, decimal_comma: bool, use: algebra.Use
) -> tuple[bool, str]:
    """Whether the answer has the letter of the option, or its text, and no other text."""
    gold_text, answer_choice = option(gold), choice(answer)
    if answer_choice is None:
        right = bool(gold_text) and decide(gold_text, answer, decimal_comma, use)[0]
        return right, "the text of the option" if right else "not one of the options"
    if answer_choice[0] != letter or withdrawn(f". {answer_choice[1]}", letter):
        return False, "choice"
    return not _contradicts(gold_text, option(answer), decimal_comma, use), "choice"


def _contradicts(gold_text: str, answer_text: str, decimal_comma: bool, use: algebra.Use) -> bool:
    """Whether both texts of an option are mathematics, and differ."""
    if not gold_text or not answer_text:
        return False
    readable = _forms(gold_text, "gold") and _answer_forms(answer_text, decimal_comma, True)
    return bool(readable) and not decide(gold_text, answer_text, decimal_comma, use)[0]


def _in_words(gold: str, answer: str) -> bool | None:
    """Whether the words or letters of both are the same; None if the gold is no text."""
    if gold_options := options(gold):
        return gold_options == options(answer, listed=False)
    if numeral := based(gold) if re.search(r"\d", gold) else None:
        return numeral == based(answer)
    gold_letters = letters(gold)
    if gold_letters is not None:
        answer_letters = letters(answer, gaps=True)
        return answer_letters is not None and same_letters(gold_letters, answer_letters)
    expected = phrase(gold)
    if expected is not None and expected not in _SPECIAL:
        if "\\text" not in gold and not is_known(expected) and _forms(gold, "gold"):
            return None  # log x, sin x
        return same_phrase(expected, answer) or same_word_list(gold, answer)
    listed = word_list(gold)
    if listed is not None and ("\\text" in gold or not _forms(gold, "gold")):
        return same_word_list(gold, answer)
    return None


def _single(node: Node) -> Form:
    return Form((Chain((node,)),))


@lru_cache(maxsize=2048)
def _forms(text: str, role: str, comma: Comma = "thousands", letters: int = 1) -> tuple[Form, ...]:
    """All parses of the text: letters as symbols, and as units."""
    text = _EXCEPT.sub(r"\\mathbb{R}\\setminus\\{\1\\}", text)
    forms: list[Form] = []
    for unit_letters in range(letters + 1):
        try:
            form = read(text, comma=comma, unit_letters=unit_letters)
        except (UnreadableError, RecursionError):
            continue
        if form not in forms:
            forms.append(form)
    return tuple(forms)


def _spelled(text: str) -> tuple[Form, ...]:
    """The number or the special value that a text spells in words, else empty."""
    bare = bare_words(text)
    if bare is None:
        return ()
    special = _SPECIAL.get(meaning(bare))
    if special is not None:
        return (_single(special),)
    spelled = bare.split()
    for end in range(len(spelled), max(len(spelled) - 3, 0), -1):
        value = number_words(" ".join(spelled[:end]))
        if value is not None:
            return (_single(number(value)),) if _names_things(spelled[end:]) else ()
    return ()


def _names_things(after: list[str]) -> bool:
    """Whether the words after a spelled number leave its value as it is."""
    return not any(word in _CHANGES or number_words(word) is not None for word in after)


def _answer_forms(answer: str, decimal_comma: bool, units: bool) -> tuple[Form, ...]:
    if words := _spelled(answer):
        return words
    repeated = _REPEATED.fullmatch(answer)
    if repeated and exact(normal(repeated[1])) == number_words(repeated[2].lower()) is not None:
        answer = repeated[1]
    commas: list[Comma] = ["thousands"]
    if decimal_comma and _DECIMAL.search(answer):
        commas = ["decimal"]
    if decimal_comma and re.search(r"\d\.\d{3}(?!\d)", answer):
        commas = ["decimal", "decimal, grouped points"]
    if commas[0] != "thousands" and _BRACKETED_PAIR.search(answer):
        commas.append("thousands")  # (3,4) may be a pair in any language
    text = _without_tail(answer)
    return tuple(
        form for comma in commas for form in _forms(text, "answer", comma, 2 if units else 1)
    )


def _without_tail(answer: str) -> str:
    """Without the prose after a value, unless it may name another value."""
    tail = _TAIL.search(answer)
    return answer[: tail.start()] if tail and not names_another(tail.group()) else answer


def _has_unit(form: Form) -> bool:
    return any(contains(side, "unit") for part in form.parts for side in part.sides)
