"""Writes report.html, report.md and report.json of a run folder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from veriloop.pipeline.report import outcome, plots, tables
from veriloop.pipeline.report.checks import Check, health
from veriloop.pipeline.report.curves import POINTS, curves
from veriloop.pipeline.report.events import events
from veriloop.pipeline.report.markdown import markdown
from veriloop.pipeline.report.page import page
from veriloop.pipeline.report.read_run import Run, Stage, read_runs
from veriloop.pipeline.report.reward_hacks import EXAMPLES
from veriloop.pipeline.report.rollout_stats import RolloutStats, collect_stats
from veriloop.pipeline.report.sample import sampled
from veriloop.pipeline.report.token_pieces import open_pieces
from veriloop.pipeline.runs.atomic_write import write_atomically

ANSWERS = 5_600_000  # bytes of answers on the page, over all stages
HELD_OUT = 1 / 7  # the share of answers to held-out problems
FLIPS = ("verifier", "version", "component", "rollouts", "flips", "up", "down", "errors")
MIN_POINTS = 100  # of a curve of another run
FOLLOWED = 24  # held-out prompts that are shown both before and after


Stages = Sequence[tuple[Stage, RolloutStats]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The written page, and the health checks on it."""

    page: Path
    checks: Sequence[Check]


def write_report(
    folder: Path, *others: Path, into: Path | None = None, answers_bytes: int = ANSWERS
) -> Report:
    """Write the report of the run in `folder` to that folder or `into` another one, next to the
    runs in `others`. The page includes about `answers_bytes` of answers; of each stage at least
    those of a step.

    Raises RecipeError if a folder holds no run or is given twice, and ValueError for a broken
    record.
    """
    runs = read_runs([folder, *others])
    run = runs[0]
    stages = [(stage, collect_stats(stage.rollout_files)) for stage in run.stages]
    checks = health(stages)
    into = folder if into is None else into
    into.mkdir(parents=True, exist_ok=True)
    alarms = [(stage.name, stats.hacks) for stage, stats in stages]
    html = page(runs, checks, _chart_data(runs, stages), _rollouts(stages, answers_bytes))
    _write(into / "report.html", html)
    _write(into / "report.md", markdown(runs, checks, alarms))
    _write(into / "report.json", json.dumps(_as_json(runs, checks, stages), indent=1) + "\n")
    return Report(page=into / "report.html", checks=checks)


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda fresh: fresh.write_text(text, encoding="utf-8", errors="replace"))


def _chart_data(runs: Sequence[Run], stages: Stages) -> dict[str, Any]:
    run, *others = runs
    return {
        "name": run.name,
        "others": [other.name for other in others],
        "stages": [
            _stage(stage, stats, [tables.counterpart(stage, other) for other in others])
            for stage, stats in stages
        ],
    }


def _stage(stage: Stage, stats: RolloutStats, others: Sequence[Stage | None]) -> dict[str, Any]:
    points = max(POINTS // max(len(others), 1), MIN_POINTS)  # so that many runs fit into the page
    return {
        "name": stage.name,
        "kind": stage.kind,
        "status": stage.entry.get("status"),
        "curves": curves(stage, stats) | {"events": [asdict(kind) for kind in events(stage)]},
        "others": [
            None if other is None else curves(other, collect_stats(other.rollout_files), points)
            for other in others
        ],
        "heat": plots.heat_map(stats.groups),
        "verdicts": plots.verdict_mix(stats),
        "reasons": plots.reasons(stats),
        "latency": plots.latency(stats),
        "slowest": stats.slowest,
        "alarms": [asdict(alarm) for alarm in stats.hacks.alarms.values()],
        "flips": stage.flips,
        "rollouts": stats.rollouts,
    }


def _rollouts(stages: Stages, size: int) -> list[dict[str, Any]]:
    """Per stage: a sample of training, a sample of evaluations, and the texts of their tokens."""
    training = max(sum(bool(stage.rollout_files) for stage, _ in stages), 1)
    evaluated = max(sum(bool(stage.evaluated_files) for stage, _ in stages), 1)
    held_out = int(size * HELD_OUT)
    return [
        _sampled(stage, stats, (size - held_out) // training, held_out // evaluated)
        for stage, stats in stages
    ]


def _sampled(stage: Stage, stats: RolloutStats, budget: int, held_out: int) -> dict[str, Any]:
    if not stage.rollout_files and not stage.evaluated_files:
        return {}
    pieces = open_pieces(stage)
    first_and_last = [*stage.evaluated_files[:1], *stage.evaluated_files[1:][-1:]]
    groups = collect_stats(first_and_last).groups
    return {
        "train": sampled(
            stage.rollout_files, stats.groups, _linked_groups(stage, stats), pieces, budget
        ),
        "held_out": sampled(first_and_last, groups, {}, pieces, held_out, follow=FOLLOWED),
        "pieces": [] if pieces is None else pieces.table,
    }


def _linked_groups(stage: Stage, stats: RolloutStats) -> dict[tuple[int, int], str]:
    """Groups that the page links to, by (step, index), with the reason."""
    answers = [(answer, "slow") for answer in stats.slowest]
    answers += [(e, alarm.name) for alarm in stats.hacks.alarms.values() for e in alarm.examples]
    answers += [(flip, "flipped") for flips in stage.flips for flip in flips["largest"][:EXAMPLES]]
    return {(answer["step"], answer["group"]): reason for answer, reason in answers}


def _as_json(runs: Sequence[Run], checks: Sequence[Check], stages: Stages) -> Mapping[str, Any]:
    """The report for programs: health checks, goals, metrics, alarms and flips by stage; outcome
    and metrics of other runs."""
    run = runs[0]
    levels = [check.level for check in checks]
    return {
        "run": run.name,
        "outcome": outcome.line(run),
        "ended": tables.status_line(run),
        "health": {level: levels.count(level) for level in ("good", "watch", "bad", "unknown")},
        "checks": [check.as_json() for check in checks],
        "stages": [
            _metrics(stage)
            | {
                "alarms": {a.name: a.count for a in stats.hacks.alarms.values()},
                "flips": [
                    {key: flips[key] for key in FLIPS if key in flips} for flips in stage.flips
                ],
            }
            for stage, stats in stages
        ],
        "others": [_other(run) for run in runs[1:]],
    }


def _other(run: Run) -> Mapping[str, Any]:
    return {
        "run": run.name,
        "outcome": outcome.line(run),
        "ended": tables.status_line(run),
        "stages": [_metrics(stage) for stage in run.stages],
    }


def _metrics(stage: Stage) -> dict[str, Any]:
    metrics = {name: stage.entry.get(name) or {} for name in ("goals", "before", "after")}
    return {"name": stage.name, "status": stage.entry.get("status"), **metrics}
