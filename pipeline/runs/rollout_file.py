"""The rollouts of one step as a Parquet file: one row per rollout, five columns per verifier."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from veriloop.data.problem import Problem
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.json_file import RESTORE
from veriloop.verifiers.verdict import Verdict

if TYPE_CHECKING:  # reading rows needs no torch
    from veriloop.pipeline.types import Graded, ScoredSteps, SeenTokens

Row = Mapping[str, Any]

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
    "versions": pa.list_(pa.int64()),  # one per response id; null: all are `policy_version`
    "reward": pa.float64(),  # null when a verifier failed
    "advantage": pa.float64(),  # null when the rollout was not trained on
    "step_ends": pa.list_(pa.int32()),  # offsets in `response`; null without scores of steps
    "step_scores": pa.list_(pa.float64()),
    "queue_s": pa.float64(),  # seconds, summed over the verifiers
    "exec_s": pa.float64(),
    # Before the optimizer step, one per response id; null when the rollout was not trained on.
    "trainer_logp": pa.list_(pa.float32()),  # nats
    "entropy": pa.list_(pa.float32()),  # nats
    "token_advantage": pa.list_(pa.float32()),
    "clipped": pa.list_(pa.int8()),  # -1: at the lower bound of the ratio, 1: at the upper
}
_VERDICT: Mapping[str, tuple[pa.DataType, Callable[[Verdict], Any]]] = {
    "reward": (pa.float64(), lambda verdict: verdict.score),  # null on "error"
    "status": (pa.string(), lambda verdict: verdict.status),
    "answer": (pa.string(), lambda verdict: _storable(verdict.answer)),
    "detail": (pa.string(), lambda verdict: _storable(verdict.detail)),
    "components": (pa.string(), lambda verdict: _json(verdict.components, "components")),
}
_REQUIRED = (
    "group", "problem_id", "prompt", "verifier", "reference", "facts", "prompt_ids",
    "response_ids", "logp", "response", "finish", "temperature", "policy_version", "reward",
)  # fmt: skip


def write_rollouts(
    path: Path,
    step: int,
    graded: "Sequence[Graded]",
    advantages: Sequence[float | None],
    seen: "Mapping[int, SeenTokens] | None" = None,
) -> None:
    """Write one row per rollout, in order, atomically.

    `advantages` has one unitless number per rollout, None where it was not trained on; `seen` has
    the update's view of a rollout's tokens, by index. Columns `reward/<name>`, `status/<name>`,
    `answer/<name>`, `detail/<name>` and `components/<name>` hold each verifier's verdict; they are
    null in rows that it did not judge. Raises ValueError when the lengths differ, an advantage is
    not finite, or a problem cannot be written as JSON.
    """
    if len(advantages) != len(graded):
        raise ValueError(f"{len(advantages)} advantages for {len(graded)} rollouts: one for each")
    names = sorted({name for rollout in graded for name in rollout.verdicts})
    tokens = seen or {}
    rows = [
        _row(step, rollout, advantage)
        | _token_columns(tokens.get(index))
        | _verdict_columns(rollout, names)
        for index, (rollout, advantage) in enumerate(zip(graded, advantages, strict=True))
    ]
    judged = {f"{column}/{name}": _VERDICT[column][0] for column in _VERDICT for name in names}
    table = pa.Table.from_pylist(rows, schema=pa.schema({**_ROW, **judged}))
    write_atomically(path, lambda draft: pq.write_table(table, draft, compression="zstd"))


def copy_rollouts(source: Path, target: Path, step: int) -> None:
    """Write the rows of `source` as those of `step`, atomically. Raises as `read_rollouts` does."""
    with reading(source):
        table = pq.ParquetFile(source).read()
    column = table.schema.get_field_index("step")
    steps = pa.array([step] * table.num_rows, type=_ROW["step"])
    table = table.set_column(column, table.schema.field(column), steps)
    write_atomically(target, lambda draft: pq.write_table(table, draft, compression="zstd"))


def read_rollouts(path: Path) -> list[dict[str, Any]]:
    """The rows of one file, in the order they were written; JSON columns stay text.

    Raises RecipeError for a damaged file.
    """
    with reading(path):
        return pq.ParquetFile(path).read().to_pylist()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """A block that reads a Parquet file of a run. Raises RecipeError if the file is damaged."""
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as failure:
        if isinstance(failure, OSError) and failure.errno is not None:
            raise
        first = str(failure).partition("\n")[0]
        raise RecipeError(f"{path} cannot be read as Parquet ({first}). {RESTORE}") from failure


def problem_of(row: Row) -> Problem:
    """The problem of a row."""
    return Problem(
        id=row["problem_id"],
        prompt=row["prompt"],
        verifier=row["verifier"],
        reference=json.loads(row["reference"]),
        facts=json.loads(row["facts"]),
    )


def _row(step: int, graded: "Graded", advantage: float | None) -> dict[str, Any]:
    rollout, problem = graded.rollout, graded.rollout.problem
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
        "versions": rollout.versions,
        "reward": graded.reward,
        "advantage": advantage,
        "step_ends": None if graded.steps is None else [end for end, _ in graded.steps],
        "step_scores": None if graded.steps is None else [score for _, score in graded.steps],
        "queue_s": sum(verdict.queue_s for verdict in graded.verdicts.values()),
        "exec_s": sum(verdict.exec_s for verdict in graded.verdicts.values()),
    }


def _token_columns(seen: "SeenTokens | None") -> dict[str, Any]:
    if seen is None:
        return {}
    return {
        "trainer_logp": seen.logp_T.tolist(),
        "entropy": seen.entropy_T.tolist(),
        "token_advantage": seen.advantage_T.tolist(),
        "clipped": seen.clipped_T.tolist(),
    }


def _verdict_columns(graded: "Graded", names: Sequence[str]) -> dict[str, Any]:
    return {
        f"{column}/{name}": read(graded.verdicts[name]) if name in graded.verdicts else None
        for column, (_, read) in _VERDICT.items()
        for name in names
    }


def _json(value: Mapping[str, Any], name: str) -> str:
    try:
        text = json.dumps(dict(value), ensure_ascii=False)
    except (TypeError, ValueError) as failure:
        raise ValueError(f"{name} cannot be written as JSON: {failure}") from failure
    return text.encode("utf-8", "backslashreplace").decode()


def _storable(text: str | None) -> str | None:
    # A verifier may return half a surrogate pair, which UTF-8 cannot encode.
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def read_graded(path: Path) -> "tuple[list[Graded], Sequence[Row]]":
    """The rollouts of a step in training order, and their rows.

    Ids, log-probs (float32), verdicts and rewards are exact; the verdicts' seconds are not
    restored, as a file has only their sums. Raises RecipeError naming the missing columns, or the
    index of a rollout whose lengths do not agree.
    """
    rows = read_rollouts(path)
    if not rows:
        raise RecipeError(f"{path} holds no rollout")
    if missing := [name for name in _REQUIRED if name not in rows[0]]:
        raise RecipeError(f"{path} lacks {', '.join(missing)}: it cannot be trained on again")
    return [_graded(path, index, row) for index, row in enumerate(rows)], rows


def _graded(path: Path, index: int, row: Row) -> "Graded":
    from veriloop.pipeline.types import Graded, Rollout

    prompt, response, logp = (
        tuple(row[name] or ()) for name in ("prompt_ids", "response_ids", "logp")
    )
    if not prompt or len(logp) != len(response) or None in logp:
        raise RecipeError(
            f"{path}, rollout {index}: {len(prompt)} prompt ids, {len(response)} response ids and "
            f"{len(logp)} log-probs; each response id needs the log-prob it was sampled with"
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
        versions=None if row.get("versions") is None else tuple(row["versions"]),
    )
    return Graded(rollout=rollout, verdicts=_verdicts(row), reward=row["reward"], steps=_steps(row))


def _steps(row: Row) -> "ScoredSteps | None":
    if row.get("step_ends") is None:  # not in files of earlier versions
        return None
    return tuple(zip(row["step_ends"], row["step_scores"], strict=True))


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
    """A policy's log-probs minus those of sampling, nats, of every token of all rollouts."""
    pairs = zip(logp_N, sampled_N, strict=True)
    return [a - b for logp, sampled in pairs for a, b in zip(logp, sampled, strict=True)]
