"""GRPO of a published model on a CPU, in veriloop and in TRL: rewards and wall time.

    python benchmarks/published_trl.py --start FOLDER [--steps N] [--minutes M] [--quick]
                                       [--json FILE] [--folder DIR]

FOLDER is a checkpoint of `recipes/real/smollm2/cold_start.yaml`. From there both sides learn sums
of two and three numbers: the same questions in the same order, 16 x 8 answers of at most 64 tokens
a step, the same loss, rate and rewards, one optimizer step each. TRL is measured as it installs,
and with the best settings that a search on one step each finds: gradient checkpointing off,
micro-batches, a static cache. The sides take turns, each on all cores and stopped meanwhile; all
stay in memory, which takes most of 24 GiB. A side has reached a reward when its mean over WINDOW
steps has; the one asked for is the highest that all sides reach. The bar is our wall time over that
of TRL, searched.
"""

import json
import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from contenders import Contender, Process, in_turn
from publish import arguments, publish, table
from published_turns import PROMPTS, RECIPE
from tiny_runs import work_folder

BAR = 0.67  # times the wall time of TRL, searched
WINDOW = 5  # steps
STEPS, TRIAL_STEPS = 30, 1
QUESTIONS = PROMPTS * 64
CHOICES: Sequence[tuple[str, Sequence[Any]]] = (  # of TRL, one after the other
    ("micro_batch", (64, 32, 16)),
    ("cache_implementation", ("static",)),
)
OURS, INSTALLED, SEARCHED = "ours", "TRL", "TRL, searched"


def prepared(start: Path, folder: Path) -> Path:
    """A copy of the checkpoint with the questions of the recipe beside it."""
    from transformers import GenerationConfig

    from veriloop.data.hub.reference_answers import plain_answer
    from veriloop.pipeline.config.load import read_values, validate, with_flags
    from veriloop.pipeline.model.policy import load_tokenizer
    from veriloop.pipeline.rollouts.generate import RolloutGenerator
    from veriloop.pipeline.rollouts.sources import sources_of

    copy = folder / "start"
    if not copy.exists():
        shutil.copytree(start, copy)
    recipe: Any = validate(with_flags(read_values(RECIPE), {"start": str(copy)}), RECIPE)
    generator = RolloutGenerator(
        load_tokenizer(copy), GenerationConfig.from_pretrained(copy), recipe.rollout.template,
        recipe.rollout.system,
    )  # fmt: skip
    source = sources_of(["chain_sum"], recipe.sets)[0]["chain_sum"]
    problems = [source.problem("rl", recipe.problem_seed, index) for index in range(QUESTIONS)]
    rows = [{"prompt": generator.prompt_text(p), "answer": plain_answer(p)} for p in problems]
    (copy / "questions.json").write_text(json.dumps(rows))
    return copy


def searched(model: Path, folder: Path) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """TRL's fastest settings, one changed after the other, and all trials."""
    best: dict[str, Any] = {"gradient_checkpointing": False}
    fastest, trials = float("inf"), list[dict[str, Any]]()
    for key, values in CHOICES:
        for trial in [{**best, key: value} for value in values]:
            try:
                (row,) = in_turn([started(SEARCHED, "trl", trial, model, folder)], 0, TRIAL_STEPS)
                seconds = row["s"] / row["tokens"]
            except SystemExit as failure:
                seconds = float("inf")
                print(f"{trial} does not run: {str(failure)[-300:]}", flush=True)
            trials.append({**trial, "s_per_token": seconds})
            if seconds < fastest:
                best, fastest = trial, seconds
    return best, trials


def started(
    name: str, side: str, settings: Mapping[str, Any], model: Path, folder: Path
) -> Process:
    """A contender on all cores."""
    contender = Contender(name=name, side=side, settings=settings)
    cores = sorted(os.sched_getaffinity(0))
    return Process(contender, "published_turns.py", model, folder, cores=cores)


def reached(steps: Sequence[Mapping[str, float]], reward: float) -> float | None:
    """Seconds until the mean reward of WINDOW steps, or of all if there are fewer, is at least
    `reward`; None if it never is."""
    window = min(WINDOW, len(steps))
    for end in range(window, len(steps) + 1):
        if fmean(step["paid"] for step in steps[end - window : end]) >= reward:
            return sum(step["s"] for step in steps[:end])
    return None


def best_of_all(rows: Sequence[Mapping[str, Any]]) -> float:
    """The highest mean reward of WINDOW steps that every side reaches."""

    def best(steps: Sequence[Mapping[str, float]]) -> float:
        window = min(WINDOW, len(steps))
        ends = range(window, len(steps) + 1)
        return max(fmean(step["paid"] for step in steps[e - window : e]) for e in ends)

    return min(best(row["steps"]) for row in rows)


def main() -> int:
    options = arguments(
        __doc__ or "",
        start={"type": Path, "required": True, "help": "the checkpoint after the cold start"},
        steps={"type": int, "default": STEPS},
        minutes={"type": float, "default": math.inf, "help": "after which no step begins"},
        folder={"type": Path, "help": "of models and logs; default: a new one"},
    )
    folder = work_folder(options.folder, "published-trl")
    model = prepared(options.start, folder)
    steps = 1 if options.quick else options.steps
    settings, trials = ({}, []) if options.quick else searched(model, folder)
    sides = {OURS: ("ours", {}), INSTALLED: ("trl", {}), SEARCHED: ("trl", settings)}
    if options.quick:
        del sides[INSTALLED]
    running = [started(name, *side, model, folder) for name, side in sides.items()]
    rows = in_turn(running, 0, steps, seconds=60 * options.minutes)
    target = best_of_all(rows)
    for row in rows:
        row["seconds"] = sum(step["s"] for step in row["steps"])
        row["reached_s"] = reached(row["steps"], target)
    text = table(
        ["side", "s a step", "tokens/s", "GiB", "first reward", "last", f"s to {target:.2f}"],
        [[r["name"], r["s"], r["tokens_per_s"], r["peak_gib"], r["steps"][0]["paid"],
          fmean(step["paid"] for step in r["steps"][-WINDOW:]), str(r["reached_s"])]
         for r in rows],
    )  # fmt: skip
    text += f"\n{SEARCHED}: {settings}"
    result = {"rows": rows, "trials": trials, "settings": settings, "target": target}
    return publish(options, text, result, failed=[] if options.quick else missed(rows))


def missed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The bar, if it is missed."""
    seconds = {row["name"]: row["reached_s"] for row in rows}
    ratio = seconds[OURS] / seconds[SEARCHED]
    return [f"{ratio:.2f} x the time of TRL, wanted {BAR}"] if ratio > BAR else []


if __name__ == "__main__":
    sys.exit(main())
