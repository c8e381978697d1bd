"""Rows of a data set from the hub, its cache, or a path; DatasetNotFoundError if none has it.

JSON files are parsed as JSON: `datasets` would turn texts that look like dates into dates.
"""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from veriloop.data.columns import raw_rows
from veriloop.data.hub.layout import Layout, Row
from veriloop.data.jsonl import read_rows

FILES = (".jsonl", ".json", ".parquet")
ONE_SPLIT = "state.json"  # in a folder with one split, written by `datasets`
SAVED = ("dataset_dict.json", ONE_SPLIT)


def held_out_split(layout: Layout, path: str, test: str) -> tuple[str, str]:
    """(path, split) of the held-out questions of a set at `path`; split is "" if there are none.

    `test` is a file or a split; "": the set's own split. Raises ValueError for a split of a path
    that holds one alone.
    """
    if Path(test).suffix in FILES:
        return test, "test"
    if not holds_one_split(path):
        return path, test or layout.test
    if test and layout.train:
        raise ValueError(
            f"test={test!r} is a split, and {path} holds one alone; give a file, or a share as "
            "held_out"
        )
    return path, "" if layout.train else layout.test  # the training split if the set has one


def training_split(layout: Layout, path: str, train: str) -> str:
    """`train`, or the set's own split; "" if there is none. Raises ValueError for a split of a
    path that holds one alone, other than the set's own."""
    if layout.train and train not in ("", layout.train) and holds_one_split(path):
        raise ValueError(
            f"train={train!r} is a split, and {path} holds one alone; leave train out, or give a "
            "folder with several splits"
        )
    return train or layout.train


def holds_one_split(path: str) -> bool:
    """Whether all rows of a path are one split: a file, or a folder of one saved `Dataset`."""
    return Path(path).suffix in FILES or (bool(path) and (Path(path) / ONE_SPLIT).is_file())


class DatasetNotFoundError(FileNotFoundError):
    """A data set that is not at its path, not in the cache, and cannot be downloaded."""


def rows(
    name: str, layout: Layout, path: str, split: str, *, config: str = "", streaming: bool = True
) -> Iterator[Row]:
    """Yield every row of a split, in its order.

    `path` is a file (.jsonl, .json, .parquet: its rows are the split), a folder saved by
    `datasets`, or a folder of such files, laid out as on the hub. Without it the set is streamed
    from the hub, or with `streaming=False` downloaded into the cache. Raises DatasetNotFoundError,
    and ValueError for unreadable data.
    """
    if not path:
        return _hub_rows(name, layout, split, config or layout.config, streaming=streaming)
    local = Path(path)
    if local.is_dir():
        return _folder_rows(name, layout, local, split, config)
    if not local.is_file():
        raise DatasetNotFoundError(f"{name}: {local} is not a file or folder")
    if local.suffix not in FILES:
        raise ValueError(f"{name}: {local} does not end in one of {', '.join(FILES)}")
    return _file_rows(local)


def _file_rows(path: Path) -> Iterator[Row]:
    if path.suffix != ".json":
        return _checked(raw_rows(path), path)
    text = path.read_text(encoding="utf-8-sig")
    try:
        values = json.loads(text)
    except ValueError as error:
        if text.lstrip().startswith("{"):  # one object a line, as in many sets on the hub
            return _checked(read_rows(path), path)
        raise ValueError(f"{path}: not JSON: {error}") from error
    if not isinstance(values, list):
        raise ValueError(f"{path}: must hold a list of rows, got {type(values).__name__}")
    return _checked(iter(values), path)


def _checked(values: Iterator[Any], path: Path) -> Iterator[Row]:
    for number, row in enumerate(values, 1):
        if not isinstance(row, dict):
            raise ValueError(f"{path}, row {number}: must be an object, got {row!r:.60}")
        yield row


def _folder_rows(name: str, layout: Layout, folder: Path, split: str, config: str) -> Iterator[Row]:
    for suffix in FILES:
        if (file := folder / f"{split}{suffix}").is_file():
            return _file_rows(file)
    if any((folder / file).is_file() for file in SAVED):
        return _saved_rows(name, folder, split)
    try:
        return _downloaded_rows(layout, folder, split, config)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: {folder} cannot be read as a data set: {error}") from error


def _saved_rows(name: str, folder: Path, split: str) -> Iterator[Row]:
    import datasets

    saved: Any = datasets.load_from_disk(str(folder))
    if isinstance(saved, datasets.Dataset):
        if saved.split is not None and str(saved.split) != split:
            raise ValueError(f"{name}: {folder} holds split {saved.split}, not {split!r}")
        return iter(cast(Any, saved))
    if split not in saved:
        raise ValueError(f"{name}: {folder} has no split {split!r}; it has {', '.join(saved)}")
    return iter(saved[split])


def _downloaded_rows(layout: Layout, folder: Path, split: str, config: str) -> Iterator[Row]:
    """A split of `config`, or of the set's own configuration if the folder lists it."""
    import datasets

    if not config and layout.config:
        if layout.config in datasets.get_dataset_config_names(str(folder)):
            config = layout.config
        elif (folder / layout.config).is_dir():
            folder /= layout.config
    builder: Any = datasets.load_dataset_builder(str(folder), config or None)
    files = [Path(file) for file in (builder.config.data_files or {}).get(split, ())]
    if files and all(file.suffix in (".jsonl", ".json") for file in files):
        return itertools.chain.from_iterable(map(_file_rows, files))
    return iter(builder.as_streaming_dataset(split=split))


def _hub_rows(
    name: str, layout: Layout, split: str, config: str, *, streaming: bool
) -> Iterator[Row]:
    if not layout.repo:
        raise DatasetNotFoundError(f"{name}: is not a known set on the hub; give its path")
    if layout.script:
        raise DatasetNotFoundError(
            f"{name}: {layout.repo} is a loading script on the hub, which is not executed; "
            f"download its files and give them as path: hf download {layout.repo} --repo-type "
            "dataset --local-dir DIR"
        )
    import datasets

    try:
        dataset: Any = datasets.load_dataset(
            layout.repo, config or None, split=split, streaming=streaming
        )
        remaining = iter(dataset)
        # Streaming connects at the first row: read it here, where errors are translated.
        first = list(itertools.islice(remaining, 1))
    except (OSError, ValueError, RuntimeError) as error:
        raise DatasetNotFoundError(_not_found(name, layout, split, config, error)) from error
    return itertools.chain(first, remaining)


def _not_found(name: str, layout: Layout, split: str, config: str, error: Exception) -> str:
    from datasets import config as settings

    dataset = f"{layout.repo}{f', {config}' if config else ''}, split {split}"
    offline = [flag for flag in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE") if os.environ.get(flag)]
    reason = str(error).strip().partition("\n")[0]
    return (
        f"{name}: {dataset} is not in the cache {settings.HF_DATASETS_CACHE} and cannot be "
        f"downloaded{f' ({offline[0]} is set)' if offline else ''}: {reason}\n"
        f"With a network: hf download {layout.repo} --repo-type dataset --local-dir DIR; then give "
        "DIR, or one of its files, as path"
    )
