"""How many questions the evaluations of a recipe ask."""

from collections.abc import Mapping
from dataclasses import dataclass

from veriloop.data.problem import GENERAL
from veriloop.pipeline.config.datasets import SetConfig, gym_task, is_generated
from veriloop.pipeline.config.sections import EvaluationConfig
from veriloop.pipeline.rollouts.sources import held_out_problems, sources_of

Sets = Mapping[str, SetConfig]


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """The held-out questions of an evaluation."""

    by_source: Mapping[str, int]
    at_most: bool  # whether a source that only a run opens may have fewer

    @classmethod
    def of(cls, evaluation: EvaluationConfig, sets: Sets) -> "Questions":
        """Counts sources that can be opened offline; others are taken to have enough questions.

        Raises RecipeError for a file that cannot be read or holds no question out.
        """
        names = evaluation.sources
        opened = {name: _count(name, evaluation, sets) for name in names if _is_at_hand(name, sets)}
        by_source = {name: opened.get(name, evaluation.problems) for name in names}
        return cls(by_source=by_source, at_most=len(opened) < len(by_source))

    @property
    def number(self) -> int:
        return sum(self.by_source.values())

    def __str__(self) -> str:
        counts = [f"{count:,}" for count in self.by_source.values()]
        text = f"{self.number:,}"
        if len(counts) > 1 and len({*counts}) == 1:
            text = f"{counts[0]} of each of {len(counts)} sources = {text}"
        elif len(counts) > 1:
            text = f"{' + '.join(counts)} of {len(counts)} sources = {text}"
        return f"at most {text}" if self.at_most else text


def both_ends(evaluation: EvaluationConfig, questions: Questions) -> str:
    """What is asked before and after a stage."""
    greedy = "1 greedy"
    if GENERAL in questions.by_source:
        greedy += f", none of {GENERAL}"
    answers = f"({evaluation.samples} samples + {greedy})"
    return f"{questions} held-out problems x {answers} at both ends"


def _is_at_hand(name: str, sets: Sets) -> bool:
    """Whether a source can be opened at once: without the hub, and without reasoning-gym, which
    takes seconds to import."""
    if is_generated(name, sets):
        return gym_task(name, sets) is None
    config = sets.get(name, SetConfig())
    return all(s.path for s in (config, *(sets.get(n, SetConfig()) for n in config.against)))


def _count(name: str, evaluation: EvaluationConfig, sets: Sets) -> int:
    alone = evaluation.model_copy(update={"sources": [name]})
    return len(held_out_problems(alone, sources_of([name], sets)[0]))
