"""R1-Zero where checking pays: what a policy does before and after, beyond plain steps.

    python benchmarks/aha.py [--quick] [--json FILE] [--seeds N ...] [--jobs N]

Each seed pre-trains its own base of `recipes/tiny/aha_base.yaml` and trains it by
`recipes/tiny/aha.yaml`, in a process of its own on one core. Both checkpoints then answer the same
held-out problems at temperature 1, and what they wrote is read back step by step.
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
    """One seed: base and reinforcement learning under `flags`, and both policies looked at.

    Which sums are myths is what `BASE` says, also where the base recipe `start` knows of none.
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
    asked = arithmetic.distinct("test", 0, problems)
    before, after = (sampled(stages[s]["outputs"]["checkpoint"], asked) for s in ("base", "zero"))
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
    """What a policy does, and how far each of its ways carries. `myths`: the share of sums."""
    texts = [r.response for r in rollouts]
    found = [reflection(text) for text in texts]
    right = [is_right(r) for r in rollouts]
    work = [steps_of(r) for r in rollouts]
    steps = [step for steps in work for step in steps if step.before.rest]
    return {
        "accuracy": fmean(right),
        "length": fmean(len(r.response_ids) for r in rollouts),
        **{name.removeprefix("reflection/"): v for name, v in reflections(texts).items()},
        "mend": mean(any(step.mends for step in steps) for steps in work),
        "ways": ways(texts, found, right),
        "on myths": of_steps([s for s in steps if is_myth(s.before, myths)]),
        "elsewhere": of_steps([s for s in steps if not is_myth(s.before, myths)]),
        "samples": texts[: 8 * SAMPLES : SAMPLES],
        "questions": [r.problem.prompt for r in rollouts[: 8 * SAMPLES : SAMPLES]],
    }


def examples(before: Sequence[Rollout], after: Sequence[Rollout]) -> list[dict[str, str]]:
    """Picked, three at most: a problem on which an unchecked wrong step led to a wrong answer, and
    on which the same wrong step was found out later, and the answer was right."""
    found: dict[str, dict[str, str]] = {}
    for old, new in product(before, after):
        if old.problem.id != new.problem.id or old.problem.id in found:
            continue
        misled = {(s.before, s.said) for s in steps_of(old) if not s.holds and s.verdict is None}
        mended = {(s.before, s.said) for s in steps_of(new) if s.mends}
        if misled & mended and "<answer>" in old.response and not is_right(old) and is_right(new):
            found[old.problem.id] = {
                "question": old.problem.prompt, "before": old.response, "after": new.response,
            }  # fmt: skip
    return list(found.values())[:3]


def steps_of(rollout: Rollout) -> list[WorkedStep]:
    return list(worked_steps(rollout.problem.facts["expression"], rollout.response))


def is_right(rollout: Rollout) -> bool:
    return judge(rollout.problem, rollout.response).score == 1.0


def sampled(checkpoint: str, asked: Sequence[Problem]) -> list[Rollout]:
    torch.set_num_threads(1)
    scribe = RolloutGenerator(load_tokenizer(checkpoint), load_generation_config(checkpoint))
    how = Sampling(per_prompt=SAMPLES, temperature=1.0, max_tokens=MAX_TOKENS, seed=1)
    engine = TorchSampler(checkpoint)
    try:
        return scribe.rollouts(engine, [(p.id, p) for p in asked], how)
    finally:
        engine.close()


def ways(
    texts: Iterable[str], found: Iterable[Reflection], right: Iterable[bool]
) -> dict[str, dict[str, float]]:
    """Share and accuracy of the responses that check, that only work in steps, and the rest."""
    sorted_out: dict[str, list[bool]] = {"checks": [], "plain steps": [], "answers at once": []}
    for text, one, is_right in zip(texts, found, right, strict=True):
        stepped = any(True for _ in worked_steps("0", text))
        way = "checks" if one.verifies else "plain steps" if stepped else "answers at once"
        sorted_out[way].append(is_right)
    total = sum(map(len, sorted_out.values()))
    return {
        way: {"share": len(all_right) / total, "accuracy": mean(all_right)}
        for way, all_right in sorted_out.items()
    }


def of_steps(steps: Sequence[WorkedStep]) -> dict[str, float]:
    """How often steps are wrong and checked, and what the checks make of wrong and right ones."""
    checked = [s for s in steps if s.verdict is not None]
    wrong = [s for s in checked if not s.holds]
    return {
        "steps": len(steps),
        "wrong": mean(not s.holds for s in steps),
        "myth": mean(s.said.first == myth(s.before) for s in steps),
        "checked": mean(s.verdict is not None for s in steps),
        "wrong ones checked": len(wrong),
        "caught": mean(s.verdict is False for s in wrong),
        "mended": mean(s.mends for s in wrong),
        "left wrong": mean(not s.holds and not s.mends for s in steps),
        "false alarms": mean(s.verdict is False for s in checked if s.holds),
    }


def mean(values: Iterable[bool]) -> float:
    """The mean, or 0 of nothing."""
    found = list(values)
    return fmean(found) if found else 0.0


def shortfalls(results: Sequence[dict[str, Any]]) -> list[str]:
    """What is claimed of every seed, and does not hold."""
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


def told(results: Sequence[dict[str, Any]]) -> str:
    """The table, then answers: the first ones, and picked ones."""
    text = table(["run", "what", "before", "after"], [row for r in results for row in rows_of(r)])
    for r in results:
        before, after = r["before"]["samples"], r["after"]["samples"]
        shown = [
            ("", *three) for three in zip(r["before"]["questions"], before, after, strict=True)
        ]
        shown += [("picked: ", *example.values()) for example in r["examples"]]
        for how, asked, old, new in shown:
            text += f"\n\n{r['name']}: {how}{asked}\n  before: {old}\n  after:  {new}"
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
    text = told(results)
    return publish(options, text, results, failed=[] if options.quick else shortfalls(results))


if __name__ == "__main__":
    sys.exit(main())
