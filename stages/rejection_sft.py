"""Rejection sampling: the base learns a reasoning model's verified answers, and general ones.

The paper (DeepSeek-R1, sections 2.3.3 and B.3) samples several answers to each prompt from the
checkpoint of the reasoning RL, keeps the right ones, drops mixed languages, long paragraphs and
code blocks, and gets about 600k rows; with about 200k that ask for no reasoning it fine-tunes
DeepSeek-V3-*Base* for two epochs.

Here every drop is counted in the data's card, and `general.reasoning` is that proportion of 3 to 1.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from data import general_rows, sft_rows
from data.columns import counted, raw_rows
from pipeline.failures import RecipeError
from pipeline.sft_config import GeneralConfig, RejectionRecipe
from stages.collecting import Rows, data_of, made, require_teacher
from stages.entry import enter, starting_point
from stages.sft import fine_tune

GENERATED: Mapping[str, Callable[[int, int], Iterator[dict[str, Any]]]] = {
    "general": general_rows.rows  # (seed, count) -> rows
}


def run(recipe: RejectionRecipe, output: Path, *, resume: bool) -> Path:
    """Collect, mix and train as `recipe` says, under `output`/rejection_sft; returns the
    checkpoint.

    With `resume` a run that stopped goes on: rounds of answers that are there are not sampled
    again, and training goes on from its last complete checkpoint. Raises Stopped after Ctrl-C.
    """
    general_source(recipe.general)
    require_teacher(recipe.teacher)
    entry = enter(recipe, output, resume=resume)
    if isinstance(entry, Path):
        return entry
    teacher = starting_point(recipe.teacher, entry.manifest)
    data = data_of(
        recipe, entry, teacher, print, mixed=lambda rows: mixed(rows, recipe.general, recipe.seed)
    )
    return fine_tune(entry, recipe, sft_rows.read(data), made(data))


def mixed(rows: Rows, config: GeneralConfig, seed: int) -> tuple[Rows, dict[str, Any]]:
    """The rows with one general row for every `config.reasoning` of them, shuffled, and facts for
    the card: how many general rows were wanted, and how many there were."""
    wanted = round(len(rows) / config.reasoning) if config.reasoning else 0
    general = [{**row, "source": "general"} for row in _general(config, wanted)]
    everything = [*rows, *general]
    Random(f"mixture/{seed}").shuffle(everything)
    return everything, {"general": {"wanted": wanted, "found": len(general)}}


def general_source(config: GeneralConfig) -> None:
    """Raise RecipeError for a source of general rows that is neither known nor a file."""
    if config.source not in GENERATED and not Path(config.source).is_file():
        raise RecipeError(
            f"general.source: {config.source!r} is no file, and not one of {sorted(GENERATED)}"
        )


def _general(config: GeneralConfig, wanted: int) -> list[dict[str, Any]]:
    """As many rows as are wanted, or all that the file has, drawn by the seed."""
    if config.source in GENERATED:
        return list(GENERATED[config.source](config.seed, wanted))
    path = Path(config.source)
    try:
        found = list(raw_rows(path))
        sft_rows.checked(found, f"{path}, {counted(path)}")
    except ValueError as mistake:
        raise RecipeError(f"general.source: {mistake}") from mistake
    Random(f"general/{config.seed}").shuffle(found)
    columns = {*sft_rows.COLUMNS, "language"}
    return [
        {name: value for name, value in row.items() if name in columns}
        for row in islice(found, wanted)
    ]


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["rejection-sft", *sys.argv[1:]]))
