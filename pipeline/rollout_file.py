"""The rollouts of one step as a Parquet file: one row a rollout, one column set a verifier."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from data.problem import Problem
from pipeline.durable import write_atomically
from verifiers.verdict import Verdict

if TYPE_CHECKING:  # who only reads rollouts needs no torch
    from pipeline.records import Graded
    from pipeline.token_trace import SeenTokens

_ROW = {
    "step": pa.int64(),  # optimizer step the rollout was sampled for
    "group": pa.string(),
    "problem_id": pa.string(),
    "prompt": pa.string(),
    "verifier": pa.string(),
    "reference": pa.string(),  # JSON
    "facts": pa.string(),  # JSON
    "prompt_ids": pa.list_(pa.int32()),
    "response_ids": pa.list_(pa.int32()),
    "logp": pa.list_(pa.float32()),  # nats, one per response id
    "response": pa.string(),
    "finish": pa.string(),
    "temperature": pa.float64(),
    "policy_version": pa.int64(),
    "reward": pa.float64(),  # null when a verifier failed
    "advantage": pa.float64(),  # null when the rollout was not trained on
    "queue_s": pa.float64(),  # seconds, summed over the verifiers
    "exec_s": pa.float64(),
    # as the update saw them before its step, one per response id; null where not trained on
    "trainer_logp": pa.list_(pa.float32()),  # nats
    "entropy": pa.list_(pa.float32()),  # nats
    "token_advantage": pa.list_(pa.float32()),
    "clipped": pa.list_(pa.int8()),  # -1 at the lower bound of the ratio, 1 at the upper one
}
_VERDICT: Mapping[str, tuple[pa.DataType, Callable[[Verdict], Any]]] = {
    "reward": (pa.float64(), lambda verdict: verdict.score),  # null on "error"
    "status": (pa.string(), lambda verdict: verdict.status),
    "answer": (pa.string(), lambda verdict: _storable(verdict.answer)),
    "detail": (pa.string(), lambda verdict: _storable(verdict.detail)),
    "components": (pa.string(), lambda verdict: _json(verdict.components, "components")),
}


def write_rollouts(
    path: Path,
    step: int,
    graded: "Sequence[Graded]",
    advantages: Sequence[float | None],
    seen: "Mapping[int, SeenTokens] | None" = None,
) -> None:
    """Write one row per rollout, in order; the file appears whole or not at all.

    `advantages` has one unitless number per rollout, None where nothing was trained on; `seen`
    what the update saw of their tokens, by place. Columns
    `reward/<name>`, `status/<name>`, `answer/<name>`, `detail/<name>` and `components/<name>` hold
    each verifier's verdict and are null in rows it did not judge. Raises ValueError when the
    lengths differ, an advantage is not finite, or a problem cannot be written as JSON.
    """
    if len(advantages) != len(graded):
        raise ValueError(f"{len(advantages)} advantages for {len(graded)} rollouts: one for each")
    names = sorted({name for one in graded for name in one.verdicts})
    tokens = seen or {}
    rows = [
        _row(step, one, advantage) | _tokens(tokens.get(place)) | _verdicts(one, names)
        for place, (one, advantage) in enumerate(zip(graded, advantages, strict=True))
    ]
    judged = {f"{column}/{name}": _VERDICT[column][0] for column in _VERDICT for name in names}
    table = pa.Table.from_pylist(rows, schema=pa.schema({**_ROW, **judged}))
    write_atomically(path, lambda fresh: pq.write_table(table, fresh, compression="zstd"))


def read_rollouts(path: Path) -> list[dict[str, Any]]:
    """The rows of one file, in the order they were written; JSON columns stay text."""
    return pq.ParquetFile(path).read().to_pylist()


def problem_of(row: Mapping[str, Any]) -> Problem:
    """The problem that a row is about, as it was asked."""
    return Problem(
        id=row["problem_id"],
        prompt=row["prompt"],
        verifier=row["verifier"],
        reference=json.loads(row["reference"]),
        facts=json.loads(row["facts"]),
    )


def _row(step: int, one: "Graded", advantage: float | None) -> dict[str, Any]:
    rollout, problem = one.rollout, one.rollout.problem
    if advantage is not None and not math.isfinite(advantage):
        raise ValueError(f"advantage of a rollout of {problem.id!r} is {advantage}: not finite")
    return {
        "step": step,
        "group": rollout.group,
        "problem_id": problem.id,
        "prompt": _storable(problem.prompt),
        "verifier": problem.verifier,
        "reference": _json(problem.reference, f"reference of {problem.id!r}"),
        "facts": _json(problem.facts, f"facts of {problem.id!r}"),
        "prompt_ids": rollout.prompt_ids,
        "response_ids": rollout.response_ids,
        "logp": rollout.logp,
        "response": _storable(rollout.response),
        "finish": rollout.finish,
        "temperature": rollout.temperature,
        "policy_version": rollout.policy_version,
        "reward": one.reward,
        "advantage": advantage,
        "queue_s": sum(verdict.queue_s for verdict in one.verdicts.values()),
        "exec_s": sum(verdict.exec_s for verdict in one.verdicts.values()),
    }


def _tokens(seen: "SeenTokens | None") -> dict[str, Any]:
    if seen is None:
        return {}
    return {
        "trainer_logp": seen.logp_T.tolist(),
        "entropy": seen.entropy_T.tolist(),
        "token_advantage": seen.advantage_T.tolist(),
        "clipped": seen.clipped_T.tolist(),
    }


def _verdicts(one: "Graded", names: Sequence[str]) -> dict[str, Any]:
    return {
        f"{column}/{name}": read(one.verdicts[name]) if name in one.verdicts else None
        for column, (_, read) in _VERDICT.items()
        for name in names
    }


def _json(value: Mapping[str, Any], what: str) -> str:
    try:
        text = json.dumps(dict(value), ensure_ascii=False)
    except (TypeError, ValueError) as failure:
        raise ValueError(f"{what} cannot be written as JSON: {failure}") from failure
    return text.encode("utf-8", "backslashreplace").decode()


def _storable(text: str | None) -> str | None:
    # A verifier may hand back half a surrogate pair, which no UTF-8 file can hold.
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()
