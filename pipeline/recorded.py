"""Recorded rollouts as the records they were: what `pipeline.rollout_file` wrote, read back."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.failures import RecipeError
from pipeline.records import Graded, Rollout
from pipeline.rollout_file import problem_of, read_rollouts
from verifiers.verdict import Verdict

Row = Mapping[str, Any]

NEEDED = (
    "group", "problem_id", "prompt", "verifier", "reference", "facts", "prompt_ids",
    "response_ids", "logp", "response", "finish", "temperature", "policy_version", "reward",
)  # fmt: skip


def read_graded(path: Path) -> tuple[list[Graded], Sequence[Row]]:
    """The rollouts of a step in the order they were learned from, and their rows.

    Ids, log-probs (float32), verdicts and rewards are what they were; seconds are not, of which
    a file keeps sums. Raises RecipeError naming what a file lacks, or a rollout that is broken.
    """
    rows = read_rollouts(path)
    lacks = [name for name in NEEDED if rows and name not in rows[0]]
    if lacks or not rows:
        what = f"lacks {', '.join(lacks)}" if lacks else "holds no rollout"
        raise RecipeError(f"{path} {what}: what was not recorded cannot be learned from again")
    return [_graded(path, at, row) for at, row in enumerate(rows)], rows


def _graded(path: Path, at: int, row: Row) -> Graded:
    prompt, response, logp = (tuple(row[name] or ()) for name in NEEDED[6:9])
    if not prompt or len(logp) != len(response) or None in logp:
        raise RecipeError(
            f"{path}, rollout {at}: {len(prompt)} prompt ids, {len(response)} response ids and "
            f"{len(logp)} log-probs; each response id needs the one it was sampled with"
        )
    rollout = Rollout(
        group=row["group"],
        problem=problem_of(row),
        prompt_ids=prompt,
        response_ids=response,
        logp=logp,
        response=row["response"],
        finish=row["finish"],
        temperature=row["temperature"],
        policy_version=row["policy_version"],
    )
    return Graded(rollout=rollout, verdicts=_verdicts(row), reward=row["reward"])


def _verdicts(row: Row) -> dict[str, Verdict]:
    names = [key.removeprefix("status/") for key in row if key.startswith("status/")]
    return {
        name: Verdict(
            score=row[f"reward/{name}"],
            status=row[f"status/{name}"],
            answer=row[f"answer/{name}"],
            detail=row[f"detail/{name}"],
            components=json.loads(row[f"components/{name}"]),
        )
        for name in names
        if row[f"status/{name}"] is not None
    }


def drift(logp_N: Sequence[Sequence[float]], sampled_N: Sequence[Sequence[float]]) -> list[float]:
    """Nats by token that a policy's log-probs lie above those it was sampled with."""
    pairs = zip(logp_N, sampled_N, strict=True)
    return [a - b for one, other in pairs for a, b in zip(one, other, strict=True)]
