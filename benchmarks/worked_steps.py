"""Work read back into its steps: what each states, whether that holds, and what a check made of it.

The inverse of `data.corpus.worked`: it reads what that writes, and what a model that has learned
from it writes, right or wrong.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from veriloop.data.arithmetic import Chain, parse
from veriloop.data.corpus import PHRASES

_NUMBERS = r"\d+(?:[+-]\d+)*"


def _any(phrase: str) -> str:
    """Either language's wording of one of the phrases, its spaces at the ends left out."""
    return f"(?:{'|'.join(re.escape(getattr(p, phrase).strip()) for p in PHRASES.values())})"


_STEP = re.compile(
    rf"(?:{_any('first')}|{_any('then')})\s*(?P<said>{_NUMBERS})\s*{_any('stop')}"
    rf"(?:\s*{_any('check')}\s*(?P<check>{_NUMBERS}=\d+)\s*"
    rf"(?:(?P<right>{_any('right')})"
    rf"|{_any('wrong')}\s*(?P<mended>{_NUMBERS})\s*{_any('stop')}))?"
)


@dataclass(frozen=True, slots=True)
class WorkedStep:
    """One step of some work, by what the work before it had come to."""

    before: Chain
    said: Chain  # what the step states is left
    verdict: bool | None  # of its check: the step is right; None: it was not checked
    mended: Chain | None  # what is left according to a check that found it wrong

    @property
    def holds(self) -> bool:
        return self.said == _after(self.before)

    @property
    def mends(self) -> bool:
        """Whether a wrong step was found out and put right."""
        return not self.holds and self.mended is not None and self.mended == _after(self.before)


def worked_steps(expression: str, text: str) -> Iterator[WorkedStep]:
    """The steps that `text` takes from `expression` (`8+7-5`), in order."""
    before = parse(expression)
    for found in _STEP.finditer(text):
        said = parse(found["said"])
        mended = parse(found["mended"]) if found["mended"] else None
        verdict = None if found["check"] is None else mended is None
        yield WorkedStep(before, said, verdict, mended)
        before = said if mended is None else mended


def _after(before: Chain) -> Chain | None:
    return before.step() if before.rest else None
