"""Atomic checkpoints: written to a temporary folder, hashed, renamed into place.

`<stage>/checkpoints/step_000010/` is a model folder that transformers can load, plus
trainer_state.pt and manifest.json with every file's size and sha256. Tensors of the state that are
on a GPU or sharded are in the folder trainer_state; see `tensor_store`.
"""

import logging
import os
import pickle
import shutil
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.runs import tensor_store
from veriloop.pipeline.runs.atomic_write import fsync, make_folder, writing
from veriloop.pipeline.runs.checkpoint_files import (
    MANIFEST,
    DamagedCheckpointError,
    by_step,
    check_hashes,
    check_sizes,
    hidden_sibling,
    recover,
    write_manifest,
)

STATE = "trainer_state.pt"
_log = logging.getLogger(__name__)


def save(
    directory: Path,
    step: int,
    *,
    write_model: Callable[[Path], None],
    state: Mapping[str, Any],
    keep: int,
) -> Path:
    """Write `directory`/checkpoints/step_<step>, flushed to disk, and return its path.

    `write_model(folder)` writes the model and the tokenizer into an empty folder. `state` holds
    tensors, numbers, strings, None, and lists, tuples and dicts of them. A checkpoint of the same
    step is replaced. The newest `keep` complete checkpoints stay, and always the new one. A crash
    at any time leaves earlier checkpoints complete. Raises ValueError, before writing, for a state
    that could not be read back.
    """
    rest, on_gpu = tensor_store.divided(dict(state))
    tensors = {name: tensor.cpu() for name, tensor in on_gpu.items()}
    return save_divided(
        directory, step, write_model=write_model, rest=rest, tensors=tensors, keep=keep
    )


def save_divided(
    directory: Path,
    step: int,
    *,
    write_model: Callable[[Path], None],
    rest: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    keep: int,
) -> Path:
    """`save` with a state as `tensor_store.divided` returns it."""
    if keep < 1:
        raise ValueError(f"keep={keep}: must be at least 1")
    _check_storable(rest, "state")
    checkpoints = directory / "checkpoints"
    make_folder(checkpoints)
    recover(checkpoints, clear=True)
    final = checkpoints / _name(step)
    draft = hidden_sibling(final, "tmp")
    try:
        with writing(final):
            _fill(draft, step, write_model, rest, tensors)
            _publish(draft, final)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    _prune(checkpoints, keep, spare=final)
    return final


def latest(directory: Path) -> Path | None:
    """The newest complete checkpoint of a stage; None without one.

    Complete means that the manifest can be read and every file has its recorded size; hashes are
    checked by `load_state`. Damaged checkpoints are logged and skipped.
    """
    checkpoints = directory / "checkpoints"
    recover(checkpoints, clear=False)
    for step, path in by_step(checkpoints):
        try:
            check_sizes(path, step)
        except DamagedCheckpointError as damage:
            _log.warning("%s; trying the previous one", damage)
            continue
        return path
    return None


def complete(directory: Path, step: int) -> Path:
    """The checkpoint of `step`. Raises DamagedCheckpointError unless it is complete as in
    `latest`."""
    path = directory / "checkpoints" / _name(step)
    check_sizes(path, step)
    return path


def of_step(directory: Path, step: int) -> Path | None:
    """The checkpoint of `step` if it is the newest complete one of a stage; None otherwise."""
    path = latest(directory)
    return path if path is not None and path.name == _name(step) else None


def _name(step: int) -> str:
    return f"step_{step:06d}"


def load_state(
    path: Path,
    place: tensor_store.Place | None = None,
    *,
    mapped: bool = False,
    verified: bool = False,
) -> dict[str, Any]:
    """Verify the hash of every file, then load the checkpoint's `state`.

    Of a checkpoint that has been `verified` by rank 0 the sizes of files alone are compared: every
    rank would read all of it.

    Tensors that were on a GPU or sharded are read into those of `place`, all others on the CPU; see
    `tensor_store.read`. With `mapped` the others stay in the file, of which a rank reads its
    shards; what is kept must be copied, since the file may be deleted. Raises
    DamagedCheckpointError naming the file and what to do.
    """
    if verified:
        check_sizes(path)
    else:
        check_hashes(path)
    name = STATE
    try:
        rest = torch.load(path / STATE, map_location="cpu", weights_only=True, mmap=mapped)
        name = tensor_store.FOLDER
        folder = path / name
        return tensor_store.joined(
            rest, tensor_store.read(folder, place) if folder.is_dir() else {}
        )
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as failure:
        raise DamagedCheckpointError(path, name, f"does not load: {failure}") from failure


def load_latest(directory: Path, *, mapped: bool = False) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint that passes `load_state`, and its state; None without checkpoints.

    Damaged ones are logged and skipped. Raises DamagedCheckpointError if all are damaged: the user
    has to decide whether to start over.
    """
    checkpoints = directory / "checkpoints"
    recover(checkpoints, clear=False)
    newest: DamagedCheckpointError | None = None
    for step, path in by_step(checkpoints):
        try:
            check_sizes(path, step)
            return path, load_state(path, mapped=mapped)
        except DamagedCheckpointError as damage:
            _log.warning("%s; trying the previous one", damage)
            newest = newest or damage
    if newest is not None:
        raise newest
    return None


def _fill(
    draft: Path,
    step: int,
    write_model: Callable[[Path], None],
    rest: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
) -> None:
    draft.mkdir()
    write_model(draft)
    for name in (STATE, tensor_store.FOLDER, MANIFEST):
        if (draft / name).exists():
            raise ValueError(f"write_model wrote {name!r}, which is reserved for the checkpoint")
    torch.save(rest, draft / STATE)
    if tensors:
        tensor_store.write(draft / tensor_store.FOLDER, tensors)
    write_manifest(draft, step)
    for path in sorted(draft.rglob("*"), reverse=True):  # files before their folder
        fsync(path)
    fsync(draft)


def _publish(draft: Path, final: Path) -> None:
    old = hidden_sibling(final, "old")
    replaces = final.exists()
    if replaces:
        os.replace(final, old)
    try:
        os.replace(draft, final)
    except BaseException:
        if replaces:
            os.replace(old, final)
        raise
    fsync(final.parent)
    if replaces:
        shutil.rmtree(old)


def _prune(checkpoints: Path, keep: int, spare: Path) -> None:
    complete = []
    for step, path in by_step(checkpoints):
        try:
            check_sizes(path, step)
        except DamagedCheckpointError:
            continue  # kept for inspection until the same step is saved again
        complete.append(path)
    for path in complete[keep:]:
        if path != spare:
            removed = hidden_sibling(path, "tmp")  # a partly removed folder must not look damaged
            os.replace(path, removed)
            shutil.rmtree(removed)


def _check_storable(value: Any, where: str) -> None:
    if isinstance(value, torch.Tensor) or value is None or type(value) in (bool, int, float, str):
        return
    if type(value) in (dict, OrderedDict):
        for key, inner in value.items():
            _check_storable(key, f"a key of {where}")
            _check_storable(inner, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for index, inner in enumerate(value):
            _check_storable(inner, f"{where}[{index}]")
    else:
        raise ValueError(
            f"{where} is a {type(value).__module__}.{type(value).__qualname__}: a checkpoint "
            "holds tensors, numbers, strings, None, and lists, tuples and dicts of them"
        )
