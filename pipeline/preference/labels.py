"""Pairs out of sampled answers: who says which is better, and which are put side by side."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data.preference_ids import Ids
from pipeline.durable import write_atomically
from pipeline.grade import Judges, grade
from pipeline.preference.examples import Example, mismatched
from pipeline.preference_config import LabelConfig
from pipeline.records import Graded, Rollout
from verifiers.verdict import Verdict

VERIFIERS = {"accuracy": None, "format": "think_format"}  # None: the problem's own verifier
Labeller = Callable[[Sequence[Rollout]], list[Graded]]


def by_verifiers(config: LabelConfig, pool: Judges) -> Labeller:
    """Rewards by rule: accuracy and format, as the recipe weighs them."""

    def reward(rollout: Rollout, verdicts: Mapping[str, Verdict]) -> float:
        del rollout
        accuracy, layout = verdicts["accuracy"].score, verdicts["format"].score
        assert accuracy is not None and layout is not None, "a failed verifier has no reward"
        return config.accuracy * accuracy + config.format * layout

    return lambda rollouts: grade(rollouts, VERIFIERS, pool, reward)


def by_rewards(rewards: Callable[[Sequence[Ids]], Sequence[float]]) -> Labeller:
    """Rewards of a scalar head, on the ids that were sampled."""

    def label(rollouts: Sequence[Rollout]) -> list[Graded]:
        found = rewards([ids_of(rollout) for rollout in rollouts])
        return [
            Graded(rollout=rollout, verdicts={}, reward=value)
            for rollout, value in zip(rollouts, found, strict=True)
        ]

    return label


def ids_of(rollout: Rollout) -> Ids:
    """The ids as they were sampled; an answer that was cut off has no end-of-sequence id."""
    return Ids(
        prompt=rollout.prompt_ids,
        completion=rollout.response_ids,
        segments=(0,) * len(rollout.response_ids),
    )


def pairs_of(graded: Sequence[Graded], config: LabelConfig) -> list[Example]:
    """Within each group the best beside the worst, the second best beside the second worst, and
    so on, at most `config.pairs`, while rewards differ by more than `config.gap`.

    An answer that could not be judged has no part. Equal rewards keep the order of sampling.
    """
    groups: dict[str, list[Graded]] = {}
    for one in graded:
        if one.reward is not None:
            groups.setdefault(one.rollout.group, []).append(one)
    return [pair for group in groups.values() for pair in _inwards(group, config)]


def _inwards(group: Sequence[Graded], config: LabelConfig) -> list[Example]:
    ordered = sorted(group, key=lambda one: -(one.reward or 0.0))
    found: list[Example] = []
    for i in range(min(config.pairs, len(ordered) // 2)):
        better, worse = ordered[i], ordered[-1 - i]
        gap = (better.reward or 0.0) - (worse.reward or 0.0)
        if gap > config.gap:
            answers = (ids_of(better.rollout), ids_of(worse.rollout))
            found.append(Example(answers=answers, gap=gap))
    return found


def unpaired(pairs: Sequence[Example]) -> list[Example]:
    """KTO's view of pairs: each answer by itself."""
    answers = [answer for pair in pairs for answer in pair.answers]
    return mismatched(answers, [True, False] * len(pairs))


def write_round(path: Path, examples: Sequence[Example]) -> None:
    """The examples of a sampled round, for a run that is taken up in the middle of it."""
    told = [asdict(example) for example in examples]
    write_atomically(path, lambda fresh: fresh.write_text(json.dumps(told)))


def read_round(path: Path) -> list[Example]:
    """What `write_round` wrote; sampled examples have no matches."""
    return [_example(told) for told in json.loads(path.read_text())]


def _example(told: Mapping[str, Any]) -> Example:
    first, second = (
        Ids(**{name: tuple(ids) for name, ids in answer.items()}) for answer in told["answers"]
    )
    return Example(answers=(first, second), label=told["label"], gap=told["gap"])
