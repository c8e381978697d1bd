"""The outcome of a run: one line, held-out pass@1 over its stages, one problem before and after."""

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
METRIC, JUDGE = "pass@1", "accuracy"
OTHER_MODEL = "distill"  # a kind of stage that trains a student, not the policy of the run
WIDTH, HEIGHT = 420, 262  # of the picture, in its own units
LEFT, TOP, BOTTOM = 30, 16, 184  # edges of its plot
LABELLED = 12  # stages up to which each point has its value
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
    (_, first), (stage, last) = pair
    before = _with_interval(first.before, first.before_95)
    after = _with_interval(last.after, last.after_95)
    return f"Held-out pass@1 {before} → {after} after {stage.name}"


def _with_interval(value: float | None, bounds: tuple[float, float] | None) -> str:
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
        row
        for row in scalar_rows(after)
        if row["problem_id"] in unsolved and _outcome(row) == "right"
    ]
    if not solved:
        return None
    shortest = min(solved, key=lambda row: (len(row["response"]), row["problem_id"]))
    return unsolved[shortest["problem_id"]], shortest


def _unsolved(rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
    """(problem, its first response) of the problems whose every response was judged not right."""
    by_problem: dict[str, list[Row]] = {}
    for row in rows:
        by_problem.setdefault(row["problem_id"], []).append(row)
    for problem, responses in by_problem.items():
        if not {_outcome(row) for row in responses} & {"right", "error", None}:
            yield problem, responses[0]


def _outcome(row: Row) -> str | None:
    return None if row.get(f"status/{JUDGE}") is None else outcome(row, JUDGE)


def section(run: Run) -> Html | None:
    """The picture and the contrast; None for a run without a held-out pass@1."""
    if not measured(run):
        return None
    return el(
        "section",
        el("h2", "Outcome"),
        el("div", _picture(run), _responses(contrast(run)), cls="two"),
        id="outcome",
    )


def _picture(run: Run) -> Html:
    stages = measured(run)
    width = (WIDTH - LEFT) / len(stages)
    columns = [
        _column(LEFT + width * i, width, *pair, len(stages)) for i, pair in enumerate(stages)
    ]
    attributes = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria_label": line(run)}
    key = (("hollow", "before the stage"), ("solid", "after it"), ("goal", "goal"))
    return el(
        "figure",
        el("figcaption", el("h4", "Held-out pass@1 by stage"),
           el("span", "with 95 % interval", cls="unit"),
           el("ul", [el("li", el("i", cls=cls), name) for cls, name in key], cls="key")),
        el("svg", _axis(), columns, **attributes),
        cls="card outcome",
    )  # fmt: skip


def _axis() -> Html:
    return join(
        part
        for tick in (0, 0.25, 0.5, 0.75, 1)
        for part in (
            _line(LEFT, _y(tick), WIDTH, _y(tick), "axis"),
            _text(f"{tick:g}", LEFT - 5, _y(tick) + 4, text_anchor="end"),
        )
    )


def _column(x: float, width: float, stage: Stage, figure: Figure, count: int) -> Html:
    left, right, middle = x + 0.25 * width, x + 0.7 * width, x + width / 2
    goal = (stage.entry.get("goals") or {}).get(METRIC) or {}
    parts = list[Html]()
    if goal.get("at_least") is not None:
        y = _y(goal["at_least"])
        parts.append(_line(x + 2, y, x + width - 2, y, "goal" if goal["met"] else "goal missed"))
    if figure.before is not None and figure.after is not None:
        parts.append(_line(left, _y(figure.before), right, _y(figure.after), "slope"))
    parts += _point(left, figure.before, figure.before_95, "hollow")
    parts += _point(right, figure.after, figure.after_95, "solid")
    if figure.after is not None and count <= LABELLED:
        top = figure.after_95[1] if figure.after_95 else figure.after
        parts.append(_text(f"{figure.after:.3f}", right, _y(top) - 4, text_anchor="middle"))
    turn = f"rotate(-40 {middle:.1f} {BOTTOM + 12})"
    parts.append(_text(stage.name, middle, BOTTOM + 12, text_anchor="end", transform=turn))
    return el("g", el("title", f"{stage.name}: {_summary(figure)}"), parts)


def _summary(figure: Figure) -> str:
    sides = ((figure.before, figure.before_95), (figure.after, figure.after_95))
    return " → ".join(_with_interval(*side) for side in sides if side[0] is not None)


def _point(
    x: float, value: float | None, bounds: tuple[float, float] | None, cls: str
) -> Iterator[Html]:
    if value is None:
        return
    if bounds is not None:
        yield _line(x, _y(bounds[0]), x, _y(bounds[1]), "interval")
    yield el("circle", cx=f"{x:.1f}", cy=f"{_y(value):.1f}", r="3.5", cls=cls)


def _y(value: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * min(max(value, 0.0), 1.0)


def _line(x1: float, y1: float, x2: float, y2: float, cls: str) -> Html:
    return el("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", cls=cls)


def _text(text: str, x: float, y: float, **attributes: str) -> Html:
    return el("text", text, x=f"{x:.1f}", y=f"{y:.1f}", **attributes)


def _responses(pair: Contrast | None) -> Html:
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
