"""Recorded rollouts judged anew, by another verifier or by today's version of the same one.

What was recorded is never touched: new verdicts lie in a folder of their own, a file a step, and
a file that is whole and of the same rollouts is not made again.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data.problem import Problem
from pipeline.durable import write_atomically
from pipeline.lineage import file_hash
from pipeline.rollout_file import problem_of
from verifiers.registry import Verifier
from verifiers.verdict import Verdict

JudgeAll = Callable[[Sequence[tuple[Problem, str]]], Sequence[Verdict]]
Row = Mapping[str, Any]

OWN = "accuracy"  # the component that a problem's own verifier judges, in every stage
SOURCE = b"rollouts_sha256"  # in the file's metadata: what its verdicts are about
_READ = ("group", "problem_id", "prompt", "verifier", "reference", "facts", "response", "advantage")
_OLD = {"reward": "score", "status": "status", "answer": "answer", "detail": "detail"}
_NEW = {
    "score": pa.float64(),  # null on "error", and where nothing was judged
    "status": pa.string(),  # null where nothing was judged
    "answer": pa.string(),
    "detail": pa.string(),
    "components": pa.string(),  # JSON
    "exec_s": pa.float64(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which verifier judges what anew. `version` is its fingerprint: version and sources."""

    verifier: Verifier
    version: str
    component: str

    def folder(self, run: Path, stage: str) -> Path:
        """Where the new verdicts on a stage of a run lie."""
        return rescored(run) / f"{self.verifier.name}@{self.version}" / stage / self.component


def rescored(run: Path) -> Path:
    """The folder of everything that was judged anew in a run."""
    return run / "rescored"


def rescore(path: Path, target: Path, asked: Asked, judge_all: JudgeAll) -> list[dict[str, Any]]:
    """Judge the rollouts in `path` anew, unless `target` has verdicts on exactly these; one row
    each, in their order, with the old verdict as `old_score`, `old_status` and so on.

    What failed on our side is tried again. Rows that were not judged before, or whose reference
    the verifier cannot read, have no new verdict: their `status` is None.
    """
    digest = file_hash(path)
    rows = read_rows(path, asked.component)
    kept = _kept(target, digest)
    if kept is None or any(one["status"] == "error" for one in kept):
        kept = _judged(rows, asked, judge_all, kept)
        _write(target, digest, kept)
    return [row | new for row, new in zip(rows, kept, strict=True)]


def read_rows(path: Path, component: str) -> list[dict[str, Any]]:
    """What of each rollout in a file concerns one component; [] where the file lacks it."""
    file = pq.ParquetFile(path)
    if f"status/{component}" not in file.schema_arrow.names:
        return []
    rows = file.read([*_READ, *(f"{name}/{component}" for name in _OLD)]).to_pylist()
    return [
        {name: row[name] for name in _READ}
        | {f"old_{new}": row[f"{old}/{component}"] for old, new in _OLD.items()}
        for row in rows
    ]


def asked_of(row: Row, asked: Asked) -> Problem | None:
    """The problem of a row as the verifier is asked about it; None where it cannot be.

    A reference is for the problem's own verifier. Another one is given it where it has the key
    that one reads first, or where a single value stands in it, under that key.
    """
    if row["old_status"] is None:
        return None
    problem = problem_of(row)
    one = asked.verifier
    if asked.component != OWN:
        return replace(problem, verifier=one.name, reference={})
    if problem.verifier == one.name:
        return problem
    reference = _translated(problem.reference, next(iter(one.example.reference), None))
    return None if reference is None else replace(problem, verifier=one.name, reference=reference)


def _translated(reference: Row, key: str | None) -> Row | None:
    if key is None or key in reference:
        return reference if key is not None else {}
    return {key: next(iter(reference.values()))} if len(reference) == 1 else None


def _judged(
    rows: Sequence[Row], asked: Asked, judge_all: JudgeAll, kept: Sequence[Row] | None
) -> list[dict[str, Any]]:
    """New verdicts by row; equal responses of a group are judged once."""
    found = [dict.fromkeys(_NEW) for _ in rows] if kept is None else [dict(one) for one in kept]
    tasks: dict[tuple[str, str], tuple[Problem, str]] = {}
    waiting: list[tuple[int, tuple[str, str]]] = []
    for at, row in enumerate(rows):
        fresh = kept is None or kept[at]["status"] == "error"
        problem = asked_of(row, asked) if fresh else None
        if problem is not None:
            alike = row["group"], row["response"]
            tasks[alike] = (problem, row["response"])
            waiting.append((at, alike))
    verdicts = dict(zip(tasks, judge_all(list(tasks.values())), strict=True)) if tasks else {}
    for at, alike in waiting:
        found[at] = _flat(verdicts[alike])
    return found


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
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def _kept(target: Path, digest: str) -> list[dict[str, Any]] | None:
    """The verdicts in a file from before, where they are on the rollouts with that hash."""
    if not target.is_file():
        return None
    table = pq.ParquetFile(target).read()
    told = table.schema.metadata or {}
    return table.to_pylist() if told.get(SOURCE) == digest.encode() else None


def _write(target: Path, digest: str, rows: Sequence[Row]) -> None:
    schema = pa.schema(_NEW, metadata={SOURCE: digest.encode()})
    table = pa.Table.from_pylist(list(rows), schema=schema)
    write_atomically(target, lambda fresh: pq.write_table(table, fresh, compression="zstd"))


def places(rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """Of each row the place of its group in the step, and its own in the group."""
    groups: dict[str, int] = {}
    counts: dict[str, int] = {}
    for row in rows:
        name = row["group"]
        groups.setdefault(name, len(groups))
        counts[name] = counts.get(name, -1) + 1
        yield groups[name], counts[name]
