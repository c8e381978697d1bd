"""A student distilled from a teacher, against the same student trained by reinforcement learning.

    python benchmarks/distillation.py [--quick] [--json FILE] [--teacher FOLDER] [--student FOLDER]

All arms start from one student base; seeds determine the questions, the samples and the order of
batches. Compute is CPU seconds of whole runs, including evaluation and start, and of sampling the
teacher; it is equal without the training of the teacher. Where this script trains the teacher, the
cost of each method with that training is reported as well, as if the teacher taught one student,
and `rl_longer` is RL with as much. RL gets as many steps as take the compute of the most expensive
distillation, or up to 15 % more, and is reported with its actual compute. Claim: the paper's
distillation, on verified samples, exceeds RL of equal compute, the teacher's training not counted,
in pass@1 by more than the noise between seeds. Of `rl_longer` nothing is claimed.
"""

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from paired import lead
from publish import ROOT, arguments, publish, table

from veriloop.data import arithmetic
from veriloop.data.problem import Problem
from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.pretraining import BaseRecipe
from veriloop.pipeline.model.policy import load_generation_config, load_tokenizer
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.runs.record import read_metrics
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.sampling.torch_engine import TorchSampler
from veriloop.stages import base
from veriloop.verifiers.registry import get, judge

ARMS = ("distill", "distill_logits", "distill_on_policy")
LONGER = "rl_longer"  # RL with the compute of the teacher's training as well
SEEDS = (0, 1, 2, 3, 4)
SHOWN = ("pass@1", "greedy", "format", "mean_length")
QUESTIONS, ANSWERS = 500, 4  # of the teacher
LEFT_OUT = ("curve", "checkpoint")  # of what is published
PILOT = 4  # RL steps that tell what one costs
MOST, AIM, ATTEMPTS = 1.15, 1.075, 4  # of the budget: what RL may take, is to take; runs for it
QUICK = ("--evaluation.problems", "16", "--evaluation.samples", "1")
ZERO = ("--optimizer.learning-rate", "5e-4", "--rollout.prompts", "32", "--rollout.per-prompt", "8",
        "--algorithm.minibatches", "2")  # fmt: skip


def cpu() -> float:
    """CPU seconds of this process and of its finished children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in used)


def command(folder: Path, name: str, words: list[str], *, quick: bool) -> dict[str, Any]:
    """One run of a shipped recipe: its CPU seconds, evaluations and curve."""
    output, began = folder / name, cpu()
    command_line = [sys.executable, "-m", "veriloop.stages.cli", *words, "--output", str(output)]
    command_line += ["--sampler.engine", "torch", "--trainer.threads", "1", "--no-tensorboard"]
    with (folder / f"{name}.log").open("w") as log:
        done = subprocess.run(
            [*command_line, *(QUICK if quick else ())],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{(folder / f'{name}.log').read_text()[-3000:]}")
    stage = json.loads((output / "run.json").read_text())["stages"][-1]
    return {
        "cpu": cpu() - began,
        "checkpoint": stage["outputs"]["checkpoint"],
        "before": stage["before"],
        "after": stage["after"],
        "curve": read_metrics(output / stage["name"] / "metrics.jsonl"),
    }


def base_model(name: str, *, quick: bool) -> Path:
    """A base model, from the cache if it is there; for a quick run one with little training."""
    recipe = read(name)
    assert isinstance(recipe, BaseRecipe)
    if quick:
        change = {"name": f"{name}-quick", "steps": 60, "step_accuracy": 0.0}
        recipe = recipe.model_copy(update=change)
    return base.ensure(recipe)


def trained_teacher(folder: Path, *, quick: bool) -> tuple[Path, float]:
    """Train a teacher: R1-Zero on the larger base with the student's tokenizer.

    Returns its checkpoint and its CPU seconds, without those of the base model.
    """
    words = ["zero", "tiny/zero", "--start", str(base_model("tiny/base_r1", quick=quick))]
    words += ["--steps", "2", "--rollout.prompts", "8"] if quick else []
    run = command(folder, "teacher", words, quick=quick)
    return Path(run["checkpoint"]), run["cpu"]


def with_teacher(arms: dict[str, dict[str, Any]], teacher_cpu: float) -> None:
    """Add what each method costs with the training of its teacher, for one student."""
    for arm in ARMS:
        arms[arm]["cpu_with_teacher"] = arms[arm]["cpu"] + teacher_cpu


def samples(teacher: Path, path: Path, seed: int, *, quick: bool) -> dict[str, float]:
    """Write the teacher's correct, well-formatted answers; returns CPU seconds and their number.

    A quick run takes every answer, since its teacher has learned nothing yet.
    """
    began, count = cpu(), 40 if quick else QUESTIONS
    problems = [arithmetic.problem("rl", 1000 + seed, n) for n in range(count)]
    scribe = RolloutGenerator(load_tokenizer(teacher), load_generation_config(teacher))
    sampling = Sampling(per_prompt=ANSWERS, temperature=1.0, max_tokens=112, seed=seed)
    questions = [(p.id, p) for p in problems]
    rollouts = scribe.rollouts(TorchSampler(str(teacher)), questions, sampling)
    kept = [r for r in rollouts if quick or (r.finish == "stop" and right(r.problem, r.response))]
    rows = {(r.problem.prompt, r.response): None for r in kept if r.response}
    lines = [
        {"prompt": [{"role": "user", "content": question}],
         "completion": [{"role": "assistant", "content": response}]}
        for question, response in rows
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"cpu": cpu() - began, "rows": float(len(lines))}


def right(problem: Problem, response: str) -> bool:
    layout = get("think_format").problem(problem.reference)
    return judge(problem, response).score == 1.0 and judge(layout, response).score == 1.0


def compared(
    folder: Path, student: Path, teacher: Path, teacher_cpu: float | None, seed: int, *, quick: bool
) -> dict[str, dict[str, Any]]:
    """All arms of one seed; RL is last and gets the compute of the others: without, and where
    `teacher_cpu` is known also with, the training of the teacher."""
    data = folder / f"samples-{seed}.jsonl"
    sampled = samples(teacher, data, seed, quick=quick)
    seeded, runs = ["--start", str(student), "--seed", str(seed)], {}
    for arm in ARMS:
        words = ["distill", f"tiny/{arm}", *seeded]
        if arm == "distill_on_policy":
            words += ["--problem-seed", str(seed), "--teacher", str(teacher)]
            words += ["--steps", "2", "--rollout.prompts", "8"] if quick else []
        else:
            words += ["--data.source", str(data)]
            words += ["--data.held-out", "8"] if quick else []
            words += ["--teacher", str(teacher)] if arm == "distill_logits" else []
        run = command(folder, f"{arm}-{seed}", words, quick=quick)
        if arm != "distill_on_policy":
            run |= {"cpu": run["cpu"] + sampled["cpu"], "rows": sampled["rows"]}
        runs[arm] = run
    budget = max(run["cpu"] for run in runs.values())
    words = [*seeded, "--problem-seed", str(seed)]
    runs["rl"] = rl = reinforced(folder, f"rl-{seed}", words, budget, quick=quick)
    if teacher_cpu is not None:
        with_teacher(runs, teacher_cpu)
        budget += teacher_cpu
        runs[LONGER] = reinforced(folder, f"{LONGER}-{seed}", words, budget, pilot=rl, quick=quick)
    return runs


def reinforced(
    folder: Path,
    name: str,
    words: list[str],
    budget: float,
    *,
    pilot: dict[str, Any] | None = None,
    quick: bool,
) -> dict[str, Any]:
    """RL for `budget` CPU seconds, or up to MOST times that. The number of steps is estimated by
    `pilot`, by default a short one; a run outside the range is repeated with a corrected number."""
    arguments = ["zero", "tiny/zero", *words, *ZERO]
    arguments += ["--rollout.prompts", "8"] if quick else []
    if pilot is None:
        pilot = command(folder, f"{name}-pilot", [*arguments, "--steps", str(PILOT)], quick=quick)
    each = fmean(row["step_time"] for row in pilot["curve"][1:])
    rest = pilot["cpu"] - sum(row["step_time"] for row in pilot["curve"])
    steps = PILOT if quick else max(PILOT, math.ceil(AIM * (budget - rest) / each))
    attempt = 1
    while True:
        words = [*arguments, "--steps", str(steps)]
        run = command(folder, f"{name}-{attempt}", words, quick=quick)
        if quick or attempt == ATTEMPTS or budget <= run["cpu"] <= MOST * budget:
            return run
        steps, attempt = math.ceil(AIM * steps * budget / run["cpu"]), attempt + 1


def shortfalls(results: list[dict[str, dict[str, Any]]]) -> list[str]:
    """Claims that the results do not support."""
    missed = [
        f"seed {seed}: RL took {arms['rl']['cpu']:.0f} CPU seconds, {arm} {arms[arm]['cpu']:.0f}"
        for seed, arms in enumerate(results)
        for arm in ARMS
        if arms["rl"]["cpu"] < arms[arm]["cpu"]
    ]
    dearest = [max(arms[arm]["cpu"] for arm in ARMS) for arms in results]
    missed += [
        f"seed {seed}: RL took {took:.0f} CPU seconds, at most {MOST * most:.0f} wanted"
        for seed, (arms, most) in enumerate(zip(results, dearest, strict=True))
        if (took := arms["rl"]["cpu"]) > MOST * most
    ]
    ahead, width = lead(results, "distill")
    if ahead <= width:
        missed.append(f"distill leads RL by {ahead:.3f} in pass@1, within its noise of {width:.3f}")
    return missed


def summary(results: list[dict[str, dict[str, Any]]]) -> str:
    others = [name for name in ("rl", LONGER) if name in results[0]]
    rows = [
        [arm, *(_spread([r[arm]["after"][name] for r in results]) for name in SHOWN),
         _spread([r[arm]["cpu"] for r in results]),
         _spread([r[arm].get("cpu_with_teacher", r[arm]["cpu"]) for r in results]),
         *("-" if arm in others else "{:+.3f} ± {:.3f}".format(*lead(results, arm, other))
           for other in others)]
        for arm in (*ARMS, *others)
    ]  # fmt: skip
    start = fmean(r["rl"]["before"]["pass@1"] for r in results)
    compute = ["CPU seconds", "with the teacher's training"]
    leads = [f"pass@1 over {other}, 95 %" for other in others]
    shown = table(["student by", *SHOWN, *compute, *leads], rows)
    return f"{shown}\n\nthe student before: pass@1 {start:.3f}"


def _spread(values: list[float]) -> str:
    """Mean, and the range over seeds."""
    if len(values) == 1:
        return f"{values[0]:.4g}"
    return f"{fmean(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def main() -> int:
    options = arguments(
        __doc__ or "",
        teacher={"type": Path, "help": "a checkpoint; default: R1-Zero on tiny/base_r1"},
        student={"type": Path, "help": "one with its tokenizer; default: tiny/student"},
    )
    quick, folder = options.quick, Path(tempfile.mkdtemp(prefix="distillation-"))
    student = (options.student or base_model("tiny/student", quick=quick)).resolve()
    teacher, teacher_cpu = options.teacher, None
    if teacher is None:
        teacher, teacher_cpu = trained_teacher(folder, quick=quick)
    teacher = teacher.resolve()
    results: list[dict[str, dict[str, Any]]] = []
    for seed in SEEDS[:1] if quick else SEEDS:
        began = time.monotonic()
        results.append(compared(folder, student, teacher, teacher_cpu, seed, quick=quick))
        print(f"seed {seed}: {time.monotonic() - began:.0f} s", flush=True)
    content = [
        {arm: {k: v for k, v in run.items() if k not in LEFT_OUT} for arm, run in arms.items()}
        for arms in results
    ]
    missed = [] if quick else shortfalls(results)
    return publish(options, summary(results), content, failed=missed)


if __name__ == "__main__":
    sys.exit(main())
