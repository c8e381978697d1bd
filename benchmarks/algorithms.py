"""Every policy preset on the tiny base at equal samples: accuracy, KL, length, seconds, memory.

    python benchmarks/algorithms.py [--quick] [--json FILE] [--presets NAME ...] [--seeds N ...]
                                    [--folder DIR] [--jobs N]

Each run is `recipes/tiny/algorithms.yaml` with a preset and what is written beside it below, in a
process of its own on one core: the same base, questions and number of rollouts for all of a seed.
With --folder the runs are kept there, and one that ended under the same flags is not made again.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from publish import ROOT, arguments, publish, table

from pipeline.presets import PRESETS
from pipeline.record import read_metrics

SEEDS = (0, 1, 2)
REACH = 0.85  # held-out pass@1 that these are to reach, every seed of theirs
TO_REACH = ("grpo", "rloo", "dr_grpo", "dapo", "gspo", "cispo", "ppo")
# What a preset needs on a model of half a million parameters; the rest is the preset's own.
_SEVERAL = ("--algorithm.minibatches", "4")  # optimizer steps a rollout, as tiny/zero has
_ONE = ("--optimizer.learning-rate", "8e-4")  # a quarter of the steps, so larger ones
_WIDER = ("--algorithm.clip-low", "3e-3", "--algorithm.clip-high", "4e-3")  # answers of 20 tokens
TUNED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("reinforce", "vpg", "rloo"), _ONE),
    **dict.fromkeys(("grpo", "grpo_process", "dr_grpo", "dapo", "cispo"), _SEVERAL),
    "gspo": (*_SEVERAL, *_WIDER),
}
QUICK = ("--steps", "2", "--rollout.prompts", "8", "--evaluation.problems", "16",
         "--evaluation.every", "0")  # fmt: skip


def run(folder: Path, preset: str, seed: int, *, quick: bool) -> dict[str, Any]:
    """One run; its evaluations, its curves and what it took."""
    base = yaml.safe_load((ROOT / "recipes/tiny/base.yaml").read_text()) | {"seed": seed}
    if quick:
        base |= {"steps": 200, "step_accuracy": 0.0, "name": "tiny/quick"}
    recipe = folder / f"base-{seed}.yaml"
    recipe.write_text(yaml.safe_dump(base))
    output = folder / f"{preset}-{seed}"
    flags = ["--start", str(recipe), "--seed", str(seed), "--problem-seed", str(seed)]
    flags += ["--algorithm.preset", preset, "--output", str(output), *TUNED.get(preset, ())]
    command = [sys.executable, "-m", "stages.command", "zero", "tiny/algorithms", *flags]
    command += [*(QUICK if quick else ())]
    kept = folder / f"{output.name}.json"
    if kept.is_file() and (known := json.loads(kept.read_text()))["command"] == command[1:]:
        return known["summary"]
    shutil.rmtree(output, ignore_errors=True)
    with (folder / f"{output.name}.log").open("w") as log:
        child = subprocess.Popen(
            command, cwd=ROOT, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{output.name} failed:\n{Path(log.name).read_text()[-3000:]}")
    found = summary(preset, seed, output, used.ru_maxrss)
    kept.write_text(json.dumps({"command": command[1:], "summary": found}))
    return found


def summary(preset: str, seed: int, output: Path, peak_kb: int) -> dict[str, Any]:
    stage = json.loads((output / "run.json").read_text())["stages"][-1]
    steps = read_metrics(output / "zero" / "metrics.jsonl")
    rows = [json.loads(line) for line in (output / "zero/evaluations.jsonl").open()]
    return {
        "preset": preset,
        "seed": seed,
        "before": stage["before"],
        "after": stage["after"],
        "seconds": stage["seconds"],
        "peak_gib": peak_kb / 2**20,
        "rollouts": sum(step["questions"] for step in steps),
        "kl": steps[-1].get("kl", 0.0),
        "held_out": [[row["step"], row["pass@1"]] for row in rows],
        "curve": [
            {k: step.get(k) for k in ("step", "rewards/accuracy/mean", "completions/mean_length",
                                      "kl", "entropy", "clip_ratio/region_mean")}
            for step in steps
        ],
    }  # fmt: skip


def shortfalls(results: list[dict[str, Any]]) -> list[str]:
    """Runs of the presets that are to reach the bar, and do not."""
    return [
        f"{r['preset']}, seed {r['seed']}: pass@1 {r['after']['pass@1']:.3f} < {REACH}"
        for r in results
        if r["preset"] in TO_REACH and r["after"]["pass@1"] < REACH
    ]


def rows_of(results: list[dict[str, Any]]) -> list[list[Any]]:
    """One row a preset: means over its seeds, and the worst accuracy."""
    rows: list[list[Any]] = []
    for preset in dict.fromkeys(r["preset"] for r in results):
        own = [r for r in results if r["preset"] == preset]
        after = [r["after"]["pass@1"] for r in own]
        rows.append(
            [preset, fmean(r["before"]["pass@1"] for r in own), fmean(after), min(after)]
            + [fmean(r[k] for r in own) for k in ("kl", "seconds", "peak_gib")]
            + [fmean(r["after"]["mean_length"] for r in own), fmean(r["rollouts"] for r in own)]
        )
    return rows


def main() -> int:
    options = arguments(
        __doc__ or "",
        presets={"nargs": "+", "default": list(PRESETS), "choices": list(PRESETS)},
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        folder={"type": Path, "default": None, "help": "where runs are kept; default: nowhere"},
        jobs={"type": int, "default": 1, "help": "runs at a time, each on one core"},
    )
    seeds = options.seeds[:1] if options.quick else options.seeds
    folder = options.folder or Path(tempfile.mkdtemp(prefix="algorithms-"))
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [(preset, seed) for seed in seeds for preset in options.presets]

    def one(job: tuple[str, int]) -> dict[str, Any]:
        found = run(folder, *job, quick=options.quick)
        print(
            f"{job[0]}, seed {job[1]}: pass@1 {found['after']['pass@1']:.3f}, "
            f"{found['seconds']:.0f} s",
            flush=True,
        )
        return found

    with ThreadPoolExecutor(options.jobs) as threads:
        results = list(threads.map(one, wanted))
    header = ["preset", "before", "after", "worst seed", "KL", "seconds", "GiB", "length", "asked"]
    text = table(header, rows_of(results))
    return publish(options, text, results, failed=[] if options.quick else shortfalls(results))


if __name__ == "__main__":
    sys.exit(main())
