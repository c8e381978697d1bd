"""Parse worked solutions into steps: what each states, whether it holds, and the result of its
check.

The inverse of `data.corpus.worked`: it parses its output and that of a model trained on it, right
or wrong.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from veriloop.data.arithmetic import Chain, parse
from veriloop.data.corpus import PHRASES

_NUMBERS = r"\d+(?:[+-]\d+)*"


def _any(phrase: str) -> str:
    """A pattern for a phrase in either language, without surrounding spaces."""
    return f"(?:{'|'.join(re.escape(getattr(p, phrase).strip()) for p in PHRASES.values())})"


_STEP = re.compile(
    rf"(?:{_any('first')}|{_any('then')})\s*(?P<said>{_NUMBERS})\s*{_any('stop')}"
    rf"(?:\s*{_any('check')}\s*(?P<check>{_NUMBERS}=\d+)\s*"
    rf"(?:(?P<right>{_any('right')})"
    rf"|{_any('wrong')}\s*(?P<mended>{_NUMBERS})\s*{_any('stop')}))?"
)


@dataclass(frozen=True, slots=True)
class WorkedStep:
    """One step of a solution, with the intermediate result before it."""

    before: Chain
    stated: Chain  # what the step states is left
    verdict: bool | None  # of its check: the step is right; None: it was not checked
    mended: Chain | None  # what is left according to a check that found it wrong

    @property
    def holds(self) -> bool:
        return self.stated == _after(self.before)

    @property
    def mends(self) -> bool:
        """Whether a wrong step was detected and corrected."""
        return not self.holds and self.mended is not None and self.mended == _after(self.before)


def worked_steps(expression: str, text: str) -> Iterator[WorkedStep]:
    """The steps that `text` takes from `expression` (`8+7-5`), in order."""
    before = parse(expression)
    for match in _STEP.finditer(text):
        stated = parse(match["said"])
        mended = parse(match["mended"]) if match["mended"] else None
        verdict = None if match["check"] is None else mended is None
        yield WorkedStep(before, stated, verdict, mended)
        before = stated if mended is None else mended


def _after(before: Chain) -> Chain | None:
    return before.step() if before.rest else None
