"""The reward model: a scalar head that learns which of two answers, or of K, is better.

DeepSeek-R1 trains one for helpfulness on 66,000 pairs (batch 256, learning rate 6e-6, one epoch).
As InstructGPT does, rewards are moved so that an anchor set scores 0 on average: the zero point
stands in config.json as `reward_zero_point`, because a classifier's head has no bias to hold it.
`veriloop serve-reward` subtracts it; behind another server it is the `middle` of the verifier
`reward_model`.
"""

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from data import preferences
from data.preference_ids import Ids, encode
from data.preferences import Labelled, Pair, Row
from pipeline.compute import prepare
from pipeline.console import StageConsole
from pipeline.durable import write_atomically
from pipeline.epochs import EpochTools
from pipeline.failures import RecipeError
from pipeline.losses.reward_model import zero_point
from pipeline.policy import eos_ids, load_generation_config, load_tokenizer
from pipeline.preference.reward_training import (
    Ranking,
    RewardLoop,
    measure,
    rankings,
)
from pipeline.preference.rounds import load_rows
from pipeline.preference.scalar_head import ZERO_POINT, answer_rewards, load_classifier
from pipeline.preference_config import RewardModelRecipe
from pipeline.trackers.choose import open_record
from stages.entry import enter

KEY_METRICS = ("loss", "accuracy", "mean_reward", "grad_norm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The rows of a run as ids."""

    train: list[Ranking]
    held_out: list[Ranking]
    too_long: int  # rows left out

    @property
    def facts(self) -> dict[str, int]:
        """Counts, for the record."""
        rows, held_out = len(self.train), len(self.held_out)
        return {"rows": rows, "held_out": held_out, "too_long": self.too_long}


def run(recipe: RewardModelRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Train as `recipe` says, under `output`/`name` (reward_model); returns the final checkpoint.
    Resumed as `enter` has it; raises Stopped after Ctrl-C, with everything saved.
    """
    entry = enter(recipe, output, resume=resume, name=name)
    if isinstance(entry, Path):
        return entry
    directory = entry.directory
    with ExitStack() as stack, entry.failures_noted():
        loop, data, anchors = opened(stack, recipe, directory, entry.start, entry.found)
        held_out = data.held_out
        before = _measured(directory / "before.json", loop, held_out)
        loop.run(entry.seconds)
        zero = _centre(loop, anchors)
        after = measure(loop.model, held_out, recipe.trainer) | _by_group(recipe, loop)
        loop.save(entry.seconds())
        shown = ", ".join(f"{name} {value:.3f}" for name, value in after.items())
        loop.tools.console.note(f"held out: {shown}; zero point {zero:.3f}")
    made = entry.made()
    told = data.facts | {"zero_point": zero, "anchors": len(anchors)}
    entry.end(None, before, after, made | told)
    return Path(made["checkpoint"])


def opened(
    stack: ExitStack,
    recipe: RewardModelRecipe,
    directory: Path,
    start: Path,
    found: tuple[Path, dict[str, Any]] | None,
) -> tuple[RewardLoop, Data, list[Ids]]:
    """The loop, its data, and its anchors; resumed when `found`."""
    tokenizer = load_tokenizer(start)
    ends = eos_ids(load_generation_config(start), tokenizer)
    data = _data(recipe, tokenizer, ends)
    model = prepare(load_classifier(start, tokenizer), recipe.trainer)
    model.config.eos_token_id = list(ends)  # a classifier is saved without a generation config
    steps = recipe.epochs * -(-len(data.train) // recipe.batch)
    done = 0 if found is None else found[1]["done"]
    console = StageConsole("reward model", steps, done=done, key_metrics=KEY_METRICS)
    tools = EpochTools(
        tokenizer=tokenizer,
        record=stack.enter_context(open_record(recipe, directory)),
        console=stack.enter_context(console),
        directory=directory,
    )
    loop = RewardLoop(recipe, data.train, model, tools)
    if found is not None:
        loop.resume(found[1], load_classifier(found[0], tokenizer).state_dict())
    return loop, data, _anchors(recipe, data.held_out, tokenizer, ends)


def _data(recipe: RewardModelRecipe, tokenizer: Any, ends: Sequence[int]) -> Data:
    longest = (recipe.data.max_prompt, recipe.data.max_completion)
    sides: list[list[Ranking]] = []
    too_long = 0
    for rows in load_rows(recipe.data, recipe.kind):
        kept, dropped = rankings(rows, tokenizer, ends, longest)
        if dropped:
            print(f"data: {dropped} of {len(rows)} rows exceed {longest} tokens; left out")
        if not kept:
            raise RecipeError(f"data: every row exceeds {longest} tokens (prompt, completion)")
        sides.append(kept)
        too_long += dropped
    return Data(train=sides[0], held_out=sides[1], too_long=too_long)


def _anchors(
    recipe: RewardModelRecipe, held_out: Sequence[Ranking], tokenizer: Any, ends: Sequence[int]
) -> list[Ids]:
    """The answers whose mean reward is to be 0: a file's, or the best held-out ones."""
    if not recipe.anchors:
        return [one[0] for one in held_out]
    try:
        rows = preferences.read(Path(recipe.anchors))
        wrong = [row for row in rows if not isinstance(row, Labelled)]
        if wrong:
            raise ValueError("anchors are single answers: prompt, completion, label")
        kept = [row for row in rows if isinstance(row, Labelled) and row.label]
        return [encode(row.prompt, row.completion, tokenizer, ends) for row in kept]
    except ValueError as mistake:
        raise RecipeError(f"anchors: {recipe.anchors}: {mistake}") from mistake


@torch.no_grad()
def _centre(loop: RewardLoop, anchors: Sequence[Ids]) -> float:
    """Write the mean reward of the anchors into the model's config, and return it."""
    trainer = loop.recipe.trainer
    parts = [
        answer_rewards(loop.model, anchors[i : i + trainer.rows], row=trainer.row)
        for i in range(0, len(anchors), trainer.rows)
    ]
    zero = zero_point(torch.cat(parts)).item()
    setattr(loop.model.config, ZERO_POINT, zero)
    return zero


def _by_group(recipe: RewardModelRecipe, loop: RewardLoop) -> dict[str, float]:
    """Accuracy on each group that the held-out pairs name: of polite answers to the wrong question
    a mean over all pairs says little."""
    data, ends = recipe.data, loop.model.config.eos_token_id
    by_group: dict[str, list[Row]] = {}
    for row in load_rows(data, recipe.kind)[1]:
        if isinstance(row, Pair) and row.group:
            by_group.setdefault(row.group, []).append(row)
    found: dict[str, float] = {}
    for group, rows in sorted(by_group.items()):
        longest = (data.max_prompt, data.max_completion)
        kept, _ = rankings(rows, loop.tools.tokenizer, ends, longest)
        if kept:
            found[f"accuracy/{group}"] = measure(loop.model, kept, loop.recipe.trainer)["accuracy"]
    return found


def _measured(path: Path, loop: RewardLoop, held_out: Sequence[Ranking]) -> dict[str, float]:
    """The untrained model's numbers, kept for a run that is resumed."""
    if loop.done and path.is_file():
        return json.loads(path.read_text())
    found = measure(loop.model, held_out, loop.recipe.trainer)
    write_atomically(path, lambda fresh: fresh.write_text(json.dumps(found)))
    return found


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["reward-model", *sys.argv[1:]]))
