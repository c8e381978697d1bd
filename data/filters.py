"""The filters of the paper that select sampled answers for training; every drop is counted.

The filters run in this order, and a sample is counted under the first one that drops it:

| reason | what is dropped |
| --- | --- |
| unjudged | the verifier failed |
| wrong | the answer is wrong |
| unreadable | broken tags, or thinking without words |
| mixed_language | too few of the thinking's words in the question's language |
| short | too few words of thinking |
| long_paragraph | a paragraph with too many words |
| code_block | a fenced code block in the thinking; an answer may be a program |
| repetition | too few different n-grams |
| too_long | too many tokens, or cut off |
| duplicate | the same question and response as an earlier sample |
| contaminated | question or response overlaps an evaluation text |

`surplus` counts the answers that pass every filter beyond the number kept per question.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from veriloop.data.decontaminate import Overlap, words

_FENCE = re.compile(r"^\s*(?:```|~~~)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An answer and its measurements."""

    question: str  # the user's prompt
    response: str
    thinking: str
    tokens: int
    cut_off: bool
    right: bool | None  # by the problem's verifier; None if that failed
    readable: bool  # one thinking block, then an answer
    words: int  # of the thinking, without formulas and code
    consistency: float | None  # share of words in the question's language; None: not checked
    distinct: float  # share of different n-grams in the response
    facts: Mapping[str, Any] = field(default_factory=dict)  # recorded in the row: problem, ...


Filter = tuple[str, Callable[[Sample], bool]]  # reason, predicate that drops a sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Thresholds of the filters; 0 disables one."""

    min_words: int = 0  # of thinking
    consistency: float = 0.9
    max_paragraph: int = 0  # words
    code_blocks: bool = True  # drop them
    distinct: float = 0.3
    max_tokens: int = 0


def filters(limits: Limits, held_out: Overlap) -> tuple[Filter, ...]:
    """The table above. Duplicates are those of samples that these filters have checked."""
    seen: set[tuple[str, str]] = set()

    def is_duplicate(sample: Sample) -> bool:
        key = (sample.question, " ".join(sample.response.split()))
        duplicate = key in seen
        seen.add(key)
        return duplicate

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
        ("code_block", lambda s: limits.code_blocks and bool(_FENCE.search(s.thinking))),
        ("repetition", lambda s: s.distinct < limits.distinct),
        ("too_long", lambda s: s.cut_off or 0 < limits.max_tokens < s.tokens),
        ("duplicate", is_duplicate),
        ("contaminated", lambda s: held_out.overlaps(s.question, s.response)),
    )


def longest_paragraph(text: str) -> int:
    """Number of words in the longest paragraph; blank lines separate paragraphs."""
    return max(len(words(part)) for part in re.split(r"\n\s*\n", text))


class SampleFilter:
    """Returns the samples that pass every filter and counts the others by reason."""

    def __init__(self, chosen: Sequence[Filter], keep: int) -> None:
        """`keep`: maximum samples per question; those with the longest thinking are kept."""
        self.filters, self.keep = tuple(chosen), keep
        self.dropped: Counter[str] = Counter()

    def __call__(self, samples: Iterable[Sample]) -> list[Sample]:
        """The passing samples by question. All samples of one question must be in one call."""
        passed: dict[str, list[Sample]] = {}
        for sample in samples:
            reason = next((name for name, drops in self.filters if drops(sample)), None)
            if reason is None:
                passed.setdefault(sample.question, []).append(sample)
            else:
                self.dropped[reason] += 1
        kept: list[Sample] = []
        for samples_of_question in passed.values():
            kept += sorted(samples_of_question, key=lambda s: -s.words)[: self.keep]
            self.dropped["surplus"] += max(0, len(samples_of_question) - self.keep)
        return kept
