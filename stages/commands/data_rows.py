"""Rows that `veriloop data` reads: of a known set, or of a file or folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from veriloop.data.hub.load import ProblemReader, read
from veriloop.pipeline.config.datasets import SetConfig
from veriloop.stages.commands.parse import PluginOptions

Tokens = Callable[[str], int]  # of a text


@dataclass(frozen=True, kw_only=True)
class Rows(PluginOptions):
    """Rows of a known set, or of a file whose columns are given."""

    name: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="SET", help="a known set (`veriloop data show`), a file or a folder"),
    ]
    of: str = ""  # the known set that a file or folder contains
    path: str = ""  # file or folder with the rows of a known set; empty: the hub or its cache
    split: str = ""  # empty: the training split, else the held-out one
    config: str = ""  # configuration of the set on the hub
    question: tuple[str, ...] = ()  # prompt of an unknown set, as in "{column}"
    answer: str = ""  # column with the answers of an unknown set
    verifier: str = ""  # verifier of an unknown set
    read: str = "text"  # how to read the answer of an unknown set


def open_rows(options: Rows) -> ProblemReader:
    """Open the rows that the options select. Raises ValueError and FileNotFoundError."""
    file = Path(options.name)
    is_path = file.exists() or file.suffix in (".jsonl", ".json", ".parquet")
    name, path = (file.stem, str(file)) if is_path else (options.name, options.path)
    config = SetConfig(
        of=options.of,
        path=path,
        question=options.question,
        answer=options.answer,
        verifier=options.verifier,
        read=options.read,
    )
    layout = config.layout("" if is_path else name)
    if layout is None:
        # The suffix keeps a file read by its columns apart from a known set with the same stem.
        name = f"{name}{file.suffix}"
    return read(
        options.of or name,
        path=path,
        split=options.split,
        config=options.config,
        layout=layout,
    )


def tokens_of(tokenizer: str) -> Tokens:
    """Function: the number of tokens of a text, without special ones. Takes a folder or a name."""
    from veriloop.pipeline.model.policy import load_tokenizer

    loaded = load_tokenizer(tokenizer)
    return lambda text: len(loaded(text, add_special_tokens=False).input_ids)
