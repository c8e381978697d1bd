"""Where the sequences of packed rows lie, as attention reads them.

Axes: R rows, T positions, N = R * T, P slots of all padded sequences, B sequences of a bucket, L
their padded length.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)  # what torch's flash kernels multiply
FILLED = 0.75  # of a bucket's longest sequence, at least: shorter ones get a bucket of their own


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segments:
    """Where each sequence of packed rows goes when they are attended to in buckets, with the
    positions that are its own."""

    position_P: Tensor  # int64, which of N each slot is filled from
    slot_N: Tensor  # int64, where each position went
    empty_P: Tensor | None  # int64, slots that only pad; None without any
    buckets: tuple[tuple[int, int], ...]  # (B, L) of each; their slots follow one another
    loans: "Loans | None"  # None where every sequence is whole


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loans:
    """What is lent to whom: each of the positions lent is read by all of its loan's borrowers."""

    lent: Tensor  # int64, positions of N, those of one loan after another
    by: Tensor  # int64, positions of N that borrow, likewise; none is in two loans
    sizes: tuple[tuple[int, int], ...]  # of each loan: positions lent, positions that borrow


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edges:
    """Where the sequences of packed rows begin and end when all rows are laid end to end."""

    at_B1: Tensor  # int32, of N; B sequences have B + 1 of them
    longest: int


def laid(positions_RT: Tensor, dtype: torch.dtype) -> Segments | Edges:
    """What attention in this type reads of packed rows, where they lie."""
    if positions_RT.device.type == "cuda" and dtype in HALF:
        return edges(positions_RT)
    return segments(positions_RT)


def edges(positions_RT: Tensor) -> Edges:
    """The sequences are those of `segments`."""
    starting_RT = positions_RT == 0
    starting_RT[:, 0] = True
    starts_B = starting_RT.flatten().nonzero().squeeze(1)
    at_B1 = torch.cat([starts_B, starts_B.new_tensor([positions_RT.numel()])])
    return Edges(at_B1=at_B1.to(torch.int32), longest=int(at_B1.diff().max()))


def segments(positions_RT: Tensor) -> Segments:
    """A sequence begins at every position 0 and at every row. Padding, whose positions are 0, is
    sequences of one position.

    Where positions go on from another place p than they were at, a sequence begins whose first p
    positions are those of the last one that began at 0. Raises ValueError if that has fewer.
    """
    device = positions_RT.device
    positions_RT = positions_RT.cpu()
    starting_RT = positions_RT == 0
    starting_RT[:, 1:] |= _leaps(positions_RT)
    starting_RT[:, 0] = True
    starts_B = starting_RT.flatten().nonzero().squeeze(1)
    total = positions_RT.numel()
    lengths_B = torch.diff(starts_B, append=torch.tensor([total]))
    loans = list(_loans(positions_RT, starts_B, lengths_B))
    lengths_B, order_B = lengths_B.sort(descending=True, stable=True)
    starts_B = starts_B[order_B]
    buckets, taken, positions, filled = [], 0, list[Tensor](), list[Tensor]()
    while taken < len(lengths_B):
        longest = int(lengths_B[taken])
        fits = int((lengths_B >= FILLED * longest).sum()) - taken
        here = slice(taken, taken + fits)
        step_BL = torch.arange(longest).expand(fits, -1)
        last_B1 = lengths_B[here, None] - 1
        positions.append((starts_B[here, None] + step_BL.minimum(last_B1)).flatten())
        filled.append((step_BL <= last_B1).flatten())
        buckets.append((fits, longest))
        taken += fits
    position_P, filled_P = torch.cat(positions), torch.cat(filled)
    slot_N = torch.empty(total, dtype=torch.int64)
    slot_N[position_P[filled_P]] = filled_P.nonzero().squeeze(1)
    empty_P = (~filled_P).nonzero().squeeze(1)
    return Segments(
        position_P=position_P.to(device),
        slot_N=slot_N.to(device),
        empty_P=empty_P.to(device) if len(empty_P) else None,
        buckets=tuple(buckets),
        loans=_joined(loans, device) if loans else None,
    )


def _loans(
    positions_RT: Tensor, starts_B: Tensor, lengths_B: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Positions that are lent, and those of all sequences that borrow just them."""
    width = positions_RT.shape[1]
    first_B = positions_RT.flatten()[starts_B]
    lender, has, found = 0, 0, dict[tuple[int, int], list[Tensor]]()
    for start, length, first in zip(
        starts_B.tolist(), lengths_B.tolist(), first_B.tolist(), strict=True
    ):
        if not first or start % width == 0:
            lender, has = start, length
        elif first > has:
            raise ValueError(f"a sequence borrows {first} positions of one that has {has}")
        else:
            found.setdefault((lender, first), []).append(torch.arange(start, start + length))
    for (start, count), borrowing in found.items():
        yield torch.arange(start, start + count), torch.cat(borrowing)


def _joined(loans: Sequence[tuple[Tensor, Tensor]], device: torch.device) -> Loans:
    return Loans(
        lent=torch.cat([lent for lent, _ in loans]).to(device),
        by=torch.cat([by for _, by in loans]).to(device),
        sizes=tuple((len(lent), len(by)) for lent, by in loans),
    )


def borrowing(positions_RT: Tensor) -> bool:
    """Whether a sequence of these rows borrows positions from another."""
    return bool((_leaps(positions_RT) & (positions_RT[:, 1:] > 0)).any())


def _leaps(positions_RT: Tensor) -> Tensor:
    """[R, T - 1], true where a position does not go on from the one before it."""
    return positions_RT[:, 1:] != positions_RT[:, :-1] + 1
