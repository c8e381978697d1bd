"""SmolLM2-135M-Instruct on one GPU: the stages of `recipes/real/smollm2/r1_card.yaml`.

    python benchmarks/gpu_published.py [--stages NAME ...] [--seconds S] [--svamp FILE]
                                       [--gsm8k TRAIN TEST] [--folder DIR] [--quick] [--json FILE]

Measures held-out sums, SVAMP's held-out questions and GSM8K's test questions before and after each
stage, its minutes, and for RL the mean seconds of a step by part and the trainer's memory in GiB.
After S seconds the run is interrupted; a stage that had not ended is reported as far as it came.
Without files the questions are read from the hub. Needs the model of
requirements/published-model.sh.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from listed_runs import listed
from publish import ROOT, arguments, publish, table
from tiny_runs import OPTIONS, work_folder

from veriloop.pipeline.runs.record import read_metrics

LIST = "real/smollm2/r1_card"
STAGES = ("cold_start", "reasoning_rl", "rejection_sft", "dpo", "distill")
SOURCES = ("chain_sum", "two_digits", "svamp", "gsm8k")
FEW: dict[str, Any] = {"evaluation.problems": 4, "evaluation.samples": 1}
QUICK: dict[str, dict[str, Any]] = {
    "cold_start": FEW | {"data.rows": 64, "data.held_out": 4},
    "reasoning_rl": FEW | {"steps": 1, "rollout.prompts": 4, "algorithm.minibatches": 1},
    "rejection_sft": FEW | {"collect.questions": 64, "data.held_out": 1},
    "dpo": FEW | {"rollout.prompts": 32},
    "distill": FEW | {"steps": 1, "rollout.prompts": 4},
}
STOPS_S = 60.0  # to write a checkpoint after an interrupt


def cut(recipe: dict[str, Any], stages: list[str]) -> dict[str, Any]:
    """The list with these stages alone."""
    return recipe | {"stages": [one for one in recipe["stages"] if one["name"] in stages]}


def run(recipe: dict[str, Any], folder: Path, seconds: float) -> dict[str, Any]:
    """What each stage recorded, by its name."""
    path, output = folder / "recipe.yaml", folder / "run"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    command = [sys.executable, "-m", "veriloop.stages.cli", "r1", str(path)]
    child = subprocess.Popen(
        [*command, "--output", str(output), "--resume"], cwd=ROOT, env=os.environ.copy()
    )
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
        child.wait(STOPS_S)
    if not (output / "run.json").is_file():
        raise SystemExit(f"the run ended with status {child.returncode} before its first stage")
    entries = json.loads((output / "run.json").read_text())["stages"]
    return {entry["name"]: record(entry, output / entry["name"]) for entry in entries}


def record(entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What is published of a stage."""
    steps = read_metrics(folder / "metrics.jsonl")
    kept = {
        "status": entry["status"],
        "seconds": entry.get("seconds"),
        "before": figures(entry.get("before") or {}),
        "after": figures(entry.get("after") or {}),
        "steps": len(steps),
    }
    rewards = [step["reward"] for step in steps if "reward" in step]
    if rewards:
        kept["curve"] = rewards
        names = [name for name in steps[-1] if name.startswith(("step_time", "time/", "memory/"))]
        warm = steps[2:] or steps  # the first ones compile and record graphs
        kept["a_step"] = {name: fmean(step.get(name, 0.0) for step in warm) for name in names}
    return kept


def figures(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    names = ("pass@1", "greedy", "format", "mean_length")
    return {key: value for key, value in evaluation.items() if key.startswith(names)}


def shown(results: Mapping[str, Mapping[str, Any]]) -> str:
    """A row for each side of each stage: pass@1 and greedy accuracy by source."""
    rows = []
    for name, one in results.items():
        for side in ("before", "after"):
            if one[side]:
                cells = [_pair(one[side], source) for source in SOURCES]
                minutes = (one["seconds"] or 0) / 60
                rows.append([f"{side} {name}", *cells, minutes if side == "after" else "-"])
    return table(["", *SOURCES, "minutes"], rows)


def _pair(evaluation: Mapping[str, float], source: str) -> str:
    if f"pass@1/{source}" not in evaluation:
        return "-"
    return f"{evaluation[f'pass@1/{source}']:.3f}, {evaluation[f'greedy/{source}']:.3f}"


def main() -> int:
    options = arguments(
        __doc__ or "",
        stages={"nargs": "+", "choices": STAGES, "default": list(STAGES)},
        seconds={"type": float, "default": None, "help": "interrupt the run after these"},
        svamp={"type": Path, "help": "file with SVAMP's questions"},
        gsm8k={"type": Path, "nargs": 2, "help": "files with GSM8K's questions: train and test"},
        folder=OPTIONS["folder"],
    )
    over = {stage: dict(QUICK[stage]) if options.quick else {} for stage in STAGES}
    for stage in STAGES if options.svamp else ():
        over[stage]["sets.svamp.path"] = str(options.svamp)
    for stage in STAGES[:3] if options.gsm8k else ():
        train, test = map(str, options.gsm8k)
        over[stage] |= {"sets.gsm8k.path": train, "sets.gsm8k.test": test}
    recipe = cut(listed(LIST, 0, over), options.stages)
    results = run(recipe, work_folder(options.folder, "gpu-published"), options.seconds)
    short = [f"{name} has not ended" for name, one in results.items() if one["status"] != "done"]
    return publish(options, shown(results), results, failed=short)


if __name__ == "__main__":
    sys.exit(main())
