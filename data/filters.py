"""Which sampled answers are good enough to learn from: the paper's filters, each drop counted.

A sample meets the filters in this order and is counted under the first that it fails:

| reason | what is dropped |
| --- | --- |
| unjudged | the verifier failed, on our side |
| wrong | the answer is not right |
| unreadable | broken tags, or thinking without a word |
| mixed_language | too few of the thinking's words in the question's language |
| short | too few words of thinking |
| long_paragraph | a paragraph with too many words |
| code_block | a fenced block of code |
| repetition | too few different n-grams |
| too_long | too many tokens, or cut off |
| duplicate | the same question and response as an earlier sample |
| contaminated | question or response shows what is held out for evaluation |

`surplus`, last, are good answers to a question that has as many as are wanted already.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from data.decontaminate import Overlap, words

_FENCE = re.compile(r"^\s*(?:```|~~~)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An answer and what was measured of it."""

    question: str  # the user's words
    response: str
    thinking: str
    tokens: int
    cut_off: bool
    right: bool | None  # by the problem's own verifier; None where that failed
    readable: bool  # thinks once, then says something
    words: int  # of the thinking, formulas and code aside
    consistency: float | None  # share of those in the question's language; None: any will do
    distinct: float  # share of different n-grams in the response
    facts: Mapping[str, Any] = field(default_factory=dict)  # for the row: problem, source, ...


Filter = tuple[str, Callable[[Sample], bool]]  # a reason, and whether it holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the filters ask; 0 asks nothing."""

    min_words: int = 0  # of thinking
    consistency: float = 0.9
    max_paragraph: int = 0  # words
    code_blocks: bool = True  # drop them
    distinct: float = 0.3
    max_tokens: int = 0


def filters(limits: Limits, held_out: Overlap) -> tuple[Filter, ...]:
    """The table above. The duplicates are those that these very filters have seen."""
    seen: set[tuple[str, str]] = set()

    def again(sample: Sample) -> bool:
        key = (sample.question, " ".join(sample.response.split()))
        known = key in seen
        seen.add(key)
        return known

    return (
        ("unjudged", lambda s: s.right is None),
        ("wrong", lambda s: not s.right),
        ("unreadable", lambda s: not s.readable or not s.words),
        (
            "mixed_language",
            lambda s: s.consistency is not None and s.consistency < limits.consistency,
        ),
        ("short", lambda s: s.words < limits.min_words),
        ("long_paragraph", lambda s: 0 < limits.max_paragraph < longest_paragraph(s.response)),
        ("code_block", lambda s: limits.code_blocks and bool(_FENCE.search(s.response))),
        ("repetition", lambda s: s.distinct < limits.distinct),
        ("too_long", lambda s: s.cut_off or 0 < limits.max_tokens < s.tokens),
        ("duplicate", again),
        ("contaminated", lambda s: held_out.found(s.question, s.response)),
    )


def longest_paragraph(text: str) -> int:
    """Words of the longest paragraph; a blank line ends one."""
    return max(len(words(part)) for part in re.split(r"\n\s*\n", text))


class Sieve:
    """Lets samples through, or counts why not."""

    def __init__(self, chosen: Sequence[Filter], keep: int) -> None:
        """`keep`: of one question's samples, at most; those that think longest stay."""
        self.filters, self.keep = tuple(chosen), keep
        self.dropped: Counter[str] = Counter()

    def __call__(self, samples: Iterable[Sample]) -> list[Sample]:
        """The good samples, in order. All samples of one question come in one call."""
        good: dict[str, list[Sample]] = {}
        for sample in samples:
            reason = next((why for why, holds in self.filters if holds(sample)), None)
            if reason is None:
                good.setdefault(sample.question, []).append(sample)
            else:
                self.dropped[reason] += 1
        kept: list[Sample] = []
        for same in good.values():
            kept += sorted(same, key=lambda s: -s.words)[: self.keep]
            self.dropped["surplus"] += max(0, len(same) - self.keep)
        return kept
