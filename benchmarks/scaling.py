"""How the seconds of a GRPO step grow: with the model, the group, the answer, verifier workers.

    python benchmarks/scaling.py [--quick] [--json FILE] [--image FILE] [--rounds N]

The loop of the RL stages on random models, sampling by vLLM in float32, one thread per engine and
all cores of this process: 8 questions with 8 answers of at most 64 tokens, 4 M parameters; one of
these is varied at a time. The number of workers is varied with programs: the sandbox runs one of
about 20 ms for each of 64 answers. The points of an axis take turns, each in a separate process.
`verify` is the judging that remains when sampling ends. The output includes the exponent by which
each part grows (least squares on logarithms). The plot is written to docs/images/scaling.png;
`--quick` samples by torch and discards the plot.
"""

import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from chromium import Chromium, find_chromium
from contenders import SIZES, Contender, Process, in_turn, model_of
from grpo_turns import PARTS
from publish import ROOT, arguments, publish, table

SCRIPT = "grpo_turns.py"
IMAGE = ROOT / "docs/images/scaling.png"
LARGEST = 150_000  # bytes of the image
SIZE, WARM_UP = "4M", 1
PLAIN: Mapping[str, Any] = {
    "rollout.prompts": 8, "rollout.per_prompt": 8, "rollout.max_tokens": 64,
    "sampler.engine": "vllm", "sampler.cache_gib": 0.5,
}  # fmt: skip
QUICK = {"sampler.engine": "torch", "rollout.prompts": 2, "rollout.max_tokens": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The varied setting of the recipe; "" is the size of the model."""

    name: str
    setting: str
    values: tuple[Any, ...]
    quick: tuple[Any, ...]
    side: str = "ours"


AXES = (
    Axis(name="parameters", setting="", values=tuple(SIZES), quick=("1M", "4M")),
    Axis(
        name="answers to a question",
        setting="rollout.per_prompt",
        values=(4, 8, 16, 32),
        quick=(2, 4),
    ),
    Axis(
        name="tokens of an answer",
        setting="rollout.max_tokens",
        values=(32, 64, 128, 256, 512),
        quick=(8, 16),
    ),
    Axis(
        name="verifier workers",
        setting="verifier_workers",
        values=(1, 2, 4),
        quick=(1, 2),
        side="ours_programs",
    ),
)


def measured(axis: Axis, folder: Path, *, quick: bool, rounds: int) -> list[dict[str, Any]]:
    """One row for each point of the axis; the points take turns."""
    values = axis.quick if quick else axis.values
    models = [model(folder, size if not axis.setting else SIZE) for size in values]
    plain = {**PLAIN, **QUICK} if quick else PLAIN
    running = [
        Process(
            Contender(
                name=f"{axis.name} {value}",
                side=axis.side,
                settings={**plain, axis.setting: value} if axis.setting else plain,
            ),
            SCRIPT,
            path,
            folder,
            cores=sorted(os.sched_getaffinity(0)),
        )
        for value, path in zip(values, models, strict=True)
    ]
    rows = in_turn(running, 0 if quick else WARM_UP, rounds)
    return [
        {
            "axis": axis.name,
            "value": value,
            "at": parameters(path) if not axis.setting else value,
            **{part: median(step[part] for step in row["steps"]) for part in PARTS},
            **row,
        }
        for value, path, row in zip(values, models, rows, strict=True)
    ]


def model(folder: Path, size: str) -> Path:
    """A model of this size, created once."""
    path = folder / size
    return path if path.exists() else model_of(path, SIZES[size])


def parameters(path: Path) -> float:
    """The number of parameters of a checkpoint in float32."""
    return (path / "model.safetensors").stat().st_size / 4


def powers(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The exponent p by axis and part, if seconds grow as the p-th power of the varied setting."""
    by_axis: dict[str, dict[str, float]] = {}
    for axis in dict.fromkeys(row["axis"] for row in rows):
        own = [row for row in rows if row["axis"] == axis]
        x = [math.log(row["at"]) for row in own]
        for part in ("s", *PARTS):
            y = [math.log(row[part]) for row in own]
            across = sum((a - fmean(x)) ** 2 for a in x)
            along = sum((a - fmean(x)) * (b - fmean(y)) for a, b in zip(x, y, strict=True))
            by_axis.setdefault(axis, {})[part] = along / across
    return by_axis


def figure(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A panel for each axis, a line for each part; both scales are logarithmic and seconds share
    one."""
    colours = dict(zip(PARTS, ("#1f77b4", "#2ca02c", "#d62728", "#9467bd"), strict=True))
    traces: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "width": 1200, "height": 380, "plot_bgcolor": "white",
        "legend": {"orientation": "h", "y": -0.2}, "margin": {"l": 60, "r": 20, "t": 20, "b": 80},
    }  # fmt: skip
    axes = list(dict.fromkeys(row["axis"] for row in rows))
    drawn = [math.log10(row[part]) for row in rows for part in PARTS if row[part] > 0]
    seconds = {"type": "log", "dtick": 1, "range": [min(drawn) - 0.1, max(drawn) + 0.1]}
    for panel, axis in enumerate(axes, 1):
        own, name = [row for row in rows if row["axis"] == axis], "" if panel == 1 else str(panel)
        left = (panel - 1) / len(axes)
        x = {"title": {"text": axis}, "type": "log", "domain": [left, left + 0.85 / len(axes)]}
        x |= {"tickvals": [row["at"] for row in own], "ticktext": [str(r["value"]) for r in own]}
        y = {**seconds, "anchor": f"x{name}"}
        for settings in (x, y):
            settings |= {"gridcolor": "#ddd", "linecolor": "#888", "showline": True}
        layout |= {f"xaxis{name}": x, f"yaxis{name}": y}
        traces += [
            {
                "type": "scatter", "mode": "lines+markers", "name": part, "legendgroup": part,
                "x": [row["at"] for row in own], "y": [row[part] for row in own],
                "xaxis": f"x{name}", "yaxis": f"y{name}", "showlegend": panel == 1,
                "line": {"color": colours[part]},
            }
            for part in PARTS
        ]  # fmt: skip
    layout["yaxis"]["title"] = {"text": "seconds of a step"}
    return {"data": traces, "layout": layout}


def draw(rows: Sequence[Mapping[str, Any]], image: Path) -> None:
    """The figure as a small PNG. Raises ValueError if it is too large."""
    import plotly.io

    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "plot.html"
        html = plotly.io.to_html(
            figure(rows), {"displayModeBar": False}, include_plotlyjs=True, validate=False
        )
        page.write_text(html)
        image.parent.mkdir(parents=True, exist_ok=True)
        with Chromium(width=1250, height=450) as browser:
            browser.open(page.as_uri())
            browser.until("document.querySelectorAll('.scatterlayer .trace').length > 0")
            browser.screenshot(image, ".plotly-graph-div")
    if (size := image.stat().st_size) > LARGEST:
        raise ValueError(f"{image} has {size} bytes, at most {LARGEST}")


def main() -> int:
    options = arguments(
        __doc__ or "",
        image={"type": Path, "default": IMAGE, "help": "where the plot goes"},
        rounds={"type": int, "default": 3, "help": "steps of each point that are counted"},
    )
    if find_chromium() is None:
        raise SystemExit("the plot is drawn by Chromium, and none is installed")
    rounds = 1 if options.quick else options.rounds
    with tempfile.TemporaryDirectory(prefix="scaling-") as name:
        folder = Path(name)
        rows = [
            row
            for axis in AXES
            for row in measured(axis, folder, quick=options.quick, rounds=rounds)
        ]
    columns = ("tokens", "s", *PARTS, "peak_gib")
    shown = [[row["axis"], str(row["value"]), *(row[name] for name in columns)] for row in rows]
    text = table(["varied", "value", "tokens", "s", *PARTS, "GiB"], shown)
    grown = powers(rows)
    for axis, by_part in grown.items():
        growth = ", ".join(f"{part} {power:.2f}" for part, power in by_part.items())
        text += f"\ngrows with {axis} to the power of: {growth}"
    status = publish(options, text, {"rows": rows, "powers": grown})
    with tempfile.TemporaryDirectory(prefix="scaling-") as name:
        draw(rows, Path(name) / "plot.png" if options.quick else options.image)
    return status


if __name__ == "__main__":
    sys.exit(main())
