"""`veriloop profile RECIPE`: time the parts of a training step, and bound the update from below."""

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import tyro

from veriloop.data.counts import counted
from veriloop.pipeline.config.cluster import world_size
from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.offline.profile import Positions, bars, waterfall
from veriloop.pipeline.runs.console import activity
from veriloop.pipeline.sampling import prelaunch
from veriloop.stages.commands.parse import PluginOptions, parse_known_options
from veriloop.stages.launch import module_of, parse, require_start


@dataclass(frozen=True, kw_only=True)
class Options(PluginOptions):
    """Run a few steps of a recipe in a temporary folder and print where the time goes.

    Fields of the recipe are flags, as in `veriloop zero --help`: --trainer.compute bfloat16
    """

    recipe: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="RECIPE", help="of zero, reasoning-rl or preference-rl"),
    ]
    turns: int = 3  # steps to measure, after one warm-up step
    json: Annotated[str, tyro.conf.arg(help="also write the measurements to this file")] = ""


def command(words: Sequence[str]) -> int:
    """Print the profile. Raises RecipeError for a recipe that is not of reinforcement learning."""
    options, flags = parse_known_options(Options, words)
    if options.turns < 1:
        raise RecipeError(f"--turns {options.turns}: must be at least 1")
    parsed = parse(read(options.recipe).stage, [options.recipe, *flags])
    recipe = parsed.recipe
    for name in ("output", "resume", "allow_changed", "dry_run"):
        if getattr(parsed, name):
            raise RecipeError(
                f"--{name.replace('_', '-')}: profile keeps no run; only fields of the recipe are "
                "flags, with --turns, --json and --plugin"
            )
    if not isinstance(recipe, RLRecipe):
        raise RecipeError(
            f"{options.recipe} is a recipe for {recipe.stage!r}; profile needs a recipe of "
            "reinforcement learning: zero, reasoning_rl or preference_rl"
        )
    if max(recipe.cluster.ranks, world_size()) > 1:
        raise RecipeError(
            "profile times the step of one process: start it without torchrun and with "
            "--cluster.trainer.nodes 1 --cluster.trainer.ranks 1"
        )
    require_start(recipe)
    prelaunch.begin_for(recipe)
    try:
        profile = profiled(recipe, options.turns)
    finally:
        prelaunch.forget()
    print(summary(profile))
    if options.json:
        Path(options.json).write_text(json.dumps(profile, indent=1) + "\n")
    return 0


def profiled(recipe: RLRecipe, turns: int) -> dict[str, Any]:
    """The metrics of `turns` steps of the recipe, and the floor of its update."""
    from veriloop.pipeline.runs.record import read_metrics
    from veriloop.stages import rl
    from veriloop.stages.stage_run import begin_stage

    module = module_of(recipe.stage)
    recipe = recipe.model_copy(update={"steps": turns + 1, "tensorboard": False, "trackers": ()})
    with tempfile.TemporaryDirectory(prefix="profile-") as folder, ExitStack() as stack:
        entry = begin_stage(recipe, Path(folder), resume=False)
        assert not isinstance(entry, Path), "a new folder holds no run"
        work = module.task(recipe, rl.open_sources(recipe, entry.start, entry.directory))
        loop = rl.open_loop(stack, recipe, work, entry.directory, entry.start, None)
        loop.exact_times = True
        loop.begin()
        for _ in range(turns + 1):
            loop.turn()
        # The first step warms caches up and is left out.
        rows = read_metrics(loop.deps.record.metrics_path)[1:]
        with activity("measuring the speed of the update's matrix products"):
            floor = _floor(loop.policy, recipe, rows)
        return {
            "recipe": recipe.name,
            "answers": recipe.rollout.prompts * recipe.rollout.per_prompt,
            "answer_tokens": fmean(_written(recipe, row) for row in rows),
            "sampler": loop.deps.sampler.name,
            "steps": rows,
            "floor": floor,
        }


def _floor(policy: Any, recipe: RLRecipe, rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Lower bound of the seconds of an update: the products of its linear layers at their measured
    speed, where every prompt is computed once for its group if prompts are shared."""
    from veriloop.pipeline.model.prepare import DTYPES
    from veriloop.pipeline.offline import profile

    algorithm = recipe.algorithm
    passes = bool(algorithm.kl_coefficient) + (algorithm.old_logp == "trainer")
    scored = _scored_positions(recipe, rows)
    trained = scored.times(algorithm.epochs)
    speed = profile.matmul_speed(policy, DTYPES[recipe.trainer.compute])
    work = profile.update_operations(policy, trained, scored.times(passes))
    return {
        "parameters": sum(p.numel() for p in policy.parameters()),
        "positions": trained.prompts + trained.answers,
        "operations": work,
        "operations_per_s": speed.flops,
        "seconds": work / speed.flops,
    }


def _scored_positions(recipe: RLRecipe, rows: Sequence[dict[str, Any]]) -> Positions:
    """Mean positions of a pass over the rollouts of a step that are trained on."""
    rollout = recipe.rollout
    copies = rollout.per_prompt if recipe.trainer.share_prompts else 1
    prompts = answers = 0.0
    for row in rows:
        share = row.get("frac_tokens_scored", 0.0) / len(rows)
        written = _written(recipe, row)
        answers += share * written
        prompts += share * (row["num_tokens"] - written) / copies
    return Positions(prompts=prompts, answers=answers)


def _written(recipe: RLRecipe, row: dict[str, Any]) -> float:
    """Tokens of the answers that a step has learned from; of all answers, if from none."""
    rollout = recipe.rollout
    groups = rollout.prompts - row["groups_missing"] or row["questions"]
    return row["completions/mean_length"] * groups * rollout.per_prompt


def summary(profile: dict[str, Any]) -> str:
    """The waterfall of a step, and its update against the floor, if it had one."""
    rows, floor = profile["steps"], profile["floor"]
    step, update = (fmean(row[name] for row in rows) for name in ("step_time", "time/update"))
    tokens, least = profile["answer_tokens"], "no answer was trained on"
    if floor["seconds"]:
        least = (
            f"{update / floor['seconds']:.1f} times the products of its linear layers alone: "
            f"{floor['operations'] / 1e9:,.0f} GFLOP for {floor['positions']:,.0f} positions of "
            f"{floor['parameters']:,} parameters, at {floor['operations_per_s'] / 1e9:,.0f} GFLOP/s"
        )
    lines = [
        f"{profile['recipe']}: {counted(len(rows), 'step')} of {profile['answers']} answers, "
        f"sampler {profile['sampler']}",
        "",
        waterfall(bars(rows), step),
        "",
        f"a step: {step:.3f} s, {tokens / step:,.0f} answer tokens per second",
        f"its update: {update:.3f} s, {least}",
    ]
    return "\n".join(lines)
