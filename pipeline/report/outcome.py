"""The outcome of a run: one line, its held-out pass@1, one problem before and after."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veriloop.pipeline.report import tables
from veriloop.pipeline.report.identity_facts import seconds
from veriloop.pipeline.report.markup import Html, el, join, visible
from veriloop.pipeline.report.read_run import Run, Stage
from veriloop.pipeline.report.rollout_stats import outcome, scalar_rows
from veriloop.pipeline.report.tables import Figure

Row = Mapping[str, Any]
Measured = tuple[Stage, Figure]
Problem = tuple[str, str]  # id and prompt
METRIC, JUDGE = "pass@1", "accuracy"
OTHER_MODEL = "distill"  # a kind of stage that trains a student, not the policy of the run
TEXT = 2_000  # characters of a prompt or response


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A held-out problem that no response solved before training and one solved after it."""

    first: str  # stage before which `before` was sampled
    last: str  # stage after which `after` was sampled
    before: Row
    after: Row


def measured(run: Run) -> list[Measured]:
    """The stages with a held-out pass@1, in order."""
    return [(s, f) for s in run.stages for f in tables.figures(s) if f.name == METRIC]


def ends(run: Run) -> tuple[Measured, Measured] | None:
    """The first stage with a pass@1 before it and the last with one after it, distillation aside
    unless nothing else was measured; None if a side is missing."""
    stages = measured(run)
    policy = [pair for pair in stages if pair[0].kind != OTHER_MODEL] or stages
    first = next((pair for pair in policy if pair[1].before is not None), None)
    last = next((pair for pair in reversed(policy) if pair[1].after is not None), None)
    return None if first is None or last is None else (first, last)


def line(run: Run) -> str:
    """Start and end pass@1 with their 95 % intervals, stages, time, missed goals."""
    count = f"{len(run.stages)} stage{'s' * (len(run.stages) != 1)}"
    parts = [_change(run), f"{count} in {seconds(run.manifest.get('seconds') or 0.0)}"]
    goals = {stage.name: tables.goals(stage) for stage in run.stages}
    missed = [f"{name} {text}" for name, text in goals.items() if text.startswith("missed")]
    if missed or "met" in goals.values():
        parts.append("; ".join(missed) or "all goals met")
    return "; ".join(parts)


def _change(run: Run) -> str:
    pair = ends(run)
    if pair is None:
        return "No held-out pass@1 before and after training"
    (begun, first), (stage, last) = pair
    before = with_interval(first.before, first.before_95)
    after = with_interval(last.after, last.after_95)
    change = f"Held-out pass@1 {before} → {after} after {stage.name}"
    exam, last_exam = _exam(begun, "before"), _exam(stage, "after")
    return change if exam == last_exam else f"{change} (asked {exam}, then {last_exam})"


def _exam(stage: Stage, side: str) -> str:
    """What the evaluation before or after a stage asked, and how: a resumed stage may ask its last
    one otherwise."""
    recipe, recorded = stage.recipe, stage.entry.get(side) or {}
    evaluation = recipe.get("evaluation", {}) | {
        k: v for k, v in recorded.items() if k == "temperature"
    }
    length = recipe.get("rollout", recipe).get("max_tokens", "?")
    asked = ", ".join(evaluation.get("sources", ["?"]))
    if side == "before" and _asks_others_now(stage):  # the recipe is that of the resumption
        asked = "other problems"
    return f"{asked} at temperature {evaluation.get('temperature', '?')}, {length} tokens"


def _asks_others_now(stage: Stage) -> bool:
    sides = (stage.entry.get(side) or {} for side in ("before", "after"))
    hashes = [recorded.get("problems_hash") for recorded in sides]
    return all(hashes) and hashes[0] != hashes[1]


def with_interval(value: float | None, bounds: tuple[float, float] | None) -> str:
    """0.912 [0.880, 0.936]."""
    interval = f" [{bounds[0]:.3f}, {bounds[1]:.3f}]" if bounds else ""
    return f"{value:.3f}{interval}"


def contrast(run: Run) -> Contrast | None:
    """The shortest right response, after training, to a problem without a right one before it.

    The run's first and last evaluations are compared, then those of each stage, the last first.
    """
    pair = ends(run)
    if pair is None:
        return None
    (first, _), (last, _) = pair
    stages = [stage for stage, _ in measured(run)]
    for start, end in [(first, last), *((stage, stage) for stage in reversed(stages))]:
        before, after = start.evaluated_files[:1], end.evaluated_files[-1:]
        if before and after and before != after:
            rows = _contrast(before[0][1], after[0][1])
            if rows is not None:
                return Contrast(first=start.name, last=end.name, before=rows[0], after=rows[1])
    return None


def _contrast(before: Path, after: Path) -> tuple[Row, Row] | None:
    unsolved = dict(_unsolved(scalar_rows(before)))
    solved = [
        row for row in scalar_rows(after) if _problem(row) in unsolved and _outcome(row) == "right"
    ]
    if not solved:
        return None
    shortest = min(solved, key=lambda row: (len(row["response"]), row["problem_id"]))
    return unsolved[_problem(shortest)], shortest


def _unsolved(rows: Sequence[Row]) -> Iterator[tuple[Problem, Row]]:
    """(problem, its first response) of the problems whose every response was judged not right."""
    by_problem: dict[Problem, list[Row]] = {}
    for row in rows:
        by_problem.setdefault(_problem(row), []).append(row)
    for problem, responses in by_problem.items():
        if not {_outcome(row) for row in responses} & {"right", "error", None}:
            yield problem, responses[0]


def _problem(row: Row) -> Problem:
    """What tells problems apart: sources, and sets of stages, may share ids."""
    return row["problem_id"], row["prompt"]


def _outcome(row: Row) -> str | None:
    return None if row.get(f"status/{JUDGE}") is None else outcome(row, JUDGE)


def responses(pair: Contrast | None) -> Html:
    """The problem of `contrast` with its responses."""
    if pair is None:
        text = "No recorded held-out problem was unsolved before training and solved after it."
        return el("p", text, cls="quiet")
    return el(
        "div",
        el("h4", "A held-out problem before and after training"),
        _pre(pair.before["prompt"]),
        _response(f"Before {pair.first}", pair.before),
        _response(f"After {pair.last}", pair.after),
        cls="contrast",
    )


def _response(title: str, row: Row) -> Html:
    kind = outcome(row, JUDGE)
    badge = el("span", kind.replace("_", " "), cls=f"badge {kind}")
    return join([el("h5", f"{title} ", badge), _pre(row["response"])])


def _pre(text: str) -> Html:
    shown = text if len(text) <= TEXT else f"{text[:TEXT]} […]"
    return el("pre", visible(shown), cls="text", dir="ltr")
