"""`veriloop shrink CHECKPOINT --layers N --output DIR`: a smaller student for distillation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from veriloop.pipeline.config.checkpoints import find_checkpoint
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
    """0: written. Raises RecipeError as `shrink` does."""
    options = parse_options(Options, words)
    from veriloop.pipeline.model.shrink import shrink

    start = find_checkpoint(options.checkpoint, "CHECKPOINT")
    kept, before, after = shrink(start, options.layers, options.output)
    print(f"{options.output}: layers {', '.join(map(str, kept))} of {start}")
    print(f"{after / 1e6:,.1f} of {before / 1e6:,.1f} M parameters; distil before use")
    return 0
