"""`veriloop profile RECIPE`: where the time of a step goes, and how far it is from the least."""

import argparse
import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from typing import Any

from pipeline.failures import RecipeError
from pipeline.recipes import read
from pipeline.rl_config import RLRecipe
from pipeline.sampling import early
from pipeline.waterfall import bars, text
from stages.launch import module_of, parse, require_start

USAGE = "veriloop profile RECIPE [--turns N] [--json FILE] [--field value ...]"


def command(words: Sequence[str]) -> int:
    """Takes steps in a folder that is thrown away; the recipe's fields are flags, as elsewhere."""
    asked = argparse.ArgumentParser(usage=USAGE, allow_abbrev=False)
    asked.add_argument("recipe", help="of zero, reasoning-rl or preference-rl")
    asked.add_argument(
        "--turns", type=int, default=3, help="steps that count, after one that warms"
    )
    asked.add_argument("--json", default="", help="write the figures here too")
    own, flags = asked.parse_known_args(list(words[1:]))
    if own.turns < 1:
        raise RecipeError(f"--turns {own.turns}: at least 1")
    recipe = parse(read(own.recipe).stage, [own.recipe, *flags]).recipe
    if not isinstance(recipe, RLRecipe):
        raise RecipeError(
            f"{own.recipe} is a recipe for {recipe.stage!r}; profile takes one of reinforcement "
            "learning: zero, reasoning_rl or preference_rl"
        )
    require_start(recipe)
    early.begin_for(recipe)
    try:
        found = profiled(recipe, own.turns)
    finally:
        early.forget()
    print(told(found))
    if own.json:
        Path(own.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


def profiled(recipe: RLRecipe, turns: int) -> dict[str, Any]:
    """The metrics of some turns of the recipe, and the floor of its update."""
    from pipeline.record import read_metrics
    from stages import rl
    from stages.entry import enter

    module = module_of(recipe.stage)
    recipe = recipe.model_copy(update={"steps": turns + 1, "tensorboard": False, "trackers": ()})
    with tempfile.TemporaryDirectory(prefix="profile-") as folder, ExitStack() as stack:
        entry = enter(recipe, Path(folder), resume=False)
        assert not isinstance(entry, Path), "a new folder holds no run"
        work = module.task(recipe, rl.questions(recipe, entry.start, entry.directory))
        loop = rl.opened(stack, recipe, work, entry.directory, entry.start, None)
        loop.exact_times = True
        loop.begin()
        for _ in range(turns + 1):
            loop.turn()
        rows = read_metrics(loop.tools.record.metrics_path)[1:]
        sampler = loop.tools.sampler.name
        return {
            "recipe": recipe.name,
            "answers": recipe.rollout.prompts * recipe.rollout.per_prompt,
            "sampler": sampler,
            "steps": rows,
            "floor": _floor(loop.policy, recipe, rows),
        }


def _floor(policy: Any, recipe: RLRecipe, rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Least seconds of an update, from the speed of the model's own products."""
    from pipeline import floor
    from pipeline.compute import DTYPES

    algorithm = recipe.algorithm
    passes = bool(algorithm.kl_coefficient) + (algorithm.old_logp == "trainer")
    trained = fmean(row.get("frac_tokens_scored", 0.0) * row["num_tokens"] for row in rows)
    parameters = sum(p.numel() for p in policy.parameters())
    speed = floor.speed(policy, DTYPES[recipe.trainer.compute])
    work = floor.operations(parameters, trained, passes * trained)
    return {
        "parameters": parameters,
        "positions": trained,
        "operations": work,
        "operations_per_s": speed.flops,
        "seconds": work / speed.flops,
    }


def told(found: dict[str, Any]) -> str:
    """The waterfall, and the floor under the update."""
    rows, least = found["steps"], found["floor"]
    step, update = (fmean(row[name] for row in rows) for name in ("step_time", "time/update"))
    answers = fmean(row["completions/mean_length"] for row in rows) * found["answers"]
    lines = [
        f"{found['recipe']}: {len(rows)} steps of {found['answers']} answers, sampler "
        f"{found['sampler']}",
        "",
        text(bars(rows), step),
        "",
        f"a step: {step:.3f} s, {answers / step:,.0f} answer tokens a second",
        f"its update: {update:.3f} s, {update / least['seconds']:.1f} times its products alone: "
        f"{least['operations'] / 1e9:,.0f} GFLOP for {least['positions']:,.0f} positions of "
        f"{least['parameters']:,} parameters, at {least['operations_per_s'] / 1e9:,.0f} GFLOP/s",
    ]
    return "\n".join(lines)
