"""Preference pairs from sampled rollouts: rewards by verifiers, a reward model or a judge, then
pairing."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from veriloop.data.preference_ids import EncodedAnswer
from veriloop.pipeline.config.preference import LabelConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.preference.examples import Example
from veriloop.pipeline.rollouts.grade import Judges, grade
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.json_file import RESTORE
from veriloop.pipeline.types import Graded, Rollout
from veriloop.verifiers.http_json import EndpointError
from veriloop.verifiers.llm_judge import RUBRIC, margin
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


def by_rewards(
    rewards: Callable[[Sequence[EncodedAnswer]], Sequence[float]],
    ids: Callable[[Rollout], EncodedAnswer] | None = None,
) -> Labeller:
    """Rewards of a scalar head, on the sampled ids or on those that `ids` returns. A response whose
    reward is not finite has none."""

    def label(rollouts: Sequence[Rollout]) -> list[Graded]:
        values = rewards([(ids or ids_of)(rollout) for rollout in rollouts])
        return [
            Graded(rollout=rollout, verdicts={}, reward=value)
            if math.isfinite(value)
            else Graded(rollout=rollout, verdicts={"reward": _not_finite(value)}, reward=None)
            for rollout, value in zip(rollouts, values, strict=True)
        ]

    return label


def _not_finite(value: float) -> Verdict:
    cause = ", as for more tokens than it has positions" if math.isnan(value) else ""
    return Verdict(score=None, status="error", detail=f"the reward model returned {value}{cause}")


def by_judge(config: LabelConfig, text: Callable[[Rollout], str]) -> Labeller:
    """Rewards by a language model that compares every two answers of a group.

    The reward of an answer is the sum of its margins over the others, divided by the size of the
    group: the least-squares fit of rewards whose differences are the margins. If a comparison
    fails, both of its answers have no reward.
    """

    def label(rollouts: Sequence[Rollout]) -> list[Graded]:
        groups: dict[str, list[int]] = {}
        for i, rollout in enumerate(rollouts):
            groups.setdefault(rollout.group, []).append(i)
        pairs = [pair for group in groups.values() for pair in combinations(group, 2)]
        sums, failures = [0.0] * len(rollouts), dict[int, str]()
        with ThreadPoolExecutor(config.workers) as executor:
            results = executor.map(
                lambda pair: _margin(rollouts[pair[0]], rollouts[pair[1]], config, text), pairs
            )
            for (i, j), result in zip(pairs, results, strict=True):
                if isinstance(result, str):
                    failures |= {i: result, j: result}
                else:
                    sums[i] += result
                    sums[j] -= result
        return [
            Graded(rollout=rollout, verdicts=_failed(failures[i]), reward=None)
            if i in failures
            else Graded(rollout=rollout, verdicts={}, reward=sums[i] / len(groups[rollout.group]))
            for i, rollout in enumerate(rollouts)
        ]

    return label


def _margin(
    first: Rollout, second: Rollout, config: LabelConfig, text: Callable[[Rollout], str]
) -> float | str:
    """The judge's margin of the first answer over the second, or why the judge failed."""
    reference = first.problem.reference
    try:
        return margin(
            reference.get("question", first.problem.prompt),
            text(first),
            text(second),
            reference.get("rubric", RUBRIC),
            queries=config.queries,
            seconds=config.seconds,
        )
    except EndpointError as failure:
        return str(failure)


def _failed(detail: str) -> dict[str, Verdict]:
    return {"judge": Verdict(score=None, status="error", detail=detail)}


def ids_of(rollout: Rollout) -> EncodedAnswer:
    """The ids as sampled; an answer cut off at the length limit has no EOS."""
    return EncodedAnswer(
        prompt=rollout.prompt_ids,
        completion=rollout.response_ids,
        segments=(0,) * len(rollout.response_ids),
    )


def pairs_of(graded: Sequence[Graded], config: LabelConfig) -> list[Example]:
    """The pairs of `ranked_pairs` that `refusal` does not refuse, as sampled ids."""
    return [
        Example(answers=(ids_of(better.rollout), ids_of(worse.rollout)), gap=gap_of(better, worse))
        for pairs in ranked_pairs(graded, config).values()
        for better, worse in pairs
        if not refusal(better, worse, config)
    ]


def ranked_pairs(
    graded: Sequence[Graded], config: LabelConfig
) -> dict[str, list[tuple[Graded, Graded]]]:
    """Pair the best with the worst rollout of each group, the second best with the second worst.

    And so on, up to `config.pairs` per group. Rollouts without a reward are skipped; equal rewards
    keep the order of sampling.
    """
    groups: dict[str, list[tuple[float, Graded]]] = {}
    for item in graded:
        scored = groups.setdefault(item.rollout.group, [])
        if item.reward is not None:
            scored.append((item.reward, item))
    pairs: dict[str, list[tuple[Graded, Graded]]] = {}
    for name, group in groups.items():
        ranked = [item for _, item in sorted(group, key=lambda scored: -scored[0])]
        count = min(config.pairs, len(ranked) // 2)
        pairs[name] = [(ranked[i], ranked[-1 - i]) for i in range(count)]
    return pairs


def gap_of(better: Graded, worse: Graded) -> float:
    """The difference of two rewards."""
    assert better.reward is not None and worse.reward is not None, "a pair has two rewards"
    return better.reward - worse.reward


def refusal(better: Graded, worse: Graded, config: LabelConfig) -> Literal["", "gap", "length"]:
    """Why a pair is left out: rewards that differ by no more than `config.gap`, or lengths by more
    than `config.length_ratio` times; "" if it is kept."""
    if gap_of(better, worse) <= config.gap:
        return "gap"
    shorter, longer = sorted(len(item.rollout.response_ids) for item in (better, worse))
    return "length" if config.length_ratio and longer > config.length_ratio * shorter else ""


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
