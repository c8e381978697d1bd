"""Memory of one process that others of the same machine open: of the CPU, or of a GPU by CUDA IPC.

Handles are plain data and not pickled objects: a server unpickles nothing that it is sent.
"""

import mmap
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.sampling.card_weights import allocated
from veriloop.pipeline.sampling.shared_weights import anonymous_file
from veriloop.pipeline.sampling.transfer.records import Memory


class SharedBytes:
    """Bytes that other processes open by `memory`, until `close`."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._fd = -1
        if device.type == "cuda":
            self.bytes_B = allocated(size, device)
            _, *handle = self.bytes_B.untyped_storage()._share_cuda_()
            card = str(torch.cuda.get_device_properties(device).uuid)
            self.memory = Memory(size=size, card=card, handle=tuple(handle))
            return
        self._fd = anonymous_file()
        os.ftruncate(self._fd, size)
        self.bytes_B = torch.frombuffer(mmap.mmap(self._fd, size), dtype=torch.uint8)
        self.memory = Memory(size=size, path=f"/proc/{os.getpid()}/fd/{self._fd}")

    def close(self) -> None:
        """Those who have opened it keep it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def opened(memory: Memory) -> Tensor:
    """uint8 [size] of another process. Raises ValueError if it cannot be opened here."""
    if memory.handle is not None:
        return _of_card(memory)
    try:
        with Path(memory.path).open("r+b") as file:
            return torch.frombuffer(mmap.mmap(file.fileno(), memory.size), dtype=torch.uint8)
    except OSError as failure:
        raise ValueError(
            f"weights: ipc: the server cannot open the trainer's memory {memory.path} ({failure}); "
            "it must run on the same machine, as the same user, and see its processes"
        ) from failure


def _of_card(memory: Memory) -> Tensor:
    cards = [str(torch.cuda.get_device_properties(n).uuid) for n in _cards()]
    if memory.card not in cards:
        raise ValueError(
            f"weights: ipc: the server does not see the trainer's GPU {memory.card}, only "
            f"{', '.join(cards) or 'none'}; add it to the server's CUDA_VISIBLE_DEVICES"
        )
    handle: Any = memory.handle
    storage = torch.UntypedStorage._new_shared_cuda(cards.index(memory.card), *handle)
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)[: memory.size]


def _cards() -> range:
    return range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
