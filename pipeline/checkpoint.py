"""Checkpoints that are whole or not there: written aside, proved by hash, renamed into place.

`<stage>/checkpoints/step_000010/` is a model folder that transformers loads as it is, with
trainer_state.pt and a manifest.json of every file's size and sha256 beside the weights.
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

from pipeline.checkpoint_files import (
    MANIFEST,
    DamagedCheckpointError,
    by_step,
    check_hashes,
    check_sizes,
    set_aside,
    settle,
    write_manifest,
)
from pipeline.durable import fsync

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
    """Write `directory`/checkpoints/step_<step>, on disk when this returns, and give its path.

    `write_model(folder)` puts the model and the tokenizer into an empty folder. `state` holds
    tensors, numbers, strings, None, and lists, tuples and dicts of them. A checkpoint of the same
    step is replaced; of the complete ones the newest `keep` stay, and always the one just written.
    Whenever this process dies, what was complete before still is. Raises ValueError for a state
    that could not be read back, before anything is written; what `write_model` raises passes.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}: at least 1 checkpoint has to stay")
    _check_storable(dict(state), "state")
    checkpoints = directory / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    settle(checkpoints, clear=True)
    final = checkpoints / f"step_{step:06d}"
    fresh = set_aside(final, "tmp")
    try:
        _fill(fresh, step, write_model, state)
        _publish(fresh, final)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    _prune(checkpoints, keep, spare=final)
    return final


def latest(directory: Path) -> Path | None:
    """The newest complete checkpoint of a stage, None without one.

    Complete: its manifest reads and every file has the size it names. One that is not complete
    is reported by name in the log and passed over. Hashes are `load_state`'s work.
    """
    checkpoints = directory / "checkpoints"
    settle(checkpoints, clear=False)
    for step, path in by_step(checkpoints):
        try:
            check_sizes(path, step)
        except DamagedCheckpointError as damage:
            _log.warning("%s; looking at the one before", damage)
            continue
        return path
    return None


def load_state(path: Path) -> dict[str, Any]:
    """The `state` a checkpoint was saved with, on CPU, after every file matched its hash.

    Raises DamagedCheckpointError naming the file and what to do.
    """
    check_hashes(path)
    try:
        return torch.load(path / STATE, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as failure:
        raise DamagedCheckpointError(path, STATE, f"does not load: {failure}") from failure


def load_latest(directory: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint that passes `load_state`, and its state; None when there is none.

    Each damaged one on the way is reported by name in the log. Raises DamagedCheckpointError when
    there are checkpoints and all are damaged: starting afresh is then for the user to decide.
    """
    checkpoints = directory / "checkpoints"
    settle(checkpoints, clear=False)
    newest: DamagedCheckpointError | None = None
    for step, path in by_step(checkpoints):
        try:
            check_sizes(path, step)
            return path, load_state(path)
        except DamagedCheckpointError as damage:
            _log.warning("%s; looking at the one before", damage)
            newest = newest or damage
    if newest is not None:
        raise newest
    return None


def _fill(fresh: Path, step: int, write_model: Callable[[Path], None], state: Any) -> None:
    fresh.mkdir()
    write_model(fresh)
    for name in (STATE, MANIFEST):
        if (fresh / name).exists():
            raise ValueError(f"write_model wrote {name!r}, a name the checkpoint needs itself")
    torch.save(_on_cpu(dict(state)), fresh / STATE)  # to be read where there is no card
    write_manifest(fresh, step)
    for path in sorted(fresh.rglob("*"), reverse=True):  # what a folder holds before the folder
        fsync(path)
    fsync(fresh)


def _publish(fresh: Path, final: Path) -> None:
    old = set_aside(final, "old")
    replaces = final.exists()
    if replaces:
        os.replace(final, old)
    try:
        os.replace(fresh, final)
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
            continue  # not ours to judge: it stays as evidence until its step is saved again
        complete.append(path)
    for path in complete[keep:]:
        if path != spare:
            gone = set_aside(path, "tmp")  # half-removed must not look half-written
            os.replace(path, gone)
            shutil.rmtree(gone)


def _on_cpu(value: Any) -> Any:
    """The same, its tensors on the processor."""
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return type(value)((key, _on_cpu(inner)) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return type(value)(map(_on_cpu, value))
    return value


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
