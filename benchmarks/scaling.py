"""How the seconds of a GRPO step grow: with the model, the group, the answer, verifier workers.

    python benchmarks/scaling.py [--quick] [--json FILE] [--image FILE] [--rounds N]

The loop of every RL stage on random models, sampling by vLLM in float32, one thread for each engine
and all cores that this process may use: 8 questions, 8 answers to each of at most 64 tokens, by
4 M parameters, and one of these varied at a time. Workers are varied on programs, one of some 20 ms
run in the sandbox for each of 64 answers. The points of an axis take turns, each a process of its
own. `verify` is what is left of judging when sampling ends. Printed with the table: the power of
what is varied that each part grows by (least squares on logarithms). The plot goes to
docs/images/scaling.png; `--quick` samples by torch, and draws a plot that it does not keep.
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
    """What is varied, as a setting of the recipe; "" is the size of the model."""

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
    """A row for each point of the axis, its steps and those of the others in turn."""
    values = axis.quick if quick else axis.values
    models = [model(folder, one if not axis.setting else SIZE) for one in values]
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
    """Made once."""
    path = folder / size
    return path if path.exists() else model_of(path, SIZES[size])


def parameters(path: Path) -> float:
    """Of a checkpoint in float32."""
    return (path / "model.safetensors").stat().st_size / 4


def powers(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By axis and part, p where seconds grow as the p-th power of what is varied."""
    found: dict[str, dict[str, float]] = {}
    for axis in dict.fromkeys(row["axis"] for row in rows):
        own = [row for row in rows if row["axis"] == axis]
        x = [math.log(row["at"]) for row in own]
        for part in ("s", *PARTS):
            y = [math.log(row[part]) for row in own]
            across = sum((a - fmean(x)) ** 2 for a in x)
            along = sum((a - fmean(x)) * (b - fmean(y)) for a, b in zip(x, y, strict=True))
            found.setdefault(axis, {})[part] = along / across
    return found


def figure(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A panel for each axis, a line for each part; both scales logarithmic, seconds on the same."""
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
        for one in (x, y):
            one |= {"gridcolor": "#ddd", "linecolor": "#888", "showline": True}
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
    """The figure as a small PNG. Raises ValueError where it is not small."""
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
        told = ", ".join(f"{part} {power:.2f}" for part, power in by_part.items())
        text += f"\ngrows with {axis} to the power of: {told}"
    status = publish(options, text, {"rows": rows, "powers": grown})
    with tempfile.TemporaryDirectory(prefix="scaling-") as name:
        draw(rows, Path(name) / "plot.png" if options.quick else options.image)
    return status


if __name__ == "__main__":
    sys.exit(main())
