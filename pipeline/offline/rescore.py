"""Re-judge recorded rollouts, with another verifier or another version of the same one.

Recorded files are never modified. New verdicts are written to a separate folder, one Parquet file
per step. A complete file whose verdicts are about the same rollouts is not judged again.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from veriloop.data.problem import Problem
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.lineage import file_hash
from veriloop.pipeline.runs.rollout_file import problem_of, reading
from veriloop.verifiers.registry import Verifier
from veriloop.verifiers.text.length import with_tokens
from veriloop.verifiers.verdict import Verdict

JudgeAll = Callable[[Sequence[tuple[Problem, str]]], Sequence[Verdict]]
Row = Mapping[str, Any]

ACCURACY = "accuracy"  # the component that a problem's own verifier judges, in every stage
# Metadata keys: the hash of the rollout file that was judged, and the sandbox and limits.
SOURCE, CONDITIONS = b"rollouts_sha256", b"conditions"
_READ = ("group", "problem_id", "prompt", "verifier", "reference", "facts", "response", "advantage")
_OLD = {"reward": "score", "status": "status", "answer": "answer", "detail": "detail"}
_NEW = {
    "score": pa.float64(),  # null if status is "error", and for rows that were not judged
    "status": pa.string(),  # null for rows that were not judged
    "answer": pa.string(),
    "detail": pa.string(),
    "components": pa.string(),  # JSON
    "exec_s": pa.float64(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudgement:
    """A verifier and the reward component that it judges again."""

    verifier: Verifier
    version: str  # fingerprint: the verifier's version and the hash of its sources
    component: str
    reference: Row = field(default_factory=dict)  # of the component's own; not of ACCURACY
    conditions: Row = field(default_factory=dict)  # sandbox and limits; JSON values

    def folder(self, run: Path, stage: str) -> Path:
        """Folder of the new verdicts for a stage of a run."""
        return rescored(run) / f"{self.verifier.name}@{self.version}" / stage / self.component


def rescored(run: Path) -> Path:
    """Folder of all new verdicts for a run."""
    return run / "rescored"


def rescore(
    path: Path, target: Path, rejudgement: Rejudgement, judge_all: JudgeAll
) -> list[dict[str, Any]]:
    """Judge the rollouts in `path`, unless `target` already holds verdicts on the same file, under
    the same conditions.

    Returns one row per rollout in file order, with the recorded verdict as `old_score`,
    `old_status` and so on. Infrastructure failures (status "error") are judged again. `status` is
    None for rows without a recorded verdict and for references that the verifier cannot read.
    """
    conditions = json.dumps(dict(rejudgement.conditions), sort_keys=True)
    metadata = {SOURCE: file_hash(path).encode(), CONDITIONS: conditions.encode()}
    rows = read_rows(path, rejudgement.component)
    verdicts = _read_verdicts(target, metadata)
    if verdicts is None or any(verdict["status"] == "error" for verdict in verdicts):
        verdicts = _judge(rows, rejudgement, judge_all, verdicts)
        schema = pa.schema(_NEW, metadata=metadata)
        table = pa.Table.from_pylist(verdicts, schema=schema)
        write_atomically(target, lambda fresh: pq.write_table(table, fresh, compression="zstd"))
    return [row | verdict for row, verdict in zip(rows, verdicts, strict=True)]


def read_rows(path: Path, component: str) -> list[dict[str, Any]]:
    """Columns of each rollout that concern one component; [] if the file lacks the component."""
    with reading(path):
        file = pq.ParquetFile(path)
        if f"status/{component}" not in file.schema_arrow.names:
            return []
        rows = file.read([*_READ, *(f"{name}/{component}" for name in _OLD)]).to_pylist()
        ids = file.read(["response_ids"]).column(0)
        lengths = pc.call_function("list_value_length", [ids]).to_pylist()
    return [
        {name: row[name] for name in _READ}
        | {f"old_{new}": row[f"{old}/{component}"] for old, new in _OLD.items()}
        | {"response_tokens": length}
        for row, length in zip(rows, lengths, strict=True)
    ]


def problem_for(row: Row, rejudgement: Rejudgement) -> Problem | None:
    """The row's problem as the new verifier needs it, with the length of the response if it asks
    for that; None if it cannot judge the row.

    A reference is written for the problem's own verifier. Another verifier receives it if the
    reference has the first key of that verifier's example, or if it has a single value, which is
    then passed under that key.
    """
    if row["old_status"] is None:
        return None
    problem = _translated_problem(row, rejudgement)
    return None if problem is None else with_tokens(problem, lambda: row["response_tokens"])


def _translated_problem(row: Row, rejudgement: Rejudgement) -> Problem | None:
    problem = problem_of(row)
    verifier = rejudgement.verifier
    if rejudgement.component != ACCURACY:
        return replace(problem, verifier=verifier.name, reference=rejudgement.reference)
    if problem.verifier == verifier.name:
        return problem
    key = next(iter(verifier.example.reference), None)
    reference = _translated(problem.reference, key)
    if reference is None:
        return None
    return replace(problem, verifier=verifier.name, reference=reference)


def _translated(reference: Row, key: str | None) -> Row | None:
    if key is None:
        return {}
    if key in reference:
        return reference
    return {key: next(iter(reference.values()))} if len(reference) == 1 else None


def _judge(
    rows: Sequence[Row],
    rejudgement: Rejudgement,
    judge_all: JudgeAll,
    earlier: Sequence[Row] | None,
) -> list[dict[str, Any]]:
    """New verdicts by row. Equal responses of a group are judged once."""
    verdicts = [dict(row) for row in earlier or [dict.fromkeys(_NEW) for _ in rows]]
    tasks: dict[tuple[Any, ...], tuple[Problem, str]] = {}  # by what decides a verdict
    pending: list[tuple[int, tuple[Any, ...]]] = []
    for i, row in enumerate(rows):
        if earlier is not None and earlier[i]["status"] != "error":
            continue
        problem = problem_for(row, rejudgement)
        if problem is not None:
            key = row["group"], row["response"], problem.facts.get("response_tokens")
            tasks[key] = (problem, row["response"])
            pending.append((i, key))
    judged = dict(zip(tasks, judge_all(list(tasks.values())), strict=True)) if tasks else {}
    for i, key in pending:
        verdicts[i] = _flat(judged[key])
    return verdicts


def _flat(verdict: Verdict) -> dict[str, Any]:
    return {
        "score": verdict.score,
        "status": verdict.status,
        "answer": _storable(verdict.answer),
        "detail": _storable(verdict.detail),
        "components": json.dumps(dict(verdict.components)),
        "exec_s": verdict.exec_s,
    }


def _storable(text: str | None) -> str | None:
    # Answers may hold lone surrogates, which Parquet strings cannot.
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def _read_verdicts(target: Path, metadata: Mapping[bytes, bytes]) -> list[dict[str, Any]] | None:
    """Verdicts in an existing file if its metadata say the same."""
    if not target.is_file():
        return None
    with reading(target):
        table = pq.ParquetFile(target).read()
    written = table.schema.metadata or {}
    same = all(written.get(key) == value for key, value in metadata.items())
    return table.to_pylist() if same else None


def positions(rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """(index of its group in the step, index within the group) of each row."""
    groups: dict[str, int] = {}
    counts: dict[str, int] = {}
    for row in rows:
        name = row["group"]
        groups.setdefault(name, len(groups))
        counts[name] = counts.get(name, -1) + 1
        yield groups[name], counts[name]
