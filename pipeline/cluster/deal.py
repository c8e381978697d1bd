"""Micro-batches for several ranks: equally many each, where short ones without sequences.

Axes: M masked-in tokens of a micro-batch, A those of all, F fields of signals.
"""

from collections.abc import Sequence
from dataclasses import fields, replace

import torch

from veriloop.pipeline.cluster.ranks import Ranks
from veriloop.pipeline.types import Batch, Signals

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
    values_FA = torch.zeros(len(names), sum(sizes))
    own = values_FA.split(sizes, dim=1)  # views
    for piece_FM, signals in zip(own[ranks.rank :: ranks.count], mine, strict=False):
        for row_M, name in zip(piece_FM, names, strict=True):
            row_M.copy_(getattr(signals, name))
    pieces = ranks.summed(values_FA).split(sizes, dim=1)
    return [
        Signals(
            advantages_M=torch.zeros(size),
            **dict(zip(names, piece_FM.clone(), strict=True)),  # pyright: ignore
        )
        for size, piece_FM in zip(sizes, pieces, strict=True)
    ]
