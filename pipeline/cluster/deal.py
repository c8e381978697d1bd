"""Micro-batches for several ranks: equally many each, where short ones that count nothing.

Axes: M values of a micro-batch, as of its masked-in tokens, A those of all.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TypeVar

import torch
from torch import Tensor

from veriloop.pipeline.model.sharded import Ranks
from veriloop.pipeline.types import Batch, Signals

Item = TypeVar("Item")

SCORED = ("old_M", "reference_M", "values_M")  # signals that models compute


def empty_batch(like: Batch) -> Batch:
    """A micro-batch of one position and no sequence. Its loss is 0 and has a gradient of 0, so a
    rank without work takes part in the collectives of a forward and a backward pass."""
    blank_RT = torch.zeros(1, 1, dtype=torch.int64)
    none_B = torch.zeros(0, dtype=torch.int64)
    return replace(
        like,
        ids_RT=blank_RT,
        positions_RT=blank_RT,
        targets_RT=blank_RT,
        mask_RT=torch.zeros(1, 1, dtype=torch.bool),
        sequence_RT=torch.full((1, 1), -1),
        sampler_logp_RT=torch.zeros(1, 1),
        rollout_B=none_B,
        lengths_B=none_B,
    )


def empty_pair(like: Batch, signals: Signals) -> tuple[Batch, Signals]:
    """`empty_batch`, with the signals that a micro-batch of this step has."""
    values = {field.name: getattr(signals, field.name) for field in fields(signals)}
    cut = {name: values_M[:0] for name, values_M in values.items() if values_M is not None}
    return empty_batch(like), replace(signals, **cut)


def exchanged(ranks: Ranks, batches: Sequence[Batch], mine: Sequence[Signals]) -> list[Signals]:
    """The signals of all `batches` on every rank, from those that each rank scored of its deal.

    `mine` are on the CPU, in the order of `Ranks.deal`.
    """
    sizes = [int(batch.mask_RT.sum()) for batch in batches]
    names = [name for name in SCORED if mine and getattr(mine[0], name) is not None]
    scores = [gathered_values(ranks, sizes, [getattr(s, name) for s in mine]) for name in names]
    return [
        Signals(
            advantages_M=torch.zeros(len(values[0])),
            **dict(zip(names, values, strict=True)),  # pyright: ignore
        )
        for values in zip(*scores, strict=True)
    ]


def gathered_values(ranks: Ranks, sizes: Sequence[int], mine: Sequence[Tensor]) -> list[Tensor]:
    """The values of all micro-batches on every rank, [M] each, from those of this rank's deal."""
    if ranks.count == 1 or not mine:
        return [*mine]
    values_A = torch.zeros(sum(sizes))
    own = values_A.split([*sizes])  # views
    for piece_M, values_M in zip(own[ranks.rank :: ranks.count], mine, strict=False):
        piece_M.copy_(values_M)
    return [piece_M.clone() for piece_M in ranks.summed(values_A).split([*sizes])]


def counted(ranks: Ranks, items: Sequence[Item]) -> Sequence[tuple[Item, int]]:
    """This rank's items, each with 1. Where others have more, the first of all is run along, so
    that all take part in the same collectives, and counts 0 times."""
    return ranks.deal([(item, 1) for item in items], lambda: (items[0], 0))


def balanced_rows(rows: int, limit: int, ranks: int) -> int:
    """Rows of a micro-batch, at most `limit`, so that `rows` make a multiple of `ranks`
    micro-batches of nearly equal size."""
    if ranks == 1:
        return limit
    rounds = -(-rows // (limit * ranks))
    return -(-rows // (rounds * ranks))
