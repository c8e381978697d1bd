"""The only packing and the only shift: token sequences laid end to end in rows.

Axes: R rows, T positions in a row, B sequences.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """Rows in which position t predicts `targets_RT[:, t]`, the next token of the same sequence.

    A sequence of n tokens takes n - 1 positions: its last token is only ever a target.
    """

    ids_RT: Tensor  # int64
    positions_RT: Tensor  # int64, 0 at the start of each sequence and on padding
    targets_RT: Tensor  # int64
    sequence_RT: Tensor  # int64, index of the sequence a position belongs to, -1 on padding


def best_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Indices grouped into rows of at most `capacity`: longest first, each where it fits tightest.

    Deterministic. Raises ValueError for a sequence that no row can hold.
    """
    rows: list[list[int]] = []
    space: list[tuple[int, int]] = []  # (room left, row), sorted
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        length = lengths[index]
        if not 0 < length <= capacity:
            raise ValueError(f"sequence {index} has {length} positions; a row holds 1..{capacity}")
        at = bisect_left(space, (length, -1))
        if at == len(space):
            rows.append([])
            room, row = capacity, len(rows) - 1
        else:
            room, row = space.pop(at)
        rows[row].append(index)
        insort(space, (room - length, row))
    return rows


def lay_out(sequences: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]) -> Packed:
    """Shift each sequence by one and lay the rows out, padded to the longest row."""
    width = max(sum(len(sequences[b]) - 1 for b in row) for row in rows)
    shape = (len(rows), width)
    ids_RT, positions_RT, targets_RT = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
    sequence_RT = torch.full(shape, -1, dtype=torch.int64)
    for r, row in enumerate(rows):
        start = 0
        for b in row:
            tokens = torch.tensor(sequences[b], dtype=torch.int64)
            here = slice(start, start + len(tokens) - 1)
            ids_RT[r, here] = tokens[:-1]
            targets_RT[r, here] = tokens[1:]
            positions_RT[r, here] = torch.arange(len(tokens) - 1)
            sequence_RT[r, here] = b
            start = here.stop
    return Packed(
        ids_RT=ids_RT, positions_RT=positions_RT, targets_RT=targets_RT, sequence_RT=sequence_RT
    )


def response_mask(packed: Packed, prompt_lengths: Sequence[int]) -> Tensor:
    """Bool [R, T], true where the target is a response token: position t of a sequence predicts
    its token t + 1, so from the last prompt token on. `prompt_lengths` is by sequence."""
    prompt_RT = torch.tensor(prompt_lengths)[packed.sequence_RT]
    return (packed.sequence_RT >= 0) & (packed.positions_RT + 1 >= prompt_RT)
