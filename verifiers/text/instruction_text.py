"""Shared rules of the instruction checks: how words, sentences, paragraphs and occurrences are
counted, and the table of checks by instruction id.
"""

import inspect
import re
import unicodedata
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from veriloop.verifiers.invisible import is_blank, without_invisible
from veriloop.verifiers.text.words import CJK, MARKED, MARKS

Check = Callable[..., bool]

CHECKS: dict[str, Check] = {}  # instruction id -> check(text, **kwargs)

_RUN = rf"[^\W_]+(?:{MARKED}[^\W_]*)*"
_WORD = re.compile(rf"{_RUN}(?:['’.-]{_RUN})*")
_LONGEST = 40  # characters before a period that are searched for an abbreviation
_ABBREVIATIONS = re.compile(
    r"mr|mrs|ms|dr|prof|st|sr|jr|vs|inc|ltd|co|vol|e\.g|i\.e|u\.s|u\.k|p\.s|p\.p\.s|approx|gen|sen"
)
_END = re.compile(r"([.!?]+[\"'”’)\]*]*|[。！？]+[”’」』）]*)(?=\s|$|(?<=[。！？”’」』）])|-)")
_ONLY_INITIALS = re.compile(r"\s*(?:[A-Za-z]\.\s*)+")
_SIX_ASTERISKS = re.compile(r"(?<!\*)\*{6}(?!\*)")
_DIVIDER = re.compile(r"\s*(?<!\*)(?:\*\*\*|\* \* \*)(?!\*)\s*")


def instruction(id: str) -> Callable[[Check], Check]:
    """Decorator that registers a check; its keyword arguments are those of the instruction."""

    def register(check: Check) -> Check:
        if id in CHECKS:
            raise ValueError(f"instruction {id!r} is already registered by {CHECKS[id].__name__}")
        CHECKS[id] = check
        return check

    return register


def follows(text: str, id: str, arguments: Mapping[str, Any]) -> bool:
    """Whether `text` follows the instruction; an empty text never does.

    Invisible characters count nowhere: a zero-width space neither splits a word nor fills a bullet.
    Raises KeyError and ValueError like `arguments_of`.
    """
    kwargs = arguments_of(CHECKS, id, arguments)
    visible = {name: _visible(value) for name, value in kwargs.items()}
    return not is_blank(text) and CHECKS[id](without_invisible(text), **visible)


def arguments_of(
    checks: Mapping[str, Check], id: str, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of the check called `id`, without those that are None.

    Raises KeyError for an unknown id with the nearest match, and ValueError for a missing, unknown
    or invalid argument.
    """
    if id not in checks:
        close = get_close_matches(id, checks, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise KeyError(f"no instruction {id!r}.{hint}")
    kwargs = {name: value for name, value in arguments.items() if value is not None}
    try:
        inspect.signature(checks[id]).bind("", **kwargs)
    except TypeError as error:
        raise ValueError(f"arguments of instruction {id!r}: {error}; got {kwargs}") from error
    return kwargs


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return without_invisible(value)
    return [_visible(item) for item in value] if isinstance(value, list | tuple) else value


def compared(count: int, relation: str, threshold: float) -> bool:
    """Whether `count` is "less than" or "at least" the threshold."""
    if relation not in ("less than", "at least"):
        raise ValueError(f"relation must be 'less than' or 'at least', got {relation!r}")
    return count < threshold if relation == "less than" else count >= threshold


def words(text: str) -> list[str]:
    """Runs of letters and digits; don't, x-ray and 3.14 are one word each."""
    return _WORD.findall(text)


def sentences(text: str) -> list[str]:
    """Sentences, stripped, with their closing marks.

    A blank line ends a sentence too; abbreviations, initials and decimal points do not, except in a
    paragraph of nothing but single letters.
    """
    parts: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        if _ONLY_INITIALS.fullmatch(block):
            parts += block.split(".")
            continue
        start = 0
        for match in _END.finditer(block):
            last = block[max(start, match.start() - _LONGEST) : match.start()].split()
            bare = last[-1].strip("\"'(“‘*").lower() if last else ""
            if match.group(1) == "." and (_ABBREVIATIONS.fullmatch(bare) or _initial(bare)):
                continue
            parts.append(block[start : match.end()].strip())
            start = match.end()
        parts.append(block[start:].strip())
    return [sentence for sentence in parts if words(sentence)]


def _initial(word: str) -> bool:
    return len(word) == 1 and word.isalpha() and word != "i"


def divided_paragraphs(text: str) -> list[str] | None:
    """Paragraphs separated by ***; None if one in the middle is empty."""
    return nonempty_parts(_DIVIDER.split(text))


def nonempty_parts(parts: list[str]) -> list[str] | None:
    """The parts that are not empty; None if one in the middle is empty."""
    if any(not part.strip() for part in parts[1:-1]):
        return None
    return [part.strip() for part in parts if part.strip()]


def has_content(text: str) -> bool:
    """Whether the text has a letter, a number or an emoji, not only punctuation and blanks."""
    return any(
        character.isalnum() or (unicodedata.category(character) == "So" and not is_blank(character))
        for character in text
    )


def responses(text: str) -> list[str] | None:
    """The parts between dividers of exactly six asterisks; None if one in the middle is empty."""
    return nonempty_parts(_SIX_ASTERISKS.split(text))


def folded(text: str) -> str:
    """The form in which words are compared: without case and typographic variants."""
    return unicodedata.normalize("NFKC", text).casefold()


def occurrences(text: str, keyword: str) -> int:
    """The number of occurrences of the keyword as a whole word, or words, ignoring case.

    Ideographs and kana have no word boundaries.
    """
    bare = " ".join(folded(keyword).split())
    if not bare:
        raise ValueError("a keyword must not be empty")
    letter = rf"[^\W_{CJK}]"
    before = rf"(?<!{letter})(?<![{MARKS}])" if re.match(letter, bare) else ""
    after = rf"(?!{letter}|[{MARKS}])" if re.search(rf"(?:{letter}|[{MARKS}])\Z", bare) else ""
    pattern = re.escape(bare).replace(r"\ ", r"\s+")
    return len(re.findall(f"{before}{pattern}{after}", folded(text)))


def same_words(a: str, b: str) -> bool:
    """Whether two texts differ at most in case, punctuation and spaces."""
    first, second = words(folded(a)), words(folded(b))
    return first == second if first or second else same(a, b)


def same(a: str, b: str) -> bool:
    """Equality that ignores case and surrounding spaces."""
    return a.strip().casefold() == b.strip().casefold()


def opening_word(text: str) -> str:
    """The first word in lower case, "" without words."""
    match = _WORD.search(text)
    return match.group().lower() if match else ""


def closing_word(text: str) -> str:
    """The last word in lower case, "" without words."""
    all_words = words(text)
    return all_words[-1].lower() if all_words else ""
