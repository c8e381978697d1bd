"""Language reward against none: consistency and accuracy after the same training, three seeds.

    python benchmarks/language_reward.py [--quick] [--json FILE] [--start START] [--seeds N ...]

Each run is `recipes/tiny/reasoning_rl.yaml` on sums alone, and longer, with the reward's language
weight at 1 or at 0, in a process of its own on one core: the same start, questions and samples for
both of a seed. The start is a base recipe, pre-trained anew for each seed, or a folder with a
checkpoint.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from publish import ROOT, arguments, publish, table

from pipeline.record import read_metrics

SEEDS = (0, 1, 2)
WEIGHTS = {"reward": "1.0", "control": "0.0"}
CONSISTENT = 0.97  # with the reward, every seed
NEAR = 0.02  # pass@1 that the reward may cost
LONGER = ("--steps", "50", "--algorithm.kl-coefficient", "0.2")  # from a base, as tiny/zero
SUMS = {"problems": {"arithmetic": 1.0}, "evaluation": {"problems": 512}}
QUICK = ("--steps", "2", "--rollout.prompts", "8", "--evaluation.problems", "16")
CURVES = ("step", "rewards/accuracy/mean", "rewards/language/mean", "rewards/language/mean/en",
          "rewards/language/mean/zh", "completions/mean_length")  # fmt: skip


def start_of(folder: Path, start: str, seed: int, *, quick: bool) -> str:
    """A base recipe with this seed, or the folder itself."""
    if not start.endswith((".yaml", ".yml")):
        return start
    base = yaml.safe_load((ROOT / start).read_text()) | {"seed": seed}
    if quick:
        base |= {"steps": 200, "step_accuracy": 0.0, "name": "tiny/quick"}
    recipe = folder / f"base-{seed}.yaml"
    recipe.write_text(yaml.safe_dump(base))
    return str(recipe)


def run(folder: Path, start: str, arm: str, seed: int, *, quick: bool) -> dict[str, Any]:
    """One run; its evaluations, its curves and its seconds."""
    output, recipe = folder / f"{arm}-{seed}", folder / f"{arm}-{seed}.yaml"
    shipped = yaml.safe_load((ROOT / "recipes/tiny/reasoning_rl.yaml").read_text())
    recipe.write_text(yaml.safe_dump(shipped | SUMS))
    command = [sys.executable, "-m", "stages.command", "reasoning-rl", str(recipe)]
    command += ["--start", start, "--seed", str(seed), "--problem-seed", str(seed)]
    command += ["--reward.language", WEIGHTS[arm], "--output", str(output)]
    command += [*LONGER, *(QUICK if quick else ())]
    log = folder / f"{output.name}.log"
    with log.open("w") as said:
        done = subprocess.run(
            command, cwd=ROOT, stdout=said, stderr=said, check=False,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{output.name} failed:\n{log.read_text()[-3000:]}")
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
    """What the results do not show though it is claimed."""
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
        start={"default": "recipes/tiny/base.yaml", "help": "a base recipe, or a folder"},
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        jobs={"type": int, "default": 1, "help": "runs at a time, each on one core"},
    )
    seeds = options.seeds[:1] if options.quick else options.seeds
    folder = Path(tempfile.mkdtemp(prefix="language-reward-"))
    starts = {s: start_of(folder, options.start, s, quick=options.quick) for s in seeds}

    def one(job: tuple[str, int]) -> dict[str, Any]:
        arm, seed = job
        found = run(folder, starts[seed], arm, seed, quick=options.quick)
        after = found["after"]
        shown = f"language {after['language']:.3f}, pass@1 {after['pass@1']:.3f}"
        print(f"{arm}, seed {seed}: {shown}, {found['seconds']:.0f} s", flush=True)
        return found

    with ThreadPoolExecutor(options.jobs) as threads:
        results = list(threads.map(one, [(arm, seed) for seed in seeds for arm in WEIGHTS]))
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
