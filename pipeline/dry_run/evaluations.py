"""Which questions the evaluations of a recipe ask, and how many."""

from collections.abc import Mapping
from dataclasses import dataclass

from veriloop.data.counts import counted
from veriloop.data.problem import GENERAL
from veriloop.pipeline.config.datasets import SetConfig, gym_task, is_generated
from veriloop.pipeline.config.sections import EvaluationConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.rollouts.sources import held_out_problems, sources_of

Sets = Mapping[str, SetConfig]


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """The held-out questions of an evaluation."""

    by_source: Mapping[str, int]
    at_most: bool  # whether a source that only a run opens may have fewer

    @classmethod
    def of(cls, evaluation: EvaluationConfig, sets: Sets) -> "Questions":
        """Counts sources that can be opened offline; others are taken to have enough questions, as
        are sets that cannot be read or hold nothing out, which the checks of inputs refuse."""
        counts = {name: _count(name, evaluation, sets) for name in evaluation.sources}
        return cls(
            by_source={
                name: evaluation.problems if count is None else count
                for name, count in counts.items()
            },
            at_most=None in counts.values(),
        )

    @property
    def number(self) -> int:
        return sum(self.by_source.values())

    def __str__(self) -> str:
        names, counts = ", ".join(self.by_source), {*self.by_source.values()}
        text = counted(self.number, "held-out problem")
        if len(self.by_source) == 1:
            text = f"{text} of {names}"
        elif len(counts) == 1:
            text = f"{counts.pop():,} of each of {names} = {text}"
        else:
            each = (f"{count:,} of {name}" for name, count in self.by_source.items())
            text = f"{' + '.join(each)} = {text}"
        return f"at most {text}" if self.at_most else text


def both_ends(evaluation: EvaluationConfig, questions: Questions) -> str:
    """What is asked before and after a stage."""
    answers = counted(evaluation.samples, "sample")
    if greedy := [name for name in questions.by_source if name != GENERAL]:
        rest = f" except of {GENERAL}" if len(greedy) < len(questions.by_source) else ""
        answers = f"({answers} + 1 greedy{rest})"
    return f"{questions} x {answers} at both ends"


def with_those_between(evaluation: EvaluationConfig, sets: Sets, steps: int) -> str:
    """What is asked before and after the steps of a loop, and between them."""
    questions = Questions.of(evaluation, sets)
    ends = both_ends(evaluation, questions)
    if not evaluation.every:
        return ends
    every = counted(evaluation.every, "step")
    times = counted((steps - 1) // evaluation.every, "time")
    problems = min(evaluation.during, questions.number)
    return f"{ends}, {problems} of them x 1 sample every {every} between, {times}"


def _is_at_hand(name: str, sets: Sets) -> bool:
    """Whether a source can be opened at once: without the hub, and without reasoning-gym, which
    takes seconds to import."""
    if is_generated(name, sets):
        return gym_task(name, sets) is None
    config = sets.get(name, SetConfig())
    against = [sets.get(other, SetConfig()) for other in config.against]
    return all(part.path for part in (config, *against))


def _count(name: str, evaluation: EvaluationConfig, sets: Sets) -> int | None:
    if not _is_at_hand(name, sets):
        return None
    alone = evaluation.model_copy(update={"sources": [name]})
    try:
        return len(held_out_problems(alone, sources_of([name], sets)[0]))
    except RecipeError:  # told by the checks of inputs, with its cause
        return None
