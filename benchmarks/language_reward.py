"""Language reward against none: consistency and accuracy after the same training, three seeds.

    python benchmarks/language_reward.py [--quick] [--json FILE] [--seeds N ...] [--folder DIR]

As in the paper, training starts from a cold start: for each seed the first stages of
`recipes/tiny/r1.yaml` (one base for all seeds, R1-Zero and cold start for each), then
`recipes/tiny/reasoning_rl.yaml` with more steps and a language weight of 1 and of 0, each in a
separate process on one core. Both runs of a seed share the start and the questions. Finished runs
in the folder are not repeated.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from publish import ROOT, arguments, publish, table
from tiny_runs import OPTIONS, work_folder

from veriloop.pipeline.runs.record import read_metrics

SEEDS = (0, 1, 2)
WEIGHTS = {"reward": "1.0", "control": "0.0"}
CONSISTENT = 0.97  # with the reward, every seed
NEAR = 0.02  # pass@1 that the reward may cost
SEEDED: dict[str, tuple[str, ...]] = {  # the first stages, and what the seed is for
    "base": (),
    "zero": ("seed", "problem_seed"),
    "cold_start": ("seed", "collect.problem_seed"),
}
LONGER = ("--steps", "50", "--evaluation.problems", "512")
QUICK = ("--steps", "2", "--rollout.prompts", "8", "--evaluation.problems", "16")
QUICK_START = {  # of the first stages
    "base": {"steps": 200, "step_accuracy": 0.0, "name": "tiny/quick"},
    "zero": {"steps": 1, "rollout.prompts": 4, "evaluation.problems": 8},
    "cold_start": {"collect.questions": 40, "epochs": 1, "evaluation.problems": 8},
}
CURVES = ("step", "rewards/accuracy/mean", "rewards/language/mean", "rewards/language/mean/en",
          "rewards/language/mean/zh", "completions/mean_length")  # fmt: skip


def ended(command: Sequence[str], log: Path) -> None:
    """Run a stage on one core. Raises SystemExit with its last output if it fails."""
    with log.open("w") as output:
        done = subprocess.run(
            [sys.executable, "-m", "veriloop.stages.cli", *command], cwd=ROOT,
            stdout=output, stderr=output, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{log.stem} failed:\n{log.read_text()[-3000:]}")


def cold_start(folder: Path, seed: int, *, quick: bool) -> Path:
    """The checkpoint of a cold start with this seed."""
    recipe, output = folder / f"start-{seed}.yaml", folder / f"start-{seed}"
    whole = yaml.safe_load((ROOT / "recipes/tiny/r1.yaml").read_text())
    stages = [stage for stage in whole["stages"] if stage["name"] in SEEDED]
    for stage in stages:
        own = {key: seed for key in SEEDED[stage["name"]]}
        stage["set"] = stage.get("set", {}) | own | (QUICK_START[stage["name"]] if quick else {})
        stage.pop("goals", None)  # what both arms start from is what it is
    recipe.write_text(yaml.safe_dump(whole | {"stages": stages}))
    log = folder / f"start-{seed}.log"
    ended(["r1", str(recipe), "--output", str(output), "--resume"], log)
    return Path(
        json.loads((output / "run.json").read_text())["stages"][-1]["outputs"]["checkpoint"]
    )


def run(folder: Path, start: Path, arm: str, seed: int, *, quick: bool) -> dict[str, Any]:
    """One run: its evaluations, curves and seconds."""
    output = folder / f"{arm}-{seed}"
    command = ["reasoning-rl", "tiny/reasoning_rl", "--start", str(start), "--output", str(output)]
    command += ["--seed", str(seed), "--problem-seed", str(seed), "--resume"]
    command += ["--reward.language", WEIGHTS[arm], *LONGER, *(QUICK if quick else ())]
    ended(command, folder / f"{output.name}.log")
    stage = json.loads((output / "run.json").read_text())["stages"][-1]
    steps = read_metrics(output / "reasoning_rl" / "metrics.jsonl")
    return {
        "arm": arm,
        "seed": seed,
        "before": stage["before"],
        "after": stage["after"],
        "seconds": stage["seconds"],
        "curve": [{name: step.get(name) for name in CURVES} for step in steps],
    }


def shortfalls(results: list[dict[str, Any]]) -> list[str]:
    """Claims that the results do not support."""
    missed: list[str] = []
    for seed in dict.fromkeys(r["seed"] for r in results):
        own = {r["arm"]: r for r in results if r["seed"] == seed}
        reward, control = own["reward"]["after"], own["control"]["after"]
        before = own["control"]["before"]["language"]
        if reward["language"] < CONSISTENT:
            missed.append(f"seed {seed}: consistency {reward['language']:.3f} < {CONSISTENT}")
        if control["language"] >= before:
            change = f"from {before:.3f} to {control['language']:.3f}"
            missed.append(f"seed {seed}: consistency of the control did not fall, {change}")
        if reward["pass@1"] < control["pass@1"] - NEAR:
            cost = f"{reward['pass@1']:.3f} against {control['pass@1']:.3f}"
            missed.append(f"seed {seed}: pass@1 {cost} of the control")
    return missed


def main() -> int:
    options = arguments(
        __doc__ or "",
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        **OPTIONS,
    )
    seeds = options.seeds[:1] if options.quick else options.seeds
    folder = work_folder(options.folder, "language-reward")
    starts = {seed: cold_start(folder, seed, quick=options.quick) for seed in seeds}

    def train(job: tuple[str, int]) -> dict[str, Any]:
        arm, seed = job
        result = run(folder, starts[seed], arm, seed, quick=options.quick)
        after = result["after"]
        shown = f"language {after['language']:.3f}, pass@1 {after['pass@1']:.3f}"
        print(f"{arm}, seed {seed}: {shown}, {result['seconds']:.0f} s", flush=True)
        return result

    with ThreadPoolExecutor(options.jobs) as threads:
        results = list(threads.map(train, [(arm, seed) for seed in seeds for arm in WEIGHTS]))
    names = ("language", "pass@1", "greedy", "format", "mean_length")
    rows = [
        [f"{r['arm']}, seed {r['seed']}"]
        + [f"{r['before'][k]:.3f} > {r['after'][k]:.3f}" for k in names]
        + [f"{r['seconds']:.0f}"]
        for r in results
    ]
    missed = [] if options.quick else shortfalls(results)
    return publish(options, table(["run", *names, "seconds"], rows), results, failed=missed)


if __name__ == "__main__":
    sys.exit(main())
