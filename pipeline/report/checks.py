"""The health of a run in twelve questions, each with its rule, its number and a picture of it.

Every question is put to every stage that it concerns; a run is as healthy as its worst stage, but
for what a later stage mends on purpose.
Thirds are of a stage's steps: the last is compared with the first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.report import rules
from pipeline.report.reading import Stage
from pipeline.report.rules import Answer, Level
from pipeline.report.scan import Scan

Rule = Callable[[Stage, Scan], Answer | None]
Overall = Literal["good", "watch", "bad", "unknown"]
ORDER: Mapping[Level, int] = {"good": 1, "watch": 2, "bad": 3, "unknown": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One check."""

    id: str
    asks: str
    rule: str  # in words, with its bounds
    picture: str  # the chart or the section that shows it
    judge: Rule
    of_last: bool = False  # answered by the last stage that it concerns, not by the worst


QUESTIONS: Sequence[Question] = (
    Question(
        id="reward", asks="Is the reward rising?", judge=rules.reward, picture="reward",
        rule="last third above the first by 2 standard errors, or already at 95 % of its best; "
        "bad: below it by as much",
    ),
    Question(
        id="zero-variance", asks="Do groups still teach?", judge=rules.zero_variance,
        picture="zero-variance",
        rule="under 60 % of groups without variance in the last third; bad: 80 %, or 60 % wrong",
    ),
    Question(
        id="truncation", asks="Do answers fit?", judge=rules.truncation, picture="truncated",
        rule="under 20 % cut off in the last third; bad: 40 %",
    ),
    Question(
        id="entropy", asks="Is there entropy left?", judge=rules.entropy, picture="entropy",
        rule="last third at 10 % of the first or more; bad: under 3 %, or under 0.005 nats",
    ),
    Question(
        id="mismatch", asks="Do sampler and trainer agree?", judge=rules.mismatch,
        picture="mismatch",
        rule="mean difference under 0.01 nats and not above 3 times the first third; bad: 0.05 "
        "nats, or 10 times and over 0.001",
    ),
    Question(
        id="gradient", asks="Is the gradient calm?", judge=rules.gradient, picture="gradient",
        rule="no norm above 5 times the stage's median after the first tenth; bad: in over 2 % of "
        "steps",
    ),
    Question(
        id="errors", asks="Do the verifiers work?", judge=rules.errors, picture="verdicts",
        rule="under 0.5 % of verdicts are errors; bad: 2 %",
    ),
    Question(
        id="timeouts", asks="Do answers run in time?", judge=rules.timeouts, picture="verdicts",
        rule="under 1 % of verdicts are timeouts; bad: 5 %",
    ),
    Question(
        id="format", asks="Format without accuracy?", judge=rules.format_alone,
        picture="components",
        rule="accuracy does not fall while format rises; bad: by over 0.02 and 2 standard errors",
    ),
    Question(
        id="length", asks="Length without accuracy?", judge=rules.length_alone, picture="length",
        rule="no growth of the mean length by 20 % without 0.01 of accuracy; bad: by 50 %",
    ),
    Question(
        id="language", asks="One language?", judge=rules.language, picture="evaluations",
        of_last=True,
        rule="after the last stage at least 0.9 of the words in the question's language; bad: "
        "0.7, but for R1-Zero",
    ),
    Question(
        id="evaluation", asks="Better on held-out problems?", judge=rules.evaluation,
        picture="evaluations",
        rule="after the stage above the 95 % interval of before, or at 0.95; bad: below it",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A question with what it found."""

    question: Question
    level: Overall
    stage: str  # the one that decides
    number: str
    told: Mapping[str, Answer]  # by stage

    def as_json(self) -> dict[str, Any]:
        asked = self.question
        return {
            "id": asked.id,
            "asks": asked.asks,
            "rule": asked.rule,
            "level": self.level,
            "stage": self.stage,
            "number": self.number,
            "stages": {
                name: {"level": one.level, "number": one.number, "value": one.value}
                for name, one in self.told.items()
            },
        }


def health(stages: Sequence[tuple[Stage, Scan]]) -> list[Check]:
    """Every question, answered by the worst stage that it concerns."""
    return [_check(question, stages) for question in QUESTIONS]


def _check(question: Question, stages: Sequence[tuple[Stage, Scan]]) -> Check:
    told: dict[str, Answer] = {}
    for stage, scan in stages:
        if (answer := question.judge(stage, scan)) is not None:
            told[stage.name] = answer
    if not told:
        return Check(question=question, level="unknown", stage="", number="not recorded", told={})
    decides = [*told][-1] if question.of_last else max(told, key=lambda n: ORDER[told[n].level])
    one = told[decides]
    return Check(question=question, level=one.level, stage=decides, number=one.number, told=told)
