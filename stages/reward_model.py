"""Reward model: a scalar head that learns which of two responses, or of K, is better.

Paper (DeepSeek-R1, arXiv 2501.12948v2, section 3.1): a helpful reward model on 66,000 preference
pairs, batch 256, learning rate 6e-6, one epoch, 8,192 tokens; a safety reward model on 106,000
prompts whose responses are labelled safe or unsafe, trained point-wise.

Input: the SFT checkpoint and pairs or rankings. Output: a sequence classifier with one output, for
the second RL stage.

Differences: by default one model learns both from pairs. `loss: pointwise` trains on labelled
answers; its rewards are log-odds, with a zero of their own. Rewards from pairs have none: as in
InstructGPT (arXiv 2203.02155), they are shifted so that an anchor set scores 0 on average.
config.json holds the shift as `reward_zero_point`, because a classifier's head has no bias.
`veriloop serve-reward` subtracts it; for another server it is the `middle` of the verifier
`reward_model`. `recipes/tiny/reward_model_general.yaml` trains on 4,096 generated pairs, half of
them adversarial, for 4 epochs in batches of 64 at 6e-4, `recipes/tiny/safety_model.yaml` on single
answers; `recipes/paper/reward_model.yaml` and `safety_model.yaml` have the paper's numbers.
"""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from veriloop.data import preferences
from veriloop.data.preference_ids import EncodedAnswer, encode
from veriloop.data.preferences import Labelled, Pair, Row
from veriloop.pipeline.config.preference import RewardModelRecipe
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.evaluation.statistics import estimate
from veriloop.pipeline.losses.reward_model import zero_point
from veriloop.pipeline.model.policy import eos_ids, load_generation_config, load_tokenizer
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.scalar_head import (
    ZERO_POINT,
    load_classifier,
    saved_classifier,
)
from veriloop.pipeline.model.sharded import current_ranks
from veriloop.pipeline.preference import pointwise
from veriloop.pipeline.preference.datasets import Splits, load_rows
from veriloop.pipeline.preference.reward_training import (
    RewardLoop,
    encode_rankings,
    measure,
    rewards_of,
)
from veriloop.stages.stage_run import StageRun, run_stage

KEY_METRICS = ("loss", "accuracy", "mean_reward", "grad_norm")


def run(recipe: RewardModelRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Train in `output`/`name` (default: reward_model); returns the final checkpoint.

    Resumes as `run_stage` does. Raises Stopped after Ctrl-C, with everything saved.
    """
    rows = load_rows(recipe.data, recipe.kind, print)
    return run_stage(recipe, output, partial(_train, recipe, rows), resume=resume, name=name)


def _train(recipe: RewardModelRecipe, rows: Splits, stage: StageRun) -> Path:
    with ExitStack() as stack:
        loop, held_out, facts = _open_loop(stack, recipe, rows, stage)
        ends = loop.model.config.eos_token_id
        anchors = _anchors(recipe, held_out, loop.deps.tokenizer, ends)
        together, trainer = loop.deps.ranks.together, recipe.trainer
        by = pointwise.measure if recipe.loss == "pointwise" else measure

        def measured() -> dict[str, Any]:
            metrics = together(by, loop.model, held_out, trainer)
            return metrics | _interval("accuracy", metrics["accuracy"], len(held_out))

        before = stage.evaluated_once(measured)
        loop.run(stage.seconds)
        zero = _set_zero_point(loop, anchors)
        after = measured() | _group_accuracies(recipe, loop)
        loop.trainer.save(stage.seconds())
        summary = ", ".join(f"{name} {x:.3f}" for name, x in after.items() if isinstance(x, float))
        loop.deps.console.note(f"held out: {summary}; zero point {zero:.3f}")
    facts = {**facts, "zero_point": zero, "anchors": len(anchors)}
    return stage.finish(loop.step, None, before, after, facts)


def _open_loop(
    stack: ExitStack, recipe: RewardModelRecipe, rows: Splits, stage: StageRun
) -> tuple[RewardLoop, list[Any], dict[str, int]]:
    """The loop, the held-out examples and counts of the rows; resumed if the stage is."""
    tokenizer = load_tokenizer(stage.start)
    ends = eos_ids(load_generation_config(stage.start), tokenizer)
    train, held_out, facts = _examples(recipe, rows, tokenizer, ends)
    empty = current_ranks().count > 1
    model = prepare(load_classifier(stage.start, tokenizer, empty=empty), recipe.trainer)
    stage.divided(recipe, model)
    model.config.eos_token_id = list(ends)  # a classifier is saved without a generation config
    steps = recipe.epochs * -(-len(train) // recipe.batch)
    deps = stage.open_deps(stack, recipe, tokenizer, steps, KEY_METRICS)
    loop = RewardLoop(recipe, train, model, deps)
    if stage.saved is not None:
        loop.trainer.resume(stage.saved[1], saved_classifier(model, stage.saved[0], tokenizer))
    return loop, held_out, facts


def _examples(
    recipe: RewardModelRecipe, splits: Splits, tokenizer: Any, ends: Sequence[int]
) -> tuple[list[Any], list[Any], dict[str, int]]:
    """Training and held-out rows as ids, and counts of them for run.json: rankings, or single
    answers for `loss: pointwise`."""
    limits = (recipe.data.max_prompt, recipe.data.max_completion)
    bounds = f"data.max_prompt={limits[0]} or data.max_completion={limits[1]} tokens"
    single = recipe.loss == "pointwise"  # a row of a pair has two
    unit = "answer" if single else "row"
    encoded = pointwise.encode_answers if single else encode_rankings
    examples: list[list[Any]] = []
    too_long = 0
    for rows in splits:
        rankings, dropped = encoded(rows, tokenizer, ends, limits)
        if dropped:
            read = dropped + len(rankings)
            print(f"data: {dropped} of {read} {unit}s exceed {bounds}; left out")
        if not rankings:
            raise RecipeError(f"data: every {unit} exceeds {bounds}")
        examples.append(rankings)
        too_long += dropped
    train, held_out = examples
    facts = {"rows": len(train), "held_out": len(held_out), "too_long": too_long}
    return train, held_out, facts


def _anchors(
    recipe: RewardModelRecipe, held_out: Sequence[Any], tokenizer: Any, ends: Sequence[int]
) -> list[EncodedAnswer]:
    """The responses whose mean reward becomes 0: a file's, or the best held-out ones; none for
    `loss: pointwise`, whose rewards have a zero."""
    if recipe.loss == "pointwise":
        return []
    if not recipe.anchors:
        return [ranking[0] for ranking in held_out]
    try:
        rows = preferences.read(Path(recipe.anchors))
        if not all(isinstance(row, Labelled) for row in rows):
            raise ValueError("anchors are single answers: prompt, completion, label")
        good = [row for row in rows if isinstance(row, Labelled) and row.label]
        if not good:
            raise ValueError("no row has label true")
        return [encode(row.prompt, row.completion, tokenizer, ends) for row in good]
    except ValueError as mistake:
        raise RecipeError(f"anchors: {recipe.anchors}: {mistake}") from mistake


def _set_zero_point(loop: RewardLoop, anchors: Sequence[EncodedAnswer]) -> float:
    """Write the mean reward of the anchors, or 0 without any, to the model's config; returns it."""
    ranks, trainer = loop.deps.ranks, loop.recipe.trainer
    rewards = ranks.together(rewards_of, loop.model, anchors, trainer) if anchors else None
    zero = 0.0 if rewards is None else zero_point(rewards).item()
    setattr(loop.model.config, ZERO_POINT, zero)
    return zero


def _interval(name: str, accuracy: float, rows: int) -> dict[str, list[float]]:
    """The 95 % interval of an accuracy over `rows` rows. A ranking counts as one trial, though its
    share of pairs varies less."""
    bounds = estimate([accuracy] * rows)
    return {f"{name} 95%": [bounds.low, bounds.high]}


def _group_accuracies(recipe: RewardModelRecipe, loop: RewardLoop) -> dict[str, Any]:
    """Accuracy on each named group of held-out pairs.

    The mean over all pairs hides a group, such as polite answers to another question.
    """
    data, ends = recipe.data, loop.model.config.eos_token_id
    if recipe.loss == "pointwise":
        return {}
    by_group: dict[str, list[Row]] = {}
    for row in load_rows(data, recipe.kind)[1]:
        if isinstance(row, Pair) and row.group:
            by_group.setdefault(row.group, []).append(row)
    accuracies: dict[str, Any] = {}
    for group, rows in sorted(by_group.items()):
        limits = (data.max_prompt, data.max_completion)
        rankings, _ = encode_rankings(rows, loop.deps.tokenizer, ends, limits)
        if rankings:
            metrics = loop.deps.ranks.together(measure, loop.model, rankings, recipe.trainer)
            name, accuracy = f"accuracy/{group}", metrics["accuracy"]
            accuracies |= {name: accuracy} | _interval(name, accuracy, len(rankings))
    return accuracies


if __name__ == "__main__":
    from veriloop.stages.cli import entry

    sys.exit(entry("reward-model"))
