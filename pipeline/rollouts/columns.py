"""Rows of different lengths as one tensor, for checkpoints."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor


def concatenated(rows: Sequence[Sequence[float]], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """All rows one after the other, and their lengths."""
    flat = [value for row in rows for value in row]
    return torch.tensor(flat, dtype=dtype), torch.tensor([len(row) for row in rows])


def split(flat: Tensor, lengths: Tensor) -> Iterator[tuple[Any, ...]]:
    """The rows of `concatenated`."""
    rows: tuple[Tensor, ...] = flat.split(lengths.tolist())
    return (tuple(row.tolist()) for row in rows)
