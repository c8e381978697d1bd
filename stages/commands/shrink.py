"""`veriloop shrink CHECKPOINT --layers N --output DIR`: a smaller student for distillation."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from veriloop.pipeline.config.checkpoints import find_checkpoint
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs.atomic_write import fsync, unfinished, writing
from veriloop.stages.commands.parse import parse_options


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write a checkpoint with some of another's layers, evenly spaced, to be distilled into."""

    checkpoint: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="CHECKPOINT", help="a folder or an id on the hub"),
    ]
    layers: Annotated[int, tyro.conf.arg(help="how many layers to keep")]
    output: Annotated[Path, tyro.conf.arg(metavar="DIR", help="a new folder for the student")]


def command(words: Sequence[str]) -> int:
    """0: written whole. Raises RecipeError for an output that holds files, and as `shrink` does."""
    options = parse_options(Options, words)
    from veriloop.pipeline.model.shrink import shrink

    start, output = find_checkpoint(options.checkpoint, "CHECKPOINT"), options.output
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise RecipeError(f"--output: {output} exists; name a new folder")
    draft = unfinished(output)
    shutil.rmtree(draft, ignore_errors=True)  # of a command that was killed
    draft.mkdir(parents=True)
    try:
        with writing(output):
            student = shrink(start, options.layers, draft)
            for path in (*draft.rglob("*"), draft):
                fsync(path)
            os.replace(draft, output)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    fsync(output.parent)
    print(f"{output}: layers {', '.join(map(str, student.layers))} of {start}")
    sizes = student.parameters / 1e6, student.parameters_before / 1e6
    print(f"{sizes[0]:,.1f} of {sizes[1]:,.1f} M parameters; distil before use")
    return 0
