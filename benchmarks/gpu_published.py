"""SmolLM2-135M-Instruct on one GPU: the stages of `recipes/real/smollm2/r1_card.yaml`.

    python benchmarks/gpu_published.py [--stages NAME ...] [--seconds S] [--svamp FILE]
                                       [--gsm8k TRAIN TEST] [--folder DIR] [--quick] [--json FILE]

Measures held-out sums, SVAMP's held-out questions and GSM8K's test questions before and after each
stage, its minutes, and for RL the mean seconds of a step by part and the trainer's memory in GiB.
After S seconds the run is interrupted; a stage that had not ended is reported as far as it came.
Without files the questions are read from the hub. Needs the model of
requirements/published-model.sh and its student of 15 layers (docs/real.md).
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from listed_runs import Settings, Stage, figures, listed, run
from publish import arguments, publish, table
from tiny_runs import OPTIONS, work_folder

LIST, SEED = "real/smollm2/r1_card", 0
STAGES = ("cold_start", "reasoning_rl", "rejection_sft", "dpo", "student", "distill")
SOURCES = ("chain_sum", "two_digits", "svamp", "gsm8k")
FIRST = 2  # steps that compile and record graphs
FEW: Mapping[str, Any] = {"evaluation.problems": 4, "evaluation.samples": 1}
QUICK: Settings = {
    "cold_start": FEW | {"data.rows": 64, "data.held_out": 4},
    "reasoning_rl": FEW | {"steps": 1, "rollout.prompts": 4, "algorithm.minibatches": 1},
    "rejection_sft": FEW | {"collect.questions": 64, "data.held_out": 1},
    "dpo": FEW | {"rollout.prompts": 32},
    "student": FEW | {"data.held_out": 1, "epochs": 1},
    "distill": FEW | {"steps": 1, "rollout.prompts": 4},
}


def record_of(stage: Stage) -> dict[str, Any]:
    """What is published of a stage, which may have been interrupted."""
    steps = stage["curve"]
    record = {
        "status": stage["status"],
        "seconds": stage.get("seconds"),
        "before": figures(stage.get("before") or {}),
        "after": figures(stage.get("after") or {}),
        "steps": len(steps),
    }
    rewards = [step["reward"] for step in steps if "reward" in step]
    if rewards:
        names = [name for name in steps[-1] if name.startswith(("step_time", "time/", "memory/"))]
        warm = steps[FIRST:] or steps
        means = {name: fmean(step.get(name, 0.0) for step in warm) for name in names}
        record |= {"rewards": rewards, "mean_of_a_step": means}
    return record


def shown(results: Mapping[str, Mapping[str, Any]]) -> str:
    """A row for each side of each stage: pass@1 and greedy accuracy by source."""
    rows = []
    for name, stage in results.items():
        for side in ("before", "after"):
            if stage[side]:
                cells = [_accuracies(stage[side], source) for source in SOURCES]
                minutes = (stage["seconds"] or 0) / 60
                rows.append([f"{side} {name}", *cells, minutes if side == "after" else "-"])
    return table(["", *SOURCES, "minutes"], rows)


def _accuracies(evaluation: Mapping[str, float], source: str) -> str:
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
    files = {"sets.svamp.path": str(options.svamp)} if options.svamp else {}
    if options.gsm8k:
        train, test = map(str, options.gsm8k)
        files |= {"sets.gsm8k.path": train, "sets.gsm8k.test": test}
    over = {stage: {**(QUICK[stage] if options.quick else {}), **files} for stage in STAGES}
    recipe = listed(LIST, SEED, over)
    recipe["stages"] = [stage for stage in recipe["stages"] if stage["name"] in options.stages]
    folder = work_folder(options.folder, "gpu-published")
    stages = run(folder, recipe, SEED, cores=os.cpu_count() or 1, seconds=options.seconds)
    results = {name: record_of(stage) for name, stage in stages.items()}
    short = [f"{name} has not ended" for name, stage in stages.items() if stage["status"] != "done"]
    return publish(options, shown(results), results, failed=short)


if __name__ == "__main__":
    sys.exit(main())
