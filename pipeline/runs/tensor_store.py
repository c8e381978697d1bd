"""The tensors of a trainer's state that are on a GPU or sharded over ranks.

torch's distributed checkpoint (DCP) writes them, each rank its own shards, and reads them on any
number of ranks. In the rest of the state each is replaced by its name.
"""

import pickle
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FOLDER = "trainer_state"  # in a checkpoint
_NAME = "tensor of trainer_state"  # the key of a tensor's name
METADATA = ".metadata"  # DCP's, which is a pickle
_TORCH = "torch.distributed.checkpoint"
_PICKLED = {  # functions and classes in it, besides torch's dtypes and those of _TORCH.metadata
    ("pathlib", "PosixPath"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    (f"{_TORCH}.filesystem", "_StorageInfo"),
}
Place = Callable[[str, torch.Size, torch.dtype], Tensor]  # of a tensor's name, whole size and dtype


def divided(state: Any) -> tuple[Any, dict[str, Tensor]]:
    """The state with names instead of tensors that are on a GPU or sharded, and these tensors.

    A name is the keys that lead to the tensor, joined by dots. Quantized tensors stay in the state,
    on the CPU.
    """
    tensors: dict[str, Tensor] = {}

    def rest(value: Any, name: str) -> Any:
        if not isinstance(value, Tensor):
            return _mapped(rest, value, name)
        if value.device.type == "cpu" and not hasattr(value, "device_mesh"):
            return value
        if hasattr(value, "__tensor_flatten__") and not hasattr(value, "device_mesh"):
            return value.detach().cpu()  # quantized: DCP would read it back as plain numbers
        assert name not in tensors, f"two tensors of the state are called {name}"
        tensors[name] = value.detach()
        return {_NAME: name}

    return rest(state, ""), tensors


def joined(rest: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The state that was divided into `rest` and these tensors."""
    if isinstance(rest, dict) and rest.keys() == {_NAME}:
        return tensors[rest[_NAME]]
    return _mapped(lambda value, _: joined(value, tensors), rest, "")


def write(folder: Path, tensors: Mapping[str, Tensor], group: Any = None) -> None:
    """Write the tensors into a new folder.

    If some are sharded every rank of the process group, whose CPU backend is used, calls this with
    its own shards. Whole tensors are written by the caller alone, also where there is a group.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    _expect_one_process()
    writer = FileSystemWriter(folder, per_thread_copy_ahead=0)  # all are on the CPU
    save(
        dict(tensors),
        storage_writer=writer,
        process_group=group,
        no_dist=not _any_sharded(tensors),
    )


def read(folder: Path, place: Place | None = None, group: Any = None) -> dict[str, Tensor]:
    """The tensors of a folder, by name.

    `place` returns the tensor that one is read into: a sharded one receives this rank's shards, and
    every rank of the process group calls this. By default they are read whole, on the CPU, by the
    caller alone. Raises pickle.UnpicklingError for metadata that could run code.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    class Reader(FileSystemReader):
        """DCP's own would call any function that the metadata name."""

        def read_metadata(self, *_: Any, **__: Any) -> Any:
            return metadata

    _expect_one_process()
    with (folder / METADATA).open("rb") as file:
        metadata = _PlainUnpickler(file).load()
    reader = Reader(folder)
    place = place or (lambda _, size, dtype: torch.empty(size, dtype=dtype))
    tensors = {
        name: place(name, held.size, held.properties.dtype)
        for name, held in metadata.state_dict_metadata.items()
        if isinstance(held, TensorStorageMetadata)
    }
    load(tensors, storage_reader=reader, process_group=group, no_dist=not _any_sharded(tensors))
    return tensors


def stager() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What copies dicts of tensors to the CPU, through pinned memory that it keeps for the next
    copies."""
    # DefaultStager of torch 2.11 closes the one that it wraps after the first copy
    from torch.distributed.checkpoint._state_dict_stager import StateDictStager

    gpu = torch.cuda.is_available()
    copies = StateDictStager(pin_memory=gpu, share_memory=False)

    def stage(tensors: dict[str, dict[str, Tensor]]) -> dict[str, Any]:
        staged = copies.stage(tensors, non_blocking=gpu)
        for device in {tensor.device for part in tensors.values() for tensor in part.values()}:
            if device.type == "cuda":  # which may not be the current one
                torch.cuda.synchronize(device)
        return staged

    return stage


class _PlainUnpickler(pickle.Unpickler):
    """Refuses what DCP does not write."""

    def find_class(self, module: str, name: str) -> Any:
        module = "pathlib" if module == "pathlib._local" else module  # as Python 3.13 names it
        known = (module, name) in _PICKLED
        known |= module == f"{_TORCH}.metadata" and "." not in name
        known |= module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if not known:
            raise pickle.UnpicklingError(f"{METADATA} names {module}.{name}, which DCP never does")
        return super().find_class(module, name)


def _mapped(function: Callable[[Any, str], Any], value: Any, name: str) -> Any:
    """The value with `function(inner, name of inner)` of all that a container holds."""
    prefix = f"{name}." if name else ""
    if isinstance(value, dict):
        pairs = ((key, function(inner, f"{prefix}{key}")) for key, inner in value.items())
        return type(value)(pairs)
    if isinstance(value, list | tuple):
        return type(value)(function(inner, f"{prefix}{i}") for i, inner in enumerate(value))
    return value


def _any_sharded(tensors: Mapping[str, Tensor]) -> bool:
    return any(hasattr(tensor, "device_mesh") for tensor in tensors.values())


def _expect_one_process() -> None:
    """Silence DCP's warning that one process works alone. The filter stays: restoring filters
    from a thread would race with other threads."""
    warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable")
