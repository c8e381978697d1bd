"""Supervised fine-tuning: a checkpoint learns written answers, from any file in TRL's layout.

The paper fine-tunes twice, and both times DeepSeek-V3-*Base*: for two to three epochs, batch 128,
32,768 tokens, a cosine from 5e-5 to 5e-6 (sections 3.1 and B.4). `stages/cold_start.py` and
`stages/rejection_sft.py` collect their data and then call what is here.
"""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from data import sft_rows, worked_sums
from data.card import hash_of
from data.sft_ids import Lesson
from data.sft_rows import Row
from data.template import CHAT
from pipeline.compute import prepare
from pipeline.console import StageConsole
from pipeline.distill_config import DistillRecipe
from pipeline.durable import write_atomically
from pipeline.epochs import EpochLoop, EpochTools, Numbers
from pipeline.failures import RecipeError
from pipeline.policy import eos_ids, load_policy, load_tokenizer, saved_weights
from pipeline.questions import sources_of
from pipeline.sft.lessons import Lessons, lessons
from pipeline.sft.step import gradient, measure
from pipeline.sft_config import LessonConfig, SFTDataConfig, SFTRecipe, SupervisedRecipe
from pipeline.trackers.choose import open_record
from stages.entry import Entry, enter
from stages.examination import examine

KEY_METRICS = (
    *("loss", "entropy", "grad_norm", "eval_loss", "eval_mean_token_accuracy"),
    "kl_to_teacher",
)
SHOWN = ("eval_loss", "kl_to_teacher", "pass@1")
Recipe = SupervisedRecipe | DistillRecipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is learned of the rows, and what is measured on those held out."""

    gradient: Callable[[Sequence[Lesson]], Numbers]  # the backward pass of a step, its metrics
    measured: Callable[[], Numbers]


Aim = Callable[[Any, Any, Lessons, Callable[[str], None]], Objective]  # model, tokenizer, data, say


def run(recipe: SFTRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Train as `recipe` says, under `output`/`name` (sft); returns the final checkpoint.
    Resumed as `enter` has it; raises Stopped after Ctrl-C, with everything saved.
    """
    rows = load(recipe.data)
    entry = enter(recipe, output, resume=resume, name=name)
    if isinstance(entry, Path):
        return entry
    made = {"data": recipe.data.source}
    if recipe.data.source != "arithmetic":
        made["data_sha256"] = hash_of(Path(recipe.data.source))
    return fine_tune(entry, recipe, rows, made)


def load(config: SFTDataConfig) -> list[Row]:
    """The rows that the recipe names. Raises RecipeError, naming line and column."""
    try:
        if config.source == "arithmetic":
            made = worked_sums.rows(config.seed, config.rows)
            return sft_rows.checked(made, "generated data, row")
        found = sft_rows.read(Path(config.source))
    except ValueError as mistake:
        raise RecipeError(f"data.source: {mistake}") from mistake
    if config.rows > len(found):
        raise RecipeError(f"data.rows={config.rows}: {config.source} has {len(found)} rows")
    return list(islice(found, config.rows or None))


def fine_tune(
    entry: Entry, recipe: Recipe, rows: list[Row], made: dict[str, Any], aim: Aim | None = None
) -> Path:
    """The part that all supervised stages share: measure, learn `rows`, measure, note the end.

    `made` is what the stage has made before, for the outputs of run.json. Without an `aim` it is
    the answers themselves. Returns the checkpoint.
    """
    kept = entry.directory / "before.json"
    with ExitStack() as stack, entry.failures_noted():
        loop, data, measured = opened(stack, recipe, rows, entry, aim)
        before = _before(kept, data.key, loop, measured, recipe, entry.start)
        loop.run(entry.seconds)
        final = loop.save(entry.seconds())
        after = _measured(loop, measured, recipe, final)
        shown = ", ".join(f"{k} {after[k]:.3f}" for k in SHOWN if k in after)
        loop.tools.console.note(f"after {loop.done} steps: {shown or 'nothing is held out'}")
    entry.end(None, before, after, entry.made() | data.facts | made)
    return final


def opened(
    stack: ExitStack, recipe: Recipe, rows: list[Row], entry: Entry, aim: Aim | None
) -> tuple[EpochLoop[Lesson], Lessons, Callable[[], Numbers]]:
    """The loop with all it works with, closed when `stack` is, its data and what measures it;
    resumed when the entry found a checkpoint."""
    tokenizer = spelling(entry.start, recipe.data)
    model = prepare(load_policy(entry.start), recipe.trainer)
    ends = eos_ids(model.generation_config, tokenizer)
    data = lessons(rows, recipe.data, tokenizer, ends, recipe.seed)
    if data.too_long:
        print(f"data: {data.too_long} of {len(rows)} rows exceed {recipe.data.max_tokens} tokens")
    steps = recipe.epochs * -(-len(data.train) // recipe.batch)
    done = 0 if entry.found is None else entry.found[1]["done"]
    title = recipe.stage.replace("_", " ")
    console = StageConsole(title, steps, done=done, key_metrics=KEY_METRICS)
    tools = EpochTools(
        tokenizer=tokenizer,
        record=stack.enter_context(open_record(recipe, entry.directory)),
        console=stack.enter_context(console),
        directory=entry.directory,
    )
    objective = (
        answers(recipe, model, data) if aim is None else aim(model, tokenizer, data, console.note)
    )
    loop = EpochLoop(
        recipe,
        data.train,
        model,
        tools,
        objective.gradient,
        purpose="sft",
        measured=objective.measured,
    )
    if entry.found is not None:
        loop.resume(entry.found[1], saved_weights(model, entry.found[0]))
    return loop, data, objective.measured


def answers(recipe: Recipe, model: Any, data: Lessons) -> Objective:
    """The cross-entropy of the learned tokens."""
    trainer = recipe.trainer
    return Objective(
        gradient=lambda batch: gradient(model, batch, trainer),
        measured=lambda: measure(model, data.held_out, trainer) if data.held_out else {},
    )


def spelling(start: Path, config: LessonConfig) -> Any:
    """The tokenizer of the start, with the chat template that the recipe asks for."""
    tokenizer = load_tokenizer(start)
    if config.template == "r1_zero":
        tokenizer.chat_template = CHAT
    return tokenizer


def _before(
    path: Path,
    key: str,
    loop: EpochLoop[Lesson],
    measured: Callable[[], Numbers],
    recipe: Recipe,
    start: Path,
) -> dict[str, Any]:
    """The start's numbers, kept for a run that is resumed, which must find the same data."""
    if loop.done and path.is_file():
        kept = json.loads(path.read_text())
        if kept["data"] != key:
            raise RecipeError("cannot resume: the data are not those that the run began with")
        return kept["numbers"]
    found = _measured(loop, measured, recipe, start)
    text = json.dumps({"data": key, "numbers": found})
    write_atomically(path, lambda fresh: fresh.write_text(text))
    return found


def _measured(
    loop: EpochLoop[Lesson], measured: Callable[[], Numbers], recipe: Recipe, checkpoint: Path
) -> dict[str, Any]:
    """What is `measured` on held-out rows, and accuracy on held-out problems, where asked."""
    found: dict[str, Any] = dict(measured())
    if recipe.examine:
        found |= examine(
            checkpoint,
            recipe.evaluation,
            recipe.sampler,
            max_tokens=recipe.max_tokens,
            say=loop.tools.console.note,
            keep=lambda some: loop.tools.record.write_evaluated(loop.done, some),
            sources=sources_of(recipe.evaluation.sources, recipe.sets)[0],
        ).flat()
    return found


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["sft", *sys.argv[1:]]))
