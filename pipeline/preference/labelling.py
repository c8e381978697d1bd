"""Preference pairs from sampled rollouts: rewards by verifiers or a reward model, then pairing."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from veriloop.data.preference_ids import EncodedAnswer
from veriloop.pipeline.config.preference import LabelConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.preference.examples import Example
from veriloop.pipeline.rollouts.grade import Judges, grade
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.json_file import RESTORE
from veriloop.pipeline.types import Graded, Rollout
from veriloop.verifiers.verdict import Verdict

VERIFIERS = {"accuracy": None, "format": "think_format"}  # None: the problem's own verifier
Labeller = Callable[[Sequence[Rollout]], list[Graded]]


def by_verifiers(config: LabelConfig, pool: Judges) -> Labeller:
    """Rewards by rules: accuracy and format, weighted by the recipe."""

    def reward(rollout: Rollout, verdicts: Mapping[str, Verdict]) -> float:
        del rollout
        accuracy, layout = verdicts["accuracy"].score, verdicts["format"].score
        assert accuracy is not None and layout is not None, "a failed verifier has no reward"
        return config.accuracy * accuracy + config.format * layout

    return lambda rollouts: grade(rollouts, VERIFIERS, pool, reward)


def by_rewards(rewards: Callable[[Sequence[EncodedAnswer]], Sequence[float]]) -> Labeller:
    """Rewards of a scalar head, on the sampled ids."""

    def label(rollouts: Sequence[Rollout]) -> list[Graded]:
        values = rewards([ids_of(rollout) for rollout in rollouts])
        return [
            Graded(rollout=rollout, verdicts={}, reward=value)
            for rollout, value in zip(rollouts, values, strict=True)
        ]

    return label


def ids_of(rollout: Rollout) -> EncodedAnswer:
    """The ids as sampled; an answer cut off at the length limit has no EOS."""
    return EncodedAnswer(
        prompt=rollout.prompt_ids,
        completion=rollout.response_ids,
        segments=(0,) * len(rollout.response_ids),
    )


def pairs_of(graded: Sequence[Graded], config: LabelConfig) -> list[Example]:
    """Pair the best with the worst rollout of each group, the second best with the second worst.

    And so on, up to `config.pairs` per group, if the rewards differ by more than `config.gap`.
    Rollouts without a reward are skipped; equal rewards keep the order of sampling.
    """
    groups: dict[str, list[tuple[float, Rollout]]] = {}
    for item in graded:
        if item.reward is not None:
            groups.setdefault(item.rollout.group, []).append((item.reward, item.rollout))
    pairs: list[Example] = []
    for group in groups.values():
        ranked = sorted(group, key=lambda scored: -scored[0])
        for i in range(min(config.pairs, len(ranked) // 2)):
            (best, better), (worst, worse) = ranked[i], ranked[-1 - i]
            if best - worst > config.gap:
                pairs.append(Example(answers=(ids_of(better), ids_of(worse)), gap=best - worst))
    return pairs


def write_round(path: Path, examples: Sequence[Example]) -> None:
    """Write the examples of a sampled round, for a run that resumes within it."""
    rows = [asdict(example) for example in examples]
    write_atomically(path, lambda fresh: fresh.write_text(json.dumps(rows)))


def read_round(path: Path) -> list[Example]:
    """The examples of `write_round`; sampled ones have no matches."""
    try:
        return [_example(row) for row in json.loads(path.read_bytes())]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as failure:
        raise RecipeError(
            f"{path} holds no sampled examples ({type(failure).__name__}: {failure}). {RESTORE}"
        ) from failure


def _example(row: Mapping[str, Any]) -> Example:
    first, second = (
        EncodedAnswer(**{field: tuple(ids) for field, ids in answer.items()})
        for answer in row["answers"]
    )
    return Example(answers=(first, second), label=row["label"], gap=row["gap"])
