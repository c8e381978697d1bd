"""Draw the curves of every algorithm and preference loss from the committed results, as SVG.

    python benchmarks/curves.py [--quick] [--json FILE]

Images are written to docs/images/curves. `--quick` only compares and fails if an image differs from
the results. Thin lines are single seeds by training step; marks are held-out accuracy: the mean,
minimum and maximum over seeds.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from learning_tables import others
from publish import ROOT, arguments, publish

FOLDER = ROOT / "docs" / "images" / "curves"
RESULTS = ROOT / "benchmarks" / "results"
WIDTH, HEIGHT, LEFT, TOP, SHIFT = 250, 120, 40, 24, 320  # of a panel, and from one to the next
INK, QUIET, GRID, SEED, MARK = "#1c1e22", "#6a6f78", "#e7e6e1", "#9db4e4", "#2b5cc4"
EDGES = [edge * 10**power for power in range(-3, 4) for edge in (1, 1.5, 2, 3, 4, 5, 6, 8)]
Point = tuple[float, float]
Runs = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One image: thin lines, and marks with a mean and a range."""

    title: str
    lines: Sequence[Sequence[Point]]  # (step, value)
    marks: Sequence[tuple[float, float, float, float]] = ()  # step, mean, least, most
    top: float | None = None  # None: what the lines need

    @property
    def steps(self) -> float:
        return max(x for line in self.lines for x, _ in line)

    @property
    def span(self) -> tuple[float, float]:
        """Values at the lower and the upper edge."""
        values = [y for line in self.lines for _, y in line]
        lowest = min(0.0, round(min(values), 3))
        return lowest, self.top or next(edge for edge in EDGES if edge >= max(values))


def algorithm(runs: Runs) -> str:
    """Accuracy and length of one preset; `runs` are its seeds, as `algorithms.py` has them."""
    curves = [[(step, v) for step, v in run["held_out"]] for run in runs]
    marks = [_mark(points) for points in zip(*curves, strict=True)]
    accuracy, length = (
        [_curve(run["curve"], key) for run in runs]
        for key in ("rewards/accuracy/mean", "completions/mean_length")
    )
    ends = [run["after"]["mean_length"] for run in runs]
    last = (marks[-1][0], fmean(ends), min(ends), max(ends))
    return drawing(
        [
            Panel(title="accuracy", lines=accuracy, marks=marks, top=1.0),
            Panel(title="tokens of an answer", lines=length, marks=[last], top=40.0),
        ]
    )


def preference(runs: Runs) -> str:
    """Margin of one loss by step, and accuracy at both ends; `runs` are its seeds."""
    margins = [list(enumerate(run["margins"], 1)) for run in runs]
    steps = len(margins[0])
    ends = [
        [(at, run[when]["pass@1"]) for at, when in ((0, "before"), (steps, "after"))]
        for run in runs
    ]
    marks = [_mark(points) for points in zip(*ends, strict=True)]
    return drawing(
        [
            Panel(title="margin, chosen less rejected", lines=margins),
            Panel(title="accuracy", lines=ends, marks=marks, top=1.0),
        ]
    )


def _curve(steps: Runs, key: str) -> list[Point]:
    return [(row["step"], row[key]) for row in steps]


def _mark(points: Sequence[Point]) -> tuple[float, float, float, float]:
    values = [value for _, value in points]
    return points[0][0], fmean(values), min(values), max(values)


def drawing(panels: Sequence[Panel]) -> str:
    """The panels side by side, without external resources or scripts."""
    width, height = SHIFT * (len(panels) - 1) + LEFT + WIDTH + 14, TOP + HEIGHT + 24
    body = "\n".join(
        line for number, panel in enumerate(panels) for line in _panel(panel, number * SHIFT + LEFT)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _panel(panel: Panel, left: int) -> Iterator[str]:
    low, high = panel.span

    def at(x: float, y: float) -> str:
        inside = min(max(y, low), high)
        return f"{left + WIDTH * x / panel.steps:.1f},{_down(inside, low, high):.1f}"

    yield f'<text x="{left}" y="14" fill="{INK}">{panel.title}</text>'
    for value in (low, (low + high) / 2, high):
        y = _down(value, low, high)
        yield f'<path d="M{left},{y:.1f}h{WIDTH}" stroke="{GRID}"/>'
        yield _label(left - 5, y + 4, f"{value:.3g}", "end")
    for x in (0, panel.steps):
        yield _label(left + WIDTH * x / panel.steps, TOP + HEIGHT + 15, f"{x:g}", "middle")
    yield _label(left + WIDTH / 2, TOP + HEIGHT + 15, "step", "middle")
    for line in panel.lines:
        points = " ".join(at(x, y) for x, y in line)
        yield f'<polyline points="{points}" fill="none" stroke="{SEED}"/>'
    for x, mean, least, most in panel.marks:
        cx, cy = at(x, mean).split(",")
        yield f'<path d="M{at(x, least)}L{at(x, most)}" stroke="{MARK}" stroke-width="2"/>'
        yield f'<circle cx="{cx}" cy="{cy}" r="3.5" fill="{MARK}"/>'


def _down(value: float, low: float, high: float) -> float:
    """Pixels from the upper edge of the drawing."""
    return TOP + HEIGHT * (high - value) / (high - low)


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{QUIET}" text-anchor="{anchor}">{text}</text>'


def pictures() -> dict[str, str]:
    """Every image by file name without suffix."""
    several, once, preferences = (
        json.loads((RESULTS / f"{name}.json").read_text())["results"]
        for name in ("algorithms", "algorithms_one_update", "preferences")
    )
    by_preset: dict[str, list[Mapping[str, Any]]] = {}
    for run in [*others(several, once), *once]:
        by_preset.setdefault(run["preset"], []).append(run)
    drawn = {name: algorithm(runs) for name, runs in by_preset.items()}
    return drawn | {name: preference(runs) for name, runs in preferences["runs"].items()}


def main() -> int:
    options = arguments(__doc__ or "")
    stale: list[str] = []
    for name, drawn in pictures().items():
        path = FOLDER / f"{name}.svg"
        if not path.is_file() or path.read_text() != drawn:
            stale.append(path.name)
        if not options.quick:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(drawn)
    failed = [f"docs/images/curves/{name} is not what the results draw" for name in stale]
    text = f"{len(list(FOLDER.glob('*.svg')))} pictures in {FOLDER.relative_to(ROOT)}"
    return publish(options, text, {"stale": stale}, failed=failed * options.quick)


if __name__ == "__main__":
    sys.exit(main())
