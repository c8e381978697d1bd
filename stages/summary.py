"""The table at the end of a run: each stage, what it took, and what it changed."""

import json
from pathlib import Path
from typing import Any

SHOWN = ("pass@1", "greedy", "maj@4", "pass@4", "format", "mean_length")


def table(output: Path) -> str:
    """The stages of `output`/run.json: before > after of each figure that a stage has."""
    run = json.loads((output / "run.json").read_text())
    lines = [f"{'stage':<8}{'seconds':>9}  {'sampler':<8}" + "".join(f"{s:>16}" for s in SHOWN)]
    for stage in run["stages"]:
        cells = "".join(f"{_change(stage, name):>16}" for name in SHOWN)
        lines.append(
            f"{stage['name']:<8}{stage['seconds']:>9.0f}  {stage['sampler'] or '-':<8}{cells}"
        )
    return "\n".join(lines)


def _change(stage: dict[str, Any], name: str) -> str:
    before, after = stage["before"].get(name), stage["after"].get(name)
    if before is None and after is None:
        return "-"
    return " > ".join("-" if v is None else f"{v:.3g}" for v in (before, after))
