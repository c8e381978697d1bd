"""The outcome on the page: a picture of held-out pass@1 over the stages of one run or several."""

from collections.abc import Iterator, Mapping, Sequence

from veriloop.pipeline.report import tables
from veriloop.pipeline.report.markup import Html, el, join
from veriloop.pipeline.report.outcome import (
    METRIC,
    Measured,
    contrast,
    line,
    measured,
    responses,
    with_interval,
)
from veriloop.pipeline.report.read_run import Run
from veriloop.pipeline.report.tables import Figure

WIDTH, HEIGHT = 420, 262  # of the picture, in its own units; wider for many columns
LEFT, TOP, RIGHT, BOTTOM = 30, 16, 8, 184  # edges of its plot; RIGHT from the right
COLUMN = 18  # units of a column, one stage of one run, at least
LABELLED = 31  # units of a column from which each point has its value
GAP = 0.5  # columns between the stages of several runs
COLOURS = 8  # of runs; further ones repeat them


def section(runs: Sequence[Run]) -> Html | None:
    """The picture of all runs and the contrast of the first; None without a held-out pass@1."""
    if not any(map(measured, runs)):
        return None
    picture, pair = _picture(runs), responses(contrast(runs[0]))
    return el("section", el("h2", "Outcome"), el("div", picture, pair, cls="two"), id="outcome")


def colour(at: int) -> str:
    """The colour of one of several runs; the page's scripts draw its curves with the same."""
    return f"var(--s{at % COLOURS + 1})"


def swatch(at: int) -> Html:
    """A spot of the run's colour."""
    return el("i", style=f"background:{colour(at)}", cls="swatch")


def _picture(runs: Sequence[Run]) -> Html:
    by_run = [{stage.name: (stage, figure) for stage, figure in measured(run)} for run in runs]
    names = [n for n in tables.stage_names(runs) if any(n in stages for stages in by_run)]
    width = max(WIDTH, LEFT + RIGHT + COLUMN * len(names) * len(runs))
    each = (width - LEFT - RIGHT) / len(names)
    several = [el("li", swatch(at), run.name) for at, run in enumerate(runs)] * (len(runs) > 1)
    key = (("hollow", "before the stage"), ("solid", "after it"), ("goal", "goal"))
    drawing = el(
        "svg",
        _axis(width),
        [_stage(LEFT + each * i, each, name, runs, by_run) for i, name in enumerate(names)],
        viewBox=f"0 0 {width} {HEIGHT}",
        role="img",
        aria_label="; ".join(map(line, runs)),
        style=f"min-width:{0.75 * width:.0f}px;max-width:{1.48 * width:.0f}px",
    )
    return el(
        "figure",
        el("figcaption", el("h4", "Held-out pass@1 by stage"),
           el("span", "with 95 % interval", cls="unit"),
           el("ul", several, cls="key") if several else None,
           el("ul", [el("li", el("i", cls=cls), name) for cls, name in key], cls="key")),
        el("div", drawing, cls="scroll"),
        cls="card outcome",
    )  # fmt: skip


def _axis(width: float) -> Html:
    return join(
        part
        for tick in (0, 0.25, 0.5, 0.75, 1)
        for part in (
            _line(LEFT, _y(tick), width, _y(tick), "axis"),
            _text(f"{tick:g}", LEFT - 5, _y(tick) + 4, text_anchor="end"),
        )
    )


def _stage(
    x: float,
    width: float,
    name: str,
    runs: Sequence[Run],
    by_run: Sequence[Mapping[str, Measured]],
) -> Html:
    """The columns of the runs that have the stage, and below them its name."""
    gap, middle = GAP if len(runs) > 1 else 0.0, x + width / 2
    each = width / (len(runs) + gap)
    columns = list[Html]()
    for at, (run, stages) in enumerate(zip(runs, by_run, strict=True)):
        if name in stages:
            title = f"{run.name}, {name}" if len(runs) > 1 else name
            style = f"--run:{colour(at)}" if len(runs) > 1 else None
            parts = _column(x + each * (gap / 2 + at), each, stages[name])
            summary = el("title", f"{title}: {_summary(stages[name][1])}")
            columns.append(el("g", summary, parts, style=style))
    turn = f"rotate(-40 {middle:.1f} {BOTTOM + 12})"
    below = _text(name, middle, BOTTOM + 12, text_anchor="end", transform=turn)
    return el("g", columns, below, cls="stage")


def _column(x: float, width: float, pair: Measured) -> Iterator[Html]:
    (stage, figure), left, right = pair, x + 0.25 * width, x + 0.7 * width
    goal = (stage.entry.get("goals") or {}).get(METRIC) or {}
    if goal.get("at_least") is not None:
        y, reached = _y(goal["at_least"]), (goal.get("value") or 0.0) >= goal["at_least"]
        yield _line(x + 2, y, x + width - 2, y, "goal" if reached else "goal missed")
    if figure.before is not None and figure.after is not None:
        yield _line(left, _y(figure.before), right, _y(figure.after), "slope")
    yield from _point(left, figure.before, figure.before_95, "hollow")
    yield from _point(right, figure.after, figure.after_95, "solid")
    if figure.after is not None and width >= LABELLED:
        top = figure.after_95[1] if figure.after_95 else figure.after
        yield _text(f"{figure.after:.3f}", right, _y(top) - 4, text_anchor="middle")


def _summary(figure: Figure) -> str:
    sides = ((figure.before, figure.before_95), (figure.after, figure.after_95))
    return " → ".join(with_interval(*side) for side in sides if side[0] is not None)


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
