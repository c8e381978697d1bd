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
from veriloop.pipeline.config.load import read as read_recipe
from veriloop.pipeline.errors import RecipeError, did_you_mean
from veriloop.stages.commands.parse import PluginOptions

Tokens = Callable[[str], int]  # of a text


@dataclass(frozen=True, kw_only=True)
class Rows(PluginOptions):
    """Rows of a known set, or of a file whose columns are given."""

    name: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(
            metavar="SET",
            help="a known set (`veriloop data show`), a file or a folder, or a recipe with a set",
        ),
    ]
    set: str = ""  # of the sets of a recipe; empty: the only one
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
    if options.name.endswith((".yaml", ".yml")):
        return _open_set(options, limit)
    if options.set:
        raise ValueError(f"--set {options.set}: {options.name} is no recipe, which ends in .yaml")
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


def _open_set(options: Rows, limit: int) -> ProblemReader:
    """The rows of a set of a recipe, as the recipe describes them."""
    described = ("of", "path", "config", "question", "answer", "verifier", "read")
    repeated = [f"--{name}" for name in described if getattr(options, name) != getattr(Rows, name)]
    if repeated:
        raise ValueError(f"{', '.join(repeated)}: {options.name} describes its sets itself")
    sets = getattr(read_recipe(options.name), "sets", {})
    name = options.set or (next(iter(sets)) if len(sets) == 1 else "")
    if name not in sets:
        known = f"{did_you_mean(name, sets)} Known: {', '.join(sets) or 'none'}"
        raise ValueError(f"--set {name!r} is no set of {options.name}.{known}")
    config = sets[name]
    if config.gym:
        raise ValueError(f"--set {name}: its questions are generated, not rows")
    return read(
        name,
        path=config.path,
        split=options.split or config.train,
        config=config.config,
        layout=config.layout(name),
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
