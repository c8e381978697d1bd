"""Graded rollouts to micro-batches of packed rows: who is trained on, and where."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import torch

from pipeline.algorithm import AlgorithmConfig
from pipeline.config import TrainerConfig
from pipeline.device import onto
from pipeline.packing import best_fit, families, lay_out, response_mask
from pipeline.records import Batch, Graded, Rollout, Signals, StepCounts

Rows = list[list[int]]  # which sequences stand in each row of a micro-batch
Cut = Callable[[Sequence[Rollout], TrainerConfig], tuple[list[Rows], list[int]]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Minibatch:
    """What one optimizer step sees, in pieces that fit into memory."""

    batches: tuple[Batch, ...]
    counts: StepCounts
    signals: tuple[Signals, ...] = ()  # of each batch, once the models have been asked


def on_device(part: Minibatch, device: torch.device) -> Iterator[tuple[Batch, Signals]]:
    """Each batch with its signals, brought to the device when its turn comes."""
    for batch, signals in zip(part.batches, part.signals, strict=True):
        yield onto(batch, device), onto(signals, device)


def minibatches(
    graded: Sequence[Graded],
    config: AlgorithmConfig,
    trainer: TrainerConfig,
    *,
    max_tokens: int,
    shuffle: Random,
    scored: Callable[[Sequence[int]], Sequence[int]] = tuple,
    share_prompts: bool = False,
) -> list[Minibatch]:
    """`config.minibatches` random, nearly equal shares of the rollouts that may be trained on.

    Left out: rollouts whose verifier failed, and under `truncated: mask` those cut by max_tokens.
    `scored` picks from the places of a share those that go through the forward pass; all of the
    share are in its counts. With `share_prompts` a prompt stands once before all its answers of a
    micro-batch, which is then one long row.
    """
    usable = [
        i
        for i, g in enumerate(graded)
        if g.reward is not None
        and not (config.truncated == "mask" and g.rollout.finish == "length")
    ]
    shuffle.shuffle(usable)
    shares = [usable[part :: config.minibatches] for part in range(config.minibatches)]
    cut = _long_rows if share_prompts else _rows
    return [
        _minibatch(graded, share, scored(share), trainer, max_tokens, cut)
        for share in shares
        if share
    ]


def _minibatch(
    everything: Sequence[Graded],
    share: Sequence[int],
    places: Sequence[int],
    trainer: TrainerConfig,
    max_tokens: int,
    cut: Cut,
) -> Minibatch:
    graded = [everything[i] for i in places]
    temperatures = {everything[i].rollout.temperature for i in share}
    if len(temperatures) > 1:
        raise ValueError(f"one step mixes the temperatures {sorted(temperatures)}")
    pieces, borrowed = cut([g.rollout for g in graded], trainer)
    return Minibatch(
        batches=tuple(_batch(graded, places, piece, borrowed) for piece in pieces),
        counts=StepCounts(
            sequences=sum(bool(everything[i].rollout.response_ids) for i in share),
            tokens=sum(len(everything[i].rollout.response_ids) for i in share),
            max_length=max_tokens,
        ),
    )


def _rows(rollouts: Sequence[Rollout], trainer: TrainerConfig) -> tuple[list[Rows], list[int]]:
    """The rows of each micro-batch, every sequence whole."""
    lengths = [len(r.prompt_ids) + len(r.response_ids) - 1 for r in rollouts]
    rows = best_fit(lengths, max(trainer.row, *lengths))
    pieces = [rows[i : i + trainer.rows] for i in range(0, len(rows), trainer.rows)]
    return pieces, [0] * len(rollouts)


def _long_rows(rollouts: Sequence[Rollout], trainer: TrainerConfig) -> tuple[list[Rows], list[int]]:
    """One row for each micro-batch, of as many positions, in which answers to one prompt stand
    behind one another; and what they borrow from the first of them."""
    lengths = [len(r.prompt_ids) + len(r.response_ids) - 1 for r in rollouts]
    capacity = max(trainer.row * trainer.rows, *lengths)
    groups, borrowed = families([r.prompt_ids for r in rollouts], lengths, capacity)
    sizes = [sum(lengths[b] - borrowed[b] for b in group) for group in groups]
    rows = best_fit(sizes, capacity)
    return [[[b for g in row for b in groups[g]]] for row in rows], borrowed


def _batch(
    graded: Sequence[Graded], places: Sequence[int], rows: Rows, borrowed: Sequence[int]
) -> Batch:
    """The rows of one micro-batch, its sequences numbered from 0 in the order they are laid."""
    here = [b for row in rows for b in row]
    rollouts = [graded[b].rollout for b in here]
    number = {b: i for i, b in enumerate(here)}
    packed = lay_out(
        [(*r.prompt_ids, *r.response_ids) for r in rollouts],
        [[number[b] for b in row] for row in rows],
        [borrowed[b] for b in here],
    )
    mask_RT = response_mask(packed, [len(r.prompt_ids) for r in rollouts])
    sampler_logp_RT = torch.zeros(packed.ids_RT.shape)
    sampler_logp_RT[mask_RT] = torch.tensor(
        [logp for row in rows for b in row for logp in graded[b].rollout.logp]
    )
    return Batch(
        ids_RT=packed.ids_RT,
        positions_RT=packed.positions_RT,
        targets_RT=packed.targets_RT,
        mask_RT=mask_RT,
        sequence_RT=packed.sequence_RT,
        sampler_logp_RT=sampler_logp_RT,
        rollout_B=torch.tensor([places[b] for b in here]),
        lengths_B=torch.tensor([len(r.response_ids) for r in rollouts]),
        temperature=rollouts[0].temperature,
    )
