"""What a response does beyond plain steps, read off its text: it checks, and it corrects itself."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

# The words that DeepSeek-R1's Figure 9 counts, and Chinese ones that say the same.
ENGLISH = ("wait", "mistake", "however", "but", "retry", "error", "verify", "wrong", "evaluate",
           "check")  # fmt: skip
CHINESE = (
    "等等",
    "等一下",
    "错",
    "但",
    "然而",
    "不过",
    "重试",
    "重新",
    "验证",
    "检验",
    "检查",
    "评估",
)

_WORD = re.compile(rf"\b(?:{'|'.join(ENGLISH)})\b|{'|'.join(CHINESE)}", re.IGNORECASE)
_CHECK = re.compile(r"\b(?:check|verify)\b|验证|检验|检查", re.IGNORECASE)
_NUMBERS = r"\d+(?:[+-]\d+)*"
_CORRECTION = re.compile(
    rf"(?P<said>{_NUMBERS})\s*[.。][^.。]*?(?:wrong|错)\s*[.。]\s*(?:wait|等等)\s*[,，]\s*"
    rf"(?P<instead>{_NUMBERS})",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Reflection:
    verifies: bool  # says that it checks something
    corrects: bool  # calls a value wrong and goes on with another
    words: int  # reflective words


def reflection(response: str) -> Reflection:
    """What one response does. Words count whole in English ("button" holds no "but")."""
    corrections = _CORRECTION.finditer(response)
    return Reflection(
        verifies=_CHECK.search(response) is not None,
        corrects=any(one["said"] != one["instead"] for one in corrections),
        words=len(_WORD.findall(response)),
    )


def reflections(responses: Iterable[str]) -> dict[str, float]:
    """Shares of the responses, one at least, that verify and that correct; mean words of each."""
    found = [reflection(response) for response in responses]
    return {
        "reflection/verify": fmean(one.verifies for one in found),
        "reflection/correct": fmean(one.corrects for one in found),
        "reflection/words": fmean(one.words for one in found),
    }
