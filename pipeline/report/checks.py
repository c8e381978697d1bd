"""Health checks of a run: twelve questions, each with a rule, a measured number and a chart.

Every question is answered for every stage that it applies to. The run's level is that of its worst
stage, except for questions about what a later stage corrects, where the last stage decides.
Rules compare the last third of a stage's steps with the first third.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from veriloop.pipeline.report import rules
from veriloop.pipeline.report.read_run import Stage
from veriloop.pipeline.report.rollout_stats import RolloutStats
from veriloop.pipeline.report.rules import Assessment, Level

Rule = Callable[[Stage, RolloutStats], Assessment | None]
Overall = Literal["good", "watch", "bad", "unknown"]
ORDER: Mapping[Level, int] = {"good": 1, "watch": 2, "bad": 3, "unknown": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One health check."""

    id: str
    asks: str
    rule: str  # in words, with its thresholds
    chart: str  # id of the chart or section that shows it
    assess: Rule
    of_last: bool = False  # the last stage decides, not the worst


QUESTIONS: Sequence[Question] = (
    Question(
        id="reward", asks="Is the reward rising?", assess=rules.reward, chart="reward",
        rule="last third above the first by 2 standard errors, or already at 95 % of its best; "
        "bad: below it by 2 standard errors",
    ),
    Question(
        id="zero-variance", asks="Do groups still give a signal?", assess=rules.zero_variance,
        chart="zero-variance",
        rule="under 60 % of groups without variance in the last third; bad: 80 %, or 60 % wrong",
    ),
    Question(
        id="truncation", asks="Do answers fit?", assess=rules.truncation, chart="truncated",
        rule="under 20 % cut off in the last third; bad: 40 %",
    ),
    Question(
        id="entropy", asks="Is any entropy left?", assess=rules.entropy, chart="entropy",
        rule="last third at least 10 % of the first; bad: under 3 %, or under 0.005 nats",
    ),
    Question(
        id="mismatch", asks="Do sampler and trainer agree?", assess=rules.mismatch,
        chart="mismatch",
        rule="mean difference under 0.01 nats and at most 3 times the first third; bad: 0.05 "
        "nats, or 10 times and over 0.001 nats",
    ),
    Question(
        id="gradient", asks="Is the gradient norm stable?", assess=rules.gradient, chart="gradient",
        rule="no norm above 5 times the stage's median after the first tenth; bad: more than one, "
        "in over 2 % of steps",
    ),
    Question(
        id="errors", asks="Do the verifiers work?", assess=rules.errors, chart="verdicts",
        rule="under 0.5 % of verdicts are errors; bad: 2 %",
    ),
    Question(
        id="timeouts", asks="Do programs finish in time?", assess=rules.timeouts, chart="verdicts",
        rule="under 1 % of verdicts are timeouts; bad: 5 %",
    ),
    Question(
        id="format", asks="Format without accuracy?", assess=rules.format_alone,
        chart="components",
        rule="accuracy does not fall while format rises; bad: by over 0.02 and 2 standard errors",
    ),
    Question(
        id="length", asks="Length without accuracy?", assess=rules.length_alone, chart="length",
        rule="mean length grows by under 20 % unless accuracy gains 0.01; bad: by 50 %",
    ),
    Question(
        id="language", asks="Is it one language?", assess=rules.language, chart="evaluations",
        of_last=True,
        rule="after the last stage at least 90 % of the words in the question's language; bad: "
        "under 70 %, except for R1-Zero",
    ),
    Question(
        id="evaluation", asks="Better on held-out problems?", assess=rules.evaluation,
        chart="evaluations",
        rule="after the stage above the 95 % interval from before it, or at least 0.95; bad: below "
        "the interval",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A question with its answer."""

    question: Question
    level: Overall
    stage: str  # that decides
    number: str
    assessments: Mapping[str, Assessment]  # by stage

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.question.id,
            "asks": self.question.asks,
            "rule": self.question.rule,
            "level": self.level,
            "stage": self.stage,
            "number": self.number,
            "stages": {
                name: {"level": stage.level, "number": stage.number, "value": stage.value}
                for name, stage in self.assessments.items()
            },
        }


def health(stages: Sequence[tuple[Stage, RolloutStats]]) -> list[Check]:
    """Every question with its answer."""
    return [_check(question, stages) for question in QUESTIONS]


def _check(question: Question, stages: Sequence[tuple[Stage, RolloutStats]]) -> Check:
    by_stage: dict[str, Assessment] = {}
    for stage, stats in stages:
        if (assessment := question.assess(stage, stats)) is not None:
            by_stage[stage.name] = assessment
    if not by_stage:
        return Check(question=question, level="unknown", stage="", number="not recorded",
                     assessments={})  # fmt: skip
    worst = max(by_stage, key=lambda name: ORDER[by_stage[name].level])
    name = [*by_stage][-1] if question.of_last else worst
    return Check(question=question, level=by_stage[name].level, stage=name,
                 number=by_stage[name].number, assessments=by_stage)  # fmt: skip
