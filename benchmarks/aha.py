"""R1-Zero on a task that rewards checking: the policy's reasoning before and after training.

    python benchmarks/aha.py [--quick] [--json FILE] [--seeds N ...] [--jobs N]

Each seed pre-trains its own base with `recipes/tiny/aha_base.yaml` and trains it with
`recipes/tiny/aha.yaml`, in a separate process on one core. Both checkpoints then answer the same
held-out problems at temperature 1, and their responses are parsed step by step.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import yaml
from publish import ROOT, arguments, publish, table

from benchmarks.worked_steps import WorkedStep, worked_steps
from veriloop.data import arithmetic
from veriloop.data.corpus import is_myth, myth
from veriloop.data.problem import Problem
from veriloop.pipeline.model.policy import load_generation_config, load_tokenizer
from veriloop.pipeline.rl.metrics import Reflection, reflection, reflections
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.runs.record import read_metrics
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.sampling.torch_engine import TorchSampler
from veriloop.pipeline.types import Rollout
from veriloop.verifiers.registry import judge

SEEDS = (0, 1, 2)
RISE = 3.0  # times the share of responses that verify, and of those that correct themselves
PROBLEMS, SAMPLES, MAX_TOKENS = 256, 4, 144
BASE = ROOT / "recipes/tiny/aha_base.yaml"
QUICK = ("--steps", "2", "--rollout.prompts", "8", "--evaluation.problems", "16")
CURVE = ("rewards/accuracy/mean", "completions/mean_length", "reflection/verify",
         "reflection/correct", "reflection/words", "entropy", "kl")  # fmt: skip


def run(
    folder: Path, seed: int, start: Path = BASE, flags: Sequence[str] = (), *, quick: bool
) -> dict[str, Any]:
    """One seed: pre-training and reinforcement learning with `flags`, and an analysis of both
    policies.

    `BASE` defines which sums are myths, even if the base recipe `start` has none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    base = yaml.safe_load(start.read_text()) | {"seed": seed}
    share = float(yaml.safe_load(BASE.read_text())["corpus"]["myths"])
    problems = 16 if quick else PROBLEMS
    if quick:
        base |= {"steps": 200, "step_accuracy": 0.0, "name": "tiny/quick"}
    recipe = folder / f"base-{seed}.yaml"
    recipe.write_text(yaml.safe_dump(base))
    output = folder / f"seed-{seed}"
    command = [
        sys.executable,
        "-m",
        "veriloop.stages.cli",
        "zero",
        "tiny/aha",
        "--start",
        str(recipe),
    ]
    command += ["--seed", str(seed), "--problem-seed", str(seed), "--output", str(output)]
    with (folder / f"{output.name}.log").open("w") as log:
        done = subprocess.run(
            [*command, *flags, *(QUICK if quick else ())],
            cwd=ROOT, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"},
            check=False,
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{output.name} failed:\n{Path(log.name).read_text()[-3000:]}")
    stages = {s["name"]: s for s in json.loads((output / "run.json").read_text())["stages"]}
    questions = arithmetic.distinct("test", 0, problems)
    before, after = (
        sampled(stages[s]["outputs"]["checkpoint"], questions) for s in ("base", "zero")
    )
    return {
        "name": f"seed {seed}",
        "before": conduct(before, share),
        "after": conduct(after, share),
        "examples": examples(before, after),
        "seconds": {name: stage["seconds"] for name, stage in stages.items()},
        "curve": [
            {k: step.get(k) for k in ("step", *CURVE)}
            for step in read_metrics(output / "zero" / "metrics.jsonl")
        ],
    }


def conduct(rollouts: Sequence[Rollout], myths: float) -> dict[str, Any]:
    """How a policy responds, and the accuracy of each way. `myths`: the share of sums."""
    texts = [r.response for r in rollouts]
    by_text = [reflection(text) for text in texts]
    right = [is_right(r) for r in rollouts]
    work = [steps_of(r) for r in rollouts]
    steps = [step for steps in work for step in steps if step.before.rest]
    return {
        "accuracy": fmean(right),
        "length": fmean(len(r.response_ids) for r in rollouts),
        **{name.removeprefix("reflection/"): v for name, v in reflections(texts).items()},
        "mend": mean(any(step.mends for step in steps) for steps in work),
        "ways": ways(texts, by_text, right),
        "on myths": of_steps([s for s in steps if is_myth(s.before, myths)]),
        "elsewhere": of_steps([s for s in steps if not is_myth(s.before, myths)]),
        "samples": texts[: 8 * SAMPLES : SAMPLES],
        "questions": [r.problem.prompt for r in rollouts[: 8 * SAMPLES : SAMPLES]],
    }


def examples(before: Sequence[Rollout], after: Sequence[Rollout]) -> list[dict[str, str]]:
    """At most three picked problems: before training an unchecked wrong step led to a wrong answer;
    after it the same wrong step was corrected and the answer was right."""
    by_problem: dict[str, dict[str, str]] = {}
    for old, new in product(before, after):
        if old.problem.id != new.problem.id or old.problem.id in by_problem:
            continue
        misled = {(s.before, s.stated) for s in steps_of(old) if not s.holds and s.verdict is None}
        mended = {(s.before, s.stated) for s in steps_of(new) if s.mends}
        if misled & mended and "<answer>" in old.response and not is_right(old) and is_right(new):
            by_problem[old.problem.id] = {
                "question": old.problem.prompt, "before": old.response, "after": new.response,
            }  # fmt: skip
    return list(by_problem.values())[:3]


def steps_of(rollout: Rollout) -> list[WorkedStep]:
    return list(worked_steps(rollout.problem.facts["expression"], rollout.response))


def is_right(rollout: Rollout) -> bool:
    return judge(rollout.problem, rollout.response).score == 1.0


def sampled(checkpoint: str, problems: Sequence[Problem]) -> list[Rollout]:
    torch.set_num_threads(1)
    scribe = RolloutGenerator(load_tokenizer(checkpoint), load_generation_config(checkpoint))
    how = Sampling(per_prompt=SAMPLES, temperature=1.0, max_tokens=MAX_TOKENS, seed=1)
    engine = TorchSampler(checkpoint)
    try:
        return scribe.rollouts(engine, [(p.id, p) for p in problems], how)
    finally:
        engine.close()


def ways(
    texts: Iterable[str], reflections: Iterable[Reflection], right: Iterable[bool]
) -> dict[str, dict[str, float]]:
    """Share and accuracy of the responses that check, that only work in steps, and the rest."""
    sorted_out: dict[str, list[bool]] = {"checks": [], "plain steps": [], "answers at once": []}
    for text, reflected, is_right in zip(texts, reflections, right, strict=True):
        stepped = any(True for _ in worked_steps("0", text))
        way = "checks" if reflected.verifies else "plain steps" if stepped else "answers at once"
        sorted_out[way].append(is_right)
    total = sum(map(len, sorted_out.values()))
    return {
        way: {"share": len(all_right) / total, "accuracy": mean(all_right)}
        for way, all_right in sorted_out.items()
    }


def of_steps(steps: Sequence[WorkedStep]) -> dict[str, float]:
    """How often steps are wrong and checked, and the outcomes of checks of wrong and right
    steps."""
    checked = [s for s in steps if s.verdict is not None]
    wrong = [s for s in checked if not s.holds]
    return {
        "steps": len(steps),
        "wrong": mean(not s.holds for s in steps),
        "myth": mean(s.stated.first == myth(s.before) for s in steps),
        "checked": mean(s.verdict is not None for s in steps),
        "wrong ones checked": len(wrong),
        "caught": mean(s.verdict is False for s in wrong),
        "mended": mean(s.mends for s in wrong),
        "left wrong": mean(not s.holds and not s.mends for s in steps),
        "false alarms": mean(s.verdict is False for s in checked if s.holds),
    }


def mean(values: Iterable[bool]) -> float:
    """The mean; 0 for no values."""
    numbers = list(values)
    return fmean(numbers) if numbers else 0.0


def shortfalls(results: Sequence[dict[str, Any]]) -> list[str]:
    """Claims that do not hold for every seed."""
    missed: list[str] = []
    for r in results:
        before, after = r["before"], r["after"]
        for name in ("verify", "correct"):
            if after[name] < RISE * before[name] or not after[name]:
                rise = f"{before[name]:.3f} to {after[name]:.3f}"
                missed.append(f"{r['name']}: {name} from {rise}, not {RISE:g} times")
        for name in ("length", "accuracy"):
            if after[name] <= before[name]:
                missed.append(f"{r['name']}: {name} did not rise")
    return missed


def rows_of(result: dict[str, Any]) -> list[list[str]]:
    """Before and after of one seed."""
    before, after = result["before"], result["after"]
    names = ("accuracy", "length", "verify", "correct", "mend", "words")
    pairs = [(name, before[name], after[name]) for name in names]
    for way in before["ways"]:
        for name in ("share", "accuracy"):
            pairs.append((f"{way}: {name}", before["ways"][way][name], after["ways"][way][name]))
    for where in ("on myths", "elsewhere"):
        for name in before[where]:
            pairs.append((f"steps {where}: {name}", before[where][name], after[where][name]))
    return [[result["name"], name, f"{b:.3f}", f"{a:.3f}"] for name, b, a in pairs]


def summary(results: Sequence[dict[str, Any]]) -> str:
    """The table, then the first responses and picked ones."""
    text = table(["run", "what", "before", "after"], [row for r in results for row in rows_of(r)])
    for r in results:
        before, after = r["before"]["samples"], r["after"]["samples"]
        shown = [
            ("", *three) for three in zip(r["before"]["questions"], before, after, strict=True)
        ]
        shown += [("picked: ", *example.values()) for example in r["examples"]]
        for how, question, old, new in shown:
            text += f"\n\n{r['name']}: {how}{question}\n  before: {old}\n  after:  {new}"
    return text


def main() -> int:
    options = arguments(
        __doc__ or "",
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        jobs={"type": int, "default": 1, "help": "runs at a time, each on one core"},
    )
    seeds = options.seeds[:1] if options.quick else options.seeds
    folder = Path(tempfile.mkdtemp(prefix="aha-"))
    with ThreadPoolExecutor(options.jobs) as threads:
        results = list(threads.map(lambda seed: run(folder, seed, quick=options.quick), seeds))
    text = summary(results)
    return publish(options, text, results, failed=[] if options.quick else shortfalls(results))


if __name__ == "__main__":
    sys.exit(main())
