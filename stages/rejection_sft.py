"""Rejection sampling and SFT: the base learns a reasoning model's verified responses.

Paper (DeepSeek-R1, arXiv 2501.12948v2, B.3.3; training in B.4.2): several responses to each prompt
are sampled from the checkpoint of the first RL stage and the correct ones stay; mixed languages,
long paragraphs and code blocks are dropped. About 600 thousand such rows and 200 thousand general
ones fine-tune DeepSeek-V3-*Base* for 2 to 3 epochs.

Input: the base and the reasoning RL checkpoint (`teacher`). Output: data.jsonl with its card,
which distillation reads, and the checkpoint that the second RL stage starts from.

Differences: the data card counts every dropped response by reason; `general.reasoning` is the
number of reasoning rows per general row, the paper's 3. `recipes/tiny/rejection_sft.yaml` samples 4
responses to each of 800 questions, keeps up to 2, and trains 2 epochs in batches of 32 at 1e-3;
`recipes/paper/rejection_sft.yaml` has the paper's numbers.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from veriloop.data import generated_rows, sft_rows
from veriloop.data.columns import raw_rows, row_unit
from veriloop.data.decontaminate import Overlap, texts_of
from veriloop.pipeline.config.sft import GeneralConfig, RejectionRecipe
from veriloop.pipeline.errors import RecipeError
from veriloop.stages.sft import fine_tune
from veriloop.stages.stage_run import StageRun, run_stage
from veriloop.stages.teacher_data import Rows, collect_data, require_teacher

GENERATED: Mapping[str, Callable[[int, int], Iterator[dict[str, Any]]]] = {
    "general": generated_rows.general_answers  # (seed, count) -> rows
}


def run(recipe: RejectionRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Collect, mix and train in `output`/`name` (default: rejection_sft); returns the checkpoint.

    Resumes as `cold_start.run` does. Raises Stopped after Ctrl-C.
    """
    require_general_source(recipe.general)
    require_teacher(recipe.teacher)

    def train(stage: StageRun) -> Path:
        outputs = collect_data(
            recipe,
            stage,
            mix=lambda rows, held_out: mix_general(rows, recipe.general, recipe.seed, held_out),
        )
        return fine_tune(stage, recipe, sft_rows.read(Path(outputs["data"])), outputs)

    return run_stage(recipe, output, train, resume=resume, name=name)


def mix_general(
    rows: Rows, config: GeneralConfig, seed: int, held_out: Overlap
) -> tuple[Rows, dict[str, Any]]:
    """Add one general row per `config.reasoning` rows and shuffle. Rows of a file that overlap a
    text of `held_out` are left out.

    Returns the rows and, for the card, how many general rows were wanted, found, and left out.
    """
    wanted = round(len(rows) / config.reasoning) if config.reasoning else 0
    drawn, contaminated = _general_rows(config, wanted, held_out)
    general = [{**row, "source": "general"} for row in drawn]
    mixture = [*rows, *general]
    Random(f"mixture/{seed}").shuffle(mixture)
    counts = {"wanted": wanted, "found": len(general), "contaminated": contaminated}
    return mixture, {"general": counts}


def require_general_source(config: GeneralConfig) -> None:
    """Raise RecipeError unless `general.source` is a generator, or a file of rows."""
    if config.source not in GENERATED and not Path(config.source).is_file():
        raise RecipeError(
            f"general.source: {config.source!r} is no file, and not one of {sorted(GENERATED)}"
        )
    if config.source not in GENERATED:
        _file_rows(config)


def _general_rows(
    config: GeneralConfig, count: int, held_out: Overlap
) -> tuple[list[dict[str, Any]], int]:
    """`count` rows, or as many as the file has, drawn by the seed, and how many were left out."""
    if config.source in GENERATED:
        return list(GENERATED[config.source](config.seed, count)), 0
    rows = _file_rows(config)
    Random(f"general/{config.seed}").shuffle(rows)
    columns = {*sft_rows.COLUMNS, "language"}
    drawn: list[dict[str, Any]] = []
    contaminated = 0
    for row in rows:
        if len(drawn) == count:
            break
        kept = {column: value for column, value in row.items() if column in columns}
        if held_out.overlaps(*texts_of(kept)):
            contaminated += 1
        else:
            drawn.append(kept)
    return drawn, contaminated


def _file_rows(config: GeneralConfig) -> list[dict[str, Any]]:
    """The rows of the file, as they are. Raises RecipeError for one that cannot be read."""
    path = Path(config.source)
    try:
        rows = list(raw_rows(path))
        sft_rows.parse_rows(rows, f"{path}, {row_unit(path)}")
    except ValueError as mistake:
        raise RecipeError(f"general.source: {mistake}") from mistake
    return rows


if __name__ == "__main__":
    from veriloop.stages.cli import entry

    sys.exit(entry("rejection-sft"))
