"""Weights in anonymous memory that two processes map: a sync is one copy, without files."""

import mmap
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ALIGNED = 64  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSlot:
    """The position of one weight in the shared memory."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int  # bytes
    size: int  # bytes


def layout_of(weights: Iterable[tuple[str, Tensor]]) -> list[TensorSlot]:
    """Slots for the weights, one after the other."""
    slots, offset = list[TensorSlot](), 0
    for name, weight in weights:
        size = weight.numel() * weight.element_size()
        slots.append(
            TensorSlot(
                name=name, dtype=weight.dtype, shape=tuple(weight.shape), offset=offset, size=size
            )
        )
        offset += -(-size // ALIGNED) * ALIGNED
    return slots


class SharedWeights:
    """The memory in the writing process; the reading process maps `fd`."""

    def __init__(self, layout: Sequence[TensorSlot]) -> None:
        self.layout = list(layout)
        self.fd = os.memfd_create("weights")
        os.ftruncate(self.fd, _end(layout))
        self._views = mapped(self.fd, self.layout)

    @torch.no_grad()
    def write(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Copy the weights in from any device, in the order of the layout."""
        for (_, view), (_, weight) in zip(self._views, weights, strict=True):
            view.copy_(weight)

    def close(self) -> None:
        self._views = []
        os.close(self.fd)


def mapped(fd: int, layout: Sequence[TensorSlot]) -> list[tuple[str, Tensor]]:
    """The weights in `fd`, by name, as views that change when the other process writes."""
    bytes_B = torch.frombuffer(mmap.mmap(fd, _end(layout)), dtype=torch.uint8)
    return [
        (
            slot.name,
            bytes_B[slot.offset : slot.offset + slot.size].view(slot.dtype).view(slot.shape),
        )
        for slot in layout
    ]


def _end(layout: Sequence[TensorSlot]) -> int:
    return max((slot.offset + slot.size for slot in layout), default=0) or 1
