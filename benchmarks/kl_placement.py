"""Where a KL estimator is put, and what becomes of training: the published claims, put to the test.

    python benchmarks/kl_placement.py [--quick] [--json FILE] [--betas B ...] [--steps N] [--jobs N]

Claims: k1 in the reward is unbiased and works best; k1 in the loss is unstable; k3 in the reward
collapses; k3 in the loss is stable. Each (estimator, place) is trained at several weights, learning
rates and lengths on the tiny base, three seeds each, with the reference never replaced. A run is
unstable when its held-out accuracy falls by more than FALL from its best.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import yaml
from publish import ROOT, arguments, publish, table

from pipeline.record import read_metrics

SEEDS = (0, 1, 2)
PLACES = [("k1", "reward"), ("k1", "loss"), ("k2", "loss"), ("k3", "reward"), ("k3", "loss"),
          ("k3_corrected", "loss")]  # fmt: skip
BETAS = (0.01, 0.1, 0.5)
RATES = (1.6e-4, 5e-4)
FALL = 0.10
QUICK = ("--rollout.prompts", "8", "--evaluation.problems", "16", "--evaluation.every", "0")


class Run(NamedTuple):
    estimator: str
    place: str
    beta: float
    rate: float
    seed: int

    @property
    def name(self) -> str:
        return "-".join(map(str, self))


def run(folder: Path, asked: Run, steps: int, *, quick: bool) -> dict[str, Any]:
    """One run: accuracy on the way, KL, and whether it ended on a failure of arithmetic."""
    base = yaml.safe_load((ROOT / "recipes/tiny/base.yaml").read_text()) | {"seed": asked.seed}
    if quick:
        base |= {"steps": 200, "step_accuracy": 0.0, "name": "tiny/quick"}
    recipe = folder / f"base-{asked.seed}.yaml"
    recipe.write_text(yaml.safe_dump(base))
    output = folder / asked.name
    flags = {
        "start": recipe, "output": output, "seed": asked.seed, "problem-seed": asked.seed,
        "steps": steps, "optimizer.learning-rate": asked.rate, "algorithm.minibatches": 4,
        "algorithm.kl-estimator": asked.estimator, "algorithm.kl-placement": asked.place,
        "algorithm.kl-coefficient": asked.beta,
    }  # fmt: skip
    command = [sys.executable, "-m", "stages.command", "zero", "tiny/algorithms"]
    command += [word for key, value in flags.items() for word in (f"--{key}", str(value))]
    command += ["--algorithm.allow-biased", *(QUICK if quick else ())]
    log = folder / f"{asked.name}.log"
    with log.open("w") as stream:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, cwd=ROOT, stdout=stream, stderr=stream, env=environment, check=False
        )
    told = log.read_text()
    if done.returncode and "gradient norm is" not in told:  # any other end says nothing of KLs
        raise SystemExit(f"{asked.name} failed:\n{told[-3000:]}")
    return measured(asked, output, failed=bool(done.returncode))


def measured(asked: Run, output: Path, *, failed: bool) -> dict[str, Any]:
    steps = read_metrics(output / "zero" / "metrics.jsonl")
    rows = [json.loads(line) for line in (output / "zero/evaluations.jsonl").open()]
    accuracy = [row["pass@1"] for row in rows]
    return {
        **asked._asdict(),
        "broke_off": failed,
        "before": accuracy[0],
        "after": accuracy[-1],
        "best": max(accuracy),
        "unstable": failed or max(accuracy) - accuracy[-1] > FALL,
        "kl": steps[-1].get("kl", 0.0) if steps else None,
        "held_out": [[row["step"], row["pass@1"]] for row in rows],
    }


def rows_of(results: list[dict[str, Any]]) -> list[list[Any]]:
    """One row for each estimator, place, weight and rate: means over seeds, unstable runs."""
    rows: list[list[Any]] = []
    keys = ("estimator", "place", "beta", "rate")
    for key in dict.fromkeys(tuple(r[k] for k in keys) for r in results):
        own = [r for r in results if tuple(r[k] for k in keys) == key]
        kl = [r["kl"] for r in own if r["kl"] is not None]
        after, best = fmean(r["after"] for r in own), fmean(r["best"] for r in own)
        unstable = f"{sum(r['unstable'] for r in own)}/{len(own)}"
        rows.append([*key, after, best, fmean(kl) if kl else float("nan"), unstable])
    return rows


def main() -> int:
    options = arguments(
        __doc__ or "",
        betas={"nargs": "+", "type": float, "default": list(BETAS)},
        rates={"nargs": "+", "type": float, "default": list(RATES)},
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        steps={"type": int, "default": 100},
        jobs={"type": int, "default": 1, "help": "runs at a time, each on one core"},
    )
    places, betas, rates, seeds = PLACES, options.betas, options.rates, options.seeds
    if options.quick:
        places, betas, rates, seeds = places[:2], betas[:1], rates[:1], seeds[:1]
    steps = 2 if options.quick else options.steps
    folder = Path(tempfile.mkdtemp(prefix="kl-"))
    wanted = [
        Run(*place, beta, rate, seed)
        for place, beta, rate, seed in product(places, betas, rates, seeds)
    ]
    with ThreadPoolExecutor(options.jobs) as threads:
        results = list(
            threads.map(lambda asked: run(folder, asked, steps, quick=options.quick), wanted)
        )
    header = ["estimator", "in the", "beta", "rate", "after", "best", "KL", "unstable"]
    return publish(options, table(header, rows_of(results)), results)


if __name__ == "__main__":
    sys.exit(main())
