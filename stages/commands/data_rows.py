"""Rows that `veriloop data` reads: of a known set, or of a file or folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import ValidationError

from veriloop.data.hub.files import FILES
from veriloop.data.hub.load import ProblemReader, read
from veriloop.data.hub.reference_readers import READERS
from veriloop.data.hub.sets import SETS
from veriloop.pipeline.config.datasets import SetConfig
from veriloop.pipeline.config.load import explain
from veriloop.pipeline.errors import RecipeError
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
    read: Annotated[
        str,
        tyro.conf.arg(help=f"how to read the answer of an unknown set: {', '.join(READERS)}"),
    ] = "text"


def open_rows(options: Rows, limit: int = 0) -> ProblemReader:
    """Open the rows that the options select, the first `limit` of them (0: all).

    Raises ValueError and FileNotFoundError.
    """
    file, own = Path(options.name), is_path(options.name)
    if own and options.path:
        raise ValueError(f"{options.name} is a file or folder: it excludes --path {options.path}")
    name, path = (file.stem, str(file)) if own else (options.name, options.path)
    try:
        config = SetConfig(
            of=options.of,
            path=path,
            question=options.question,
            answer=options.answer,
            verifier=options.verifier,
            read=options.read,
        )
    except ValidationError as mistake:
        explained = explain(mistake, SetConfig).replace("recipe: ", "")
        raise RecipeError(f"flags:\n{explained}") from mistake
    layout = config.layout("" if own else name)
    if layout is None:
        # The suffix keeps a file read by its columns apart from a known set with the same stem.
        name = f"{name}{file.suffix}"
    return read(
        options.of or name,
        path=path,
        split=options.split,
        config=options.config,
        layout=layout,
        limit=limit,
    )


def is_path(name: str) -> bool:
    """Whether the name is one of a file or folder. A known set comes before a folder."""
    file = Path(name)
    return file.suffix in FILES or (name not in SETS and file.exists())


def tokens_of(tokenizer: str) -> Tokens:
    """Function: the number of tokens of a text, without special ones. Takes a folder or a name."""
    from veriloop.pipeline.model.policy import load_tokenizer

    loaded = load_tokenizer(tokenizer)
    return lambda text: len(loaded(text, add_special_tokens=False).input_ids)
