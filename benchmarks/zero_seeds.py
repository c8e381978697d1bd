"""R1-Zero on the tiny base: three seeds with two controls each, held-out accuracy before and after.

    python benchmarks/zero_seeds.py [--quick] [--json FILE]

Each seed pre-trains its own base model and samples its own problems. The controls run on the same
base with the same budget; their rewards do not depend on the responses, so sampled and greedy
accuracy must stay within the noise. Every run is the shipped recipe on the command line, in a
separate process.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from publish import ROOT, arguments, publish, table

from veriloop.pipeline.runs.record import read_metrics

SEEDS = (0, 1, 2)
CONTROLS = ("none", "random", "shuffled_groups")  # `none`: the rewards of the verifiers
STILL = ("pass@1", "greedy")  # must not move in a control
SHOWN = ("pass@1", "greedy", "pass@4", "maj@4", "format", "mean_length")
QUICK = ("--steps", "2", "--evaluation.problems", "32", "--rollout.prompts", "8")
AFTER, BEFORE, FORMAT = 0.88, 0.30, 0.97  # what is claimed of every seed


def run(
    folder: Path, name: str, seed: int, control: str, *flags: str, quick: bool
) -> dict[str, Any]:
    """One run, with more flags of its command; returns its evaluations, curve and seconds."""
    base = yaml.safe_load((ROOT / "recipes/tiny/base.yaml").read_text()) | {"seed": seed}
    if quick:
        base |= {"steps": 200, "step_accuracy": 0.0, "name": "tiny/quick"}
    recipe = folder / f"base-{seed}.yaml"
    recipe.write_text(yaml.safe_dump(base))
    output = folder / name
    command = [
        sys.executable,
        "-m",
        "veriloop.stages.cli",
        "zero",
        "tiny/zero",
        "--start",
        str(recipe),
    ]
    command += ["--seed", str(seed), "--problem-seed", str(seed), "--output", str(output)]
    command += ["--reward.control", control, *flags, *(QUICK if quick else ())]
    with (folder / f"{name}.log").open("w") as log:
        done = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{(folder / f'{name}.log').read_text()[-3000:]}")
    stage = json.loads((output / "run.json").read_text())["stages"][-1]
    curve = read_metrics(output / "zero" / "metrics.jsonl")
    return {
        "name": name,
        "seed": seed,
        "control": control,
        "before": stage["before"],
        "after": stage["after"],
        "seconds": stage["seconds"],
        "sampler": stage["sampler"],
        "sync_max": max(step["sync/max"] for step in curve),
        "mismatch_max": max(step["sampling/sampling_logp_difference/max"] for step in curve),
        "curve": [
            {k: step[k] for k in ("step", "rewards/accuracy/mean", "completions/mean_length", "kl")}
            for step in curve
        ],
    }


def shortfalls(results: list[dict[str, Any]]) -> list[str]:
    """Claims that the results do not support."""
    missed: list[str] = []
    for r in results:
        before, after = r["before"], r["after"]
        if r["control"] != "none":
            missed += [f"{r['name']}: {moved}" for key in STILL if (moved := change(r, key))]
            continue
        if not before["pass@1"] <= BEFORE:
            missed.append(f"{r['name']}: before {before['pass@1']:.3f} > {BEFORE}")
        if not after["pass@1"] >= AFTER:
            missed.append(f"{r['name']}: after {after['pass@1']:.3f} < {AFTER}")
        if not after["format"] >= FORMAT:
            missed.append(f"{r['name']}: format {after['format']:.3f} < {FORMAT}")
        if not after["mean_length"] > before["mean_length"]:
            missed.append(f"{r['name']}: length did not rise")
    return missed


def change(run: Mapping[str, Any], key: str) -> str:
    """How a figure of a run changed, if its 95 % intervals do not overlap."""
    (low, high), (new_low, new_high) = (run[end][f"{key} 95%"] for end in ("before", "after"))
    if low <= new_high and new_low <= high:
        return ""
    return f"{key} moved from {run['before'][key]:.3f} to {run['after'][key]:.3f}, out of the noise"


def main() -> int:
    options = arguments(__doc__ or "")
    seeds = SEEDS[:1] if options.quick else SEEDS
    folder = Path(tempfile.mkdtemp(prefix="zero-seeds-"))
    results: list[dict[str, Any]] = []
    for control, seed in product(CONTROLS, seeds):
        name = f"seed-{seed}" if control == "none" else f"{control}-{seed}"
        results.append(run(folder, name, seed, control, quick=options.quick))
        print(f"{name}: {results[-1]['seconds']:.0f} s", flush=True)
    rows = [
        [r["name"], *(f"{r['before'][k]:.3f} > {r['after'][k]:.3f}" for k in SHOWN),
         f"{r['seconds']:.0f}", f"{r['sync_max']:.1e}", f"{r['mismatch_max']:.1e}"]
        for r in results
    ]  # fmt: skip
    text = table(["run", *SHOWN, "seconds", "sync max", "mismatch max"], rows)
    missed = [] if options.quick else shortfalls(results)
    return publish(options, text, results, failed=missed)


if __name__ == "__main__":
    sys.exit(main())
