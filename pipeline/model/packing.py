"""Packing of token sequences into rows, and the shift to next-token targets.

Sequences with a common prefix may be adjacent in a row that has the prefix only once.

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

    A sequence of n tokens takes n - 1 positions, as its last token is only a target. One that
    borrows its first p positions takes n - 1 - p, starting at position p.
    """

    ids_RT: Tensor  # int64
    positions_RT: Tensor  # int64, index in the sequence; 0 on padding
    targets_RT: Tensor  # int64
    sequence_RT: Tensor  # int64, index of the sequence a position belongs to, -1 on padding


def best_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Group indices into rows of at most `capacity` by best fit, longest first. Deterministic.

    Raises ValueError for a sequence that no row can hold.
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


def families(
    prompts: Sequence[Sequence[int]], lengths: Sequence[int], capacity: int
) -> tuple[list[list[int]], list[int]]:
    """Group the indices of sequences with the same prompt, at most `capacity` positions per group,
    and count the positions that each borrows from the first of its group.

    These are all of the prompt except its last token, whose target differs. `lengths` counts the
    positions of whole sequences. A sequence longer than `capacity` forms its own group.
    """
    groups: list[list[int]] = []
    room: dict[tuple[int, ...], tuple[int, list[int]]] = {}  # left in a prompt's last group
    borrowed = [0] * len(lengths)
    for index, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        left, group = room.get(key := tuple(prompt), (0, []))
        shared = len(key) - 1
        if group and length - shared <= left:
            borrowed[index] = shared
            room[key] = left - (length - shared), group
        else:
            groups.append(group := [])
            room[key] = capacity - length, group
        group.append(index)
    return groups, borrowed


def lay_out(
    sequences: Sequence[Sequence[int]],
    rows: Sequence[Sequence[int]],
    borrowed: Sequence[int] | None = None,
) -> Packed:
    """Shift each sequence by one token and fill the rows, padded to the longest.

    `borrowed` is the number of first positions that each sequence, by index, shares with the last
    sequence before it in its row that borrows none.
    """
    borrowed = borrowed or [0] * len(sequences)
    width = max(sum(len(sequences[b]) - 1 - borrowed[b] for b in row) for row in rows)
    shape = (len(rows), width)
    ids_RT, positions_RT, targets_RT = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
    sequence_RT = torch.full(shape, -1, dtype=torch.int64)
    for r, row in enumerate(rows):
        start = 0
        for b in row:
            tokens = torch.tensor(sequences[b][borrowed[b] :], dtype=torch.int64)
            span = slice(start, start + len(tokens) - 1)
            ids_RT[r, span] = tokens[:-1]
            targets_RT[r, span] = tokens[1:]
            positions_RT[r, span] = torch.arange(borrowed[b], len(sequences[b]) - 1)
            sequence_RT[r, span] = b
            start = span.stop
    return Packed(
        ids_RT=ids_RT, positions_RT=positions_RT, targets_RT=targets_RT, sequence_RT=sequence_RT
    )


def response_mask(packed: Packed, prompt_lengths: Sequence[int]) -> Tensor:
    """Bool [R, T], true where the target is a response token.

    Position t predicts token t + 1, so the mask starts at the last prompt token.
    """
    prompt_RT = torch.tensor(prompt_lengths)[packed.sequence_RT]
    return (packed.sequence_RT >= 0) & (packed.positions_RT + 1 >= prompt_RT)
