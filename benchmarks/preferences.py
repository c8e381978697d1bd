"""Every preference loss on generated pairs: wins over the start by an exact rule, margins, KL.

    python benchmarks/preferences.py [--quick] [--json FILE] [--start FOLDER]

Each loss trains the tiny base on the same pairs with three seeds, by its shipped recipe on the
command line. Then the start and the policy answer the same held-out problems; the answer with the
higher rule-based reward (accuracy and format) wins, and a tie counts half. KL is that of the policy
to the start in nats per answer, estimated on the policy's answers. IPO runs until its margin
converges, which must be at 1 / (2 tau).
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from publish import ROOT, arguments, publish, table

from veriloop.data import arithmetic
from veriloop.data.preference_ids import EncodedAnswer
from veriloop.data.problem import Problem
from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.pretraining import BaseRecipe
from veriloop.pipeline.model.policy import load_generation_config, load_policy, load_tokenizer
from veriloop.pipeline.preference.labelling import ids_of
from veriloop.pipeline.preference.logps import segment_logps
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.runs.record import read_metrics
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.sampling.torch_engine import TorchSampler
from veriloop.pipeline.types import Rollout
from veriloop.stages import base
from veriloop.verifiers.registry import get, judge

LOSSES = ("dpo", "ipo", "kto", "cpo", "simpo", "orpo", "two_d_dpo")
SEEDS = (0, 1, 2)
TAU = 0.1
LAST = 10  # optimizer steps whose mean is IPO's final margin
QUICK = ("--data.rows", "64", "--data.held-out", "16", "--batch", "32", "--evaluation.problems",
         "4", "--evaluation.samples", "1")  # fmt: skip
LONG = ("--schedule.epochs", "20", "--optimizer.learning-rate", "5e-4", "--optimizer.schedule",
        "cosine")  # fmt: skip
WINS, STANDS = 0.55, 0.05  # what is claimed: the least win rate; of IPO's margin, how near


def base_model(*, quick: bool) -> Path:
    """The tiny base, from the cache if it is there; for a quick run one with little training."""
    recipe = read("tiny/base")
    assert isinstance(recipe, BaseRecipe)
    if quick:
        recipe = recipe.model_copy(
            update={"name": "tiny/quick", "steps": 150, "step_accuracy": 0.0}
        )
    return base.ensure(recipe)


def train(folder: Path, name: str, start: Path, flags: list[str], *, quick: bool) -> dict[str, Any]:
    """One run of a shipped recipe: its final checkpoint, evaluations and curve."""
    recipe, output = name.split("-")[0], folder / name
    command = [sys.executable, "-m", "veriloop.stages.cli", "preference", f"tiny/{recipe}"]
    command += ["--start", str(start), "--output", str(output), "--sampler.engine", "torch"]
    command += ["--no-tensorboard", *flags, *(QUICK if quick else ())]
    with (folder / f"{name}.log").open("w") as log:
        done = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{(folder / f'{name}.log').read_text()[-3000:]}")
    stage = json.loads((output / "run.json").read_text())["stages"][-1]
    curve = read_metrics(output / "preference" / "metrics.jsonl")
    return {
        "checkpoint": stage["outputs"]["checkpoint"],
        "before": stage["before"],
        "after": stage["after"],
        "seconds": stage["seconds"],
        "margins": [row["rewards/margins"] for row in curve],
    }


def answers(checkpoint: Path, problems: list[Problem], seed: int) -> list[Rollout]:
    """One sampled answer to each problem."""
    scribe = RolloutGenerator(load_tokenizer(checkpoint), load_generation_config(checkpoint))
    engine = TorchSampler(str(checkpoint))
    sampling = Sampling(per_prompt=1, temperature=1.0, max_tokens=112, seed=seed)
    return scribe.rollouts(engine, [(p.id, p) for p in problems], sampling)


def rewards(rollouts: list[Rollout]) -> list[float]:
    """The sum of accuracy and format of each answer."""
    layout = get("think_format")
    return [
        (judge(r.problem, r.response).score or 0.0)
        + (judge(layout.problem(r.problem.reference), r.response).score or 0.0)
        for r in rollouts
    ]


def win_rate(ours: list[float], theirs: list[float]) -> float:
    wins = [float(a > b) + 0.5 * (a == b) for a, b in zip(ours, theirs, strict=True)]
    return fmean(wins)


@torch.no_grad()
def kl(policy: Path, start: Path, rollouts: list[Rollout]) -> float:
    """Mean of log(policy / start) over the policy's own answers: nats per answer."""
    ids: list[EncodedAnswer] = [ids_of(r) for r in rollouts]
    both = [
        torch.cat([
            segment_logps(load_policy(path), ids[i : i + 64], row=256, chunk=4096)
            for i in range(0, len(ids), 64)
        ])
        for path in (policy, start)
    ]  # fmt: skip
    return (both[0] - both[1]).mean().item()


def compared(
    run: dict[str, Any], start: Path, problems: list[Problem], seed: int
) -> dict[str, Any]:
    """Add the win rate and KL against the start to a run."""
    policy = Path(run["checkpoint"])
    own, theirs = (answers(path, problems, 1000 + seed) for path in (policy, start))
    return run | {
        "win_rate": win_rate(rewards(own), rewards(theirs)),
        "kl": kl(policy, start, own),
        "margin": run["after"]["rewards/margins"],
        "accuracy": run["after"].get("rewards/accuracies"),
    }


def shortfalls(results: dict[str, list[dict[str, Any]]], margins: list[float]) -> list[str]:
    """Claims that the results do not support."""
    missed = [
        f"{name}: win rate {fmean(r['win_rate'] for r in runs):.3f} < {WINS}"
        for name, runs in results.items()
        if fmean(r["win_rate"] for r in runs) < WINS
    ]
    for seed, margin in enumerate(margins):
        if abs(margin * 2 * TAU - 1) > STANDS:
            missed.append(
                f"ipo, seed {seed}: the margin stands at {margin:.2f} nats, not {1 / (2 * TAU):.2f}"
            )
    return missed


def main() -> int:
    options = arguments(
        __doc__ or "",
        start={"type": Path, "help": "a checkpoint to start from; default: the tiny base"},
    )
    quick = options.quick
    seeds = SEEDS[:1] if quick else SEEDS
    start = (options.start or base_model(quick=quick)).resolve()
    problems = arithmetic.distinct("test", 1, 32 if quick else 512)
    folder = Path(tempfile.mkdtemp(prefix="preferences-"))
    results: dict[str, list[dict[str, Any]]] = {}
    for name in LOSSES:
        for seed in seeds:
            flags = ["--seed", str(seed), "--data.seed", str(seed)]
            run = train(folder, f"{name}-{seed}", start, flags, quick=quick)
            results.setdefault(name, []).append(compared(run, start, problems, seed))
            print(f"{name}, seed {seed}: {run['seconds']:.0f} s", flush=True)
    margins = [ipo_margin(folder, start, seed, quick=quick) for seed in seeds]
    missed = [] if quick else shortfalls(results, margins)
    content = {"runs": results, "ipo_margins": margins, "ipo_optimum": 1 / (2 * TAU)}
    return publish(options, summary(results, margins), content, failed=missed)


def ipo_margin(folder: Path, start: Path, seed: int, *, quick: bool) -> float:
    """IPO's margin after many passes over the same pairs, in nats."""
    flags = ["--seed", str(seed), "--data.seed", str(seed), "--data.rows", "256", *LONG]
    run = train(folder, f"ipo-long-{seed}", start, flags, quick=quick)
    return fmean(run["margins"][-LAST:]) / TAU  # the reward is tau times the margin


def summary(results: dict[str, list[dict[str, Any]]], margins: list[float]) -> str:
    """The table and the bars."""
    columns = ("win_rate", "margin", "kl", "accuracy", "seconds")
    rows = [
        [name, *(_spread([r[c] for r in runs]) for c in columns),
         *(_spread([r["after"][c] for r in runs]) for c in ("pass@1", "format"))]
        for name, runs in results.items()
    ]  # fmt: skip
    bars = [
        f"{name:<10}{'#' * round(40 * fmean(r['win_rate'] for r in runs))}"
        for name, runs in results.items()
    ]
    stood = ", ".join(f"{margin:.2f}" for margin in margins)
    return "\n".join(
        [
            table(["loss", *columns, "pass@1", "format"], rows),
            "",
            "wins over the start, a tie half of one (20 #: neither better nor worse)",
            *bars,
            "",
            f"IPO's margin after many passes: {stood} nats; 1 / (2 tau) = {1 / (2 * TAU):.2f}",
        ]
    )


def _spread(values: list[float | None]) -> str:
    """Mean and range over seeds."""
    known = [v for v in values if v is not None]
    if not known:
        return "-"
    if len(known) == 1:
        return f"{known[0]:.3g}"
    return f"{fmean(known):.3g} [{min(known):.3g}, {max(known):.3g}]"


if __name__ == "__main__":
    sys.exit(main())
