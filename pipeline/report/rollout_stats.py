"""Statistics over all rollouts of a stage, in one pass: groups, verdicts, latencies, alarms.

Only scalar columns are read, one file at a time. Tokens are read later, for the few answers that
the page shows (`veriloop.pipeline.report.sample`).
"""

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from veriloop.data.problem import Problem
from veriloop.data.sources import source_of
from veriloop.pipeline.report.reward_hacks import RewardHackAlarms
from veriloop.pipeline.runs.rollout_file import reading
from veriloop.verifiers import verdict

Row = Mapping[str, Any]
SCALARS = ("group", "problem_id", "prompt", "verifier", "reference", "facts", "response", "finish",
           "reward", "advantage", "queue_s", "exec_s", "step_ends", "step_scores")  # fmt: skip
JUDGED = ("reward/", "status/", "answer/", "detail/", "components/")
SLOWEST = 10
MAX_TEXT = 200  # characters shown of a slow answer or a reason
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")  # details that differ only in numbers count as one


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The answers to one prompt of a step."""

    step: int
    index: int  # among the groups of its step, from 0
    problem: str
    source: str
    rows: tuple[int, ...]  # row numbers of its answers in the file
    mean: float | None  # reward; None if no answer has one
    spread: float  # population std of the rewards
    errors: int  # answers without a reward, because a verifier failed

    @property
    def key(self) -> tuple[str, str]:
        """What tells problems of a stage apart: sources may share ids."""
        return self.source, self.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """Statistics of a step that metrics.jsonl lacks."""

    step: int
    length_p50: float  # tokens
    length_p95: float
    length_right: float | None
    length_wrong: float | None
    reward_whole: float | None  # mean over complete answers; None if none was cut off
    advantage_p5: float | None
    advantage_p95: float | None


@dataclass(slots=True, kw_only=True)
class RolloutStats:
    """Statistics over the rollouts of a stage."""

    groups: list[Group] = field(default_factory=list)
    steps: list[StepSummary] = field(default_factory=list)
    verdicts: dict[str, dict[int, Counter[str]]] = field(
        default_factory=dict
    )  # by verifier and step
    queue_s: array = field(default_factory=lambda: array("f"))
    exec_s: array = field(default_factory=lambda: array("f"))
    slowest: list[dict[str, Any]] = field(default_factory=list)
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    hacks: RewardHackAlarms = field(default_factory=RewardHackAlarms)
    rollouts: int = 0


def collect_stats(files: Sequence[tuple[int, Path]]) -> RolloutStats:
    """Statistics over every rollout of `files`, which are (step, file)."""
    stats = RolloutStats()
    for step, path in files:
        rows = scalar_rows(path)
        if rows:
            _add_step(stats, step, rows)
    return stats


def scalar_rows(path: Path, only: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """The rows of a file, or `only` those with some row numbers, without tokens. `length` is the
    number of response tokens."""
    with reading(path):
        file = pq.ParquetFile(path)
        columns = [n for n in file.schema_arrow.names if n in SCALARS or n.startswith(JUDGED)]
        table = file.read([*columns, "response_ids"])
    if only is not None:
        table = select_rows(table, only)
    lengths = pc.call_function("list_value_length", [table["response_ids"]])
    return table.drop_columns("response_ids").append_column("length", lengths).to_pylist()


def select_rows(table: pa.Table, numbers: Sequence[int]) -> pa.Table:
    """The rows of a table with these row numbers, in this order."""
    # Slices of consecutive rows: `Table.take` would import pandas.
    runs: list[list[int]] = []  # [first row, count]
    for number in numbers:
        if runs and sum(runs[-1]) == number:
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return pa.concat_tables([table.slice(first, count) for first, count in runs] or [table[:0]])


def components(row: Row) -> list[str]:
    """Names of the verifiers that judged a row."""
    return [
        key.partition("/")[2]
        for key, value in row.items()
        if value is not None and key.startswith("status/")
    ]


def outcome(row: Row, component: str) -> str:
    """right | partial | wrong | no_answer | timeout | error"""
    return verdict.outcome(row[f"status/{component}"], row[f"reward/{component}"])


def groups_of(step: int, rows: Sequence[Row]) -> list[Group]:
    """The rows of a step, grouped by prompt."""
    numbers: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        numbers.setdefault(row["group"], []).append(number)
    return [_group(step, index, rows, group) for index, group in enumerate(numbers.values())]


def _add_step(stats: RolloutStats, step: int, rows: Sequence[Row]) -> None:
    for row in rows:
        _count_verdicts(stats, step, row)
    groups = groups_of(step, rows)
    stats.groups += groups
    stats.steps.append(_summary(step, rows))
    stats.rollouts += len(rows)
    stats.queue_s.extend(row["queue_s"] for row in rows)
    stats.exec_s.extend(row["exec_s"] for row in rows)
    _add_slowest(stats, step, rows, groups)
    stats.hacks.add_step(step, rows, groups)


def _count_verdicts(stats: RolloutStats, step: int, row: Row) -> None:
    for name in components(row):
        kind = outcome(row, name)
        stats.verdicts.setdefault(name, {}).setdefault(step, Counter())[kind] += 1
        if kind not in ("right", "partial"):
            reason = NUMBER.sub("N", (row[f"detail/{name}"] or "")[:MAX_TEXT])
            stats.reasons[name, kind, reason] += 1


def _group(step: int, index: int, rows: Sequence[Row], numbers: Sequence[int]) -> Group:
    first = rows[numbers[0]]
    rewards = [rows[i]["reward"] for i in numbers if rows[i]["reward"] is not None]
    problem = Problem(
        id=first["problem_id"], prompt="", verifier="", reference={},
        facts=json.loads(first["facts"] or "{}"),
    )  # fmt: skip
    return Group(
        step=step,
        index=index,
        problem=first["problem_id"],
        source=source_of(problem),
        rows=tuple(numbers),
        mean=fmean(rewards) if rewards else None,
        spread=pstdev(rewards) if rewards else 0.0,
        errors=len(numbers) - len(rewards),
    )


def _summary(step: int, rows: Sequence[Row]) -> StepSummary:
    lengths = sorted(row["length"] for row in rows)
    judged = [row for row in rows if row.get("reward/accuracy") is not None]
    complete = [r["reward"] for r in rows if r["finish"] == "stop" and r["reward"] is not None]
    advantages = sorted(row["advantage"] for row in rows if row["advantage"] is not None)
    return StepSummary(
        step=step,
        length_p50=lengths[len(lengths) // 2],
        length_p95=lengths[int(len(lengths) * 0.95)],
        length_right=_mean(row["length"] for row in judged if row["reward/accuracy"] == 1.0),
        length_wrong=_mean(row["length"] for row in judged if row["reward/accuracy"] < 1.0),
        reward_whole=_mean(complete) if len(complete) < len(rows) else None,
        advantage_p5=advantages[int(len(advantages) * 0.05)] if advantages else None,
        advantage_p95=advantages[int(len(advantages) * 0.95)] if advantages else None,
    )


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return fmean(numbers) if numbers else None


def _add_slowest(
    stats: RolloutStats, step: int, rows: Sequence[Row], groups: Sequence[Group]
) -> None:
    """Keep the answers that took longest to judge, over all steps, at most one per group."""
    position = {row: (group.index, i) for group in groups for i, row in enumerate(group.rows)}
    of_group: dict[int, int] = {}
    for row in sorted(range(len(rows)), key=lambda row: -rows[row]["exec_s"])[: 4 * SLOWEST]:
        of_group.setdefault(position[row][0], row)
    stats.slowest += [
        {
            "step": step,
            "group": position[row][0],
            "i": position[row][1],
            "problem": rows[row]["problem_id"],
            "queue_s": rows[row]["queue_s"],
            "exec_s": rows[row]["exec_s"],
            "text": rows[row]["response"][:MAX_TEXT],
        }
        for row in of_group.values()
    ]
    stats.slowest = sorted(stats.slowest, key=lambda answer: -answer["exec_s"])[:SLOWEST]
