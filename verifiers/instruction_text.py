"""How instructions about a text count it: words, sentences, paragraphs, occurrences; and how each
instruction id finds its check."""

import inspect
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

Check = Callable[..., bool]

CHECKS: dict[str, Check] = {}  # instruction id -> check(text, **kwargs)

_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_LONGEST = 40  # characters of a word that may be an abbreviation, and a little more
_ABBREVIATIONS = re.compile(
    r"mr|mrs|ms|dr|prof|st|sr|jr|vs|inc|ltd|co|vol|e\.g|i\.e|u\.s|u\.k|p\.s|p\.p\.s|approx|gen|sen"
)
_END = re.compile(r"([.!?]+[\"'”’)\]*]*|[。！？]+[”’」』）]*)(?=\s|$|(?<=[。！？”’」』）])|-)")
_DIVIDER = re.compile(r"\s*(?<!\*)(?:\*\*\*|\* \* \*)(?!\*)\s*")


def instruction(id: str) -> Callable[[Check], Check]:
    """Register the check of one instruction id; its keyword arguments are those of the id."""

    def register(check: Check) -> Check:
        if id in CHECKS:
            raise ValueError(f"instruction {id!r} is already taken by {CHECKS[id].__name__}")
        CHECKS[id] = check
        return check

    return register


def follows(text: str, id: str, given: Mapping[str, Any]) -> bool:
    """Whether `text` follows the instruction; an empty text follows none.

    Arguments of None are not given. Raises KeyError for an unknown id with the nearest one, and
    ValueError for an argument that is missing, unknown or of no use.
    """
    if id not in CHECKS:
        close = get_close_matches(id, CHECKS, n=1)
        raise KeyError(
            f"no instruction {id!r}." + (f" Did you mean {close[0]!r}?" if close else "")
        )
    kwargs = {name: value for name, value in given.items() if value is not None}
    try:
        inspect.signature(CHECKS[id]).bind(text, **kwargs)
    except TypeError as wrong:
        raise ValueError(f"arguments of instruction {id!r}: {wrong}; got {kwargs}") from wrong
    return bool(text.strip()) and CHECKS[id](text, **kwargs)


def compared(count: int, relation: str, threshold: float) -> bool:
    """`count` against a threshold by "less than" or "at least"."""
    if relation not in ("less than", "at least"):
        raise ValueError(f"relation must be 'less than' or 'at least', got {relation!r}")
    return count < threshold if relation == "less than" else count >= threshold


def words(text: str) -> list[str]:
    """Runs of letters and digits; don't, x-ray and 3.14 are one word each."""
    return _WORD.findall(text)


def sentences(text: str) -> list[str]:
    """Sentences as they are written, stripped, closing marks included. A line break after a blank
    line ends one too; abbreviations, initials and decimal points do not."""
    found: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        start = 0
        for match in _END.finditer(block):
            last = block[max(start, match.start() - _LONGEST) : match.start()].split()
            bare = last[-1].strip("\"'(“‘*").lower() if last else ""
            if match.group(1) == "." and (_ABBREVIATIONS.fullmatch(bare) or _initial(bare)):
                continue
            found.append(block[start : match.end()].strip())
            start = match.end()
        found.append(block[start:].strip())
    return [sentence for sentence in found if words(sentence)]


def _initial(word: str) -> bool:
    return len(word) == 1 and word.isalpha() and word != "i"


def divided(text: str) -> list[str] | None:
    """Paragraphs parted by the divider ***; None when an inner one is empty."""
    return solid(_DIVIDER.split(text))


def solid(parts: list[str]) -> list[str] | None:
    """The parts that are not empty; None when an empty one is neither first nor last."""
    if any(not part.strip() for part in parts[1:-1]):
        return None
    return [part.strip() for part in parts if part.strip()]


def occurrences(text: str, keyword: str) -> int:
    """How often the keyword occurs, in other words too, whatever its case."""
    if not keyword.strip():
        raise ValueError("a keyword must not be empty")
    return text.casefold().count(keyword.strip().casefold())


def contains_word(text: str, keyword: str) -> bool:
    """Whether the keyword stands in the text as a word of its own, whatever its case."""
    bare = re.escape(keyword.strip())
    return re.search(rf"(?<!\w){bare}(?!\w)", text, re.IGNORECASE) is not None


def same(a: str, b: str) -> bool:
    """Equal but for case and the spaces around."""
    return a.strip().casefold() == b.strip().casefold()


def first_word(text: str) -> str:
    """The first word in lower case; "" without one."""
    found = _WORD.search(text)
    return found.group().lower() if found else ""


def last_word(text: str) -> str:
    """The last word in lower case; "" without one."""
    found = words(text)
    return found[-1].lower() if found else ""
