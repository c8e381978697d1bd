"""Graded rollouts to micro-batches of packed rows: who is trained on, and where."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import torch

from pipeline.algorithm import AlgorithmConfig
from pipeline.config import TrainerConfig
from pipeline.device import onto
from pipeline.packing import best_fit, lay_out, response_mask
from pipeline.records import Batch, Graded, Signals, StepCounts


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
) -> list[Minibatch]:
    """`config.minibatches` random, nearly equal shares of the rollouts that may be trained on.

    Left out: rollouts whose verifier failed, and under `truncated: mask` those cut by max_tokens.
    `scored` picks from the places of a share those that go through the forward pass; all of the
    share are in its counts.
    """
    usable = [
        i
        for i, g in enumerate(graded)
        if g.reward is not None
        and not (config.truncated == "mask" and g.rollout.finish == "length")
    ]
    shuffle.shuffle(usable)
    shares = [usable[part :: config.minibatches] for part in range(config.minibatches)]
    return [
        _minibatch(graded, share, scored(share), trainer, max_tokens) for share in shares if share
    ]


def _minibatch(
    everything: Sequence[Graded],
    share: Sequence[int],
    places: Sequence[int],
    trainer: TrainerConfig,
    max_tokens: int,
) -> Minibatch:
    graded = [everything[i] for i in places]
    temperatures = {everything[i].rollout.temperature for i in share}
    if len(temperatures) > 1:
        raise ValueError(f"one step mixes the temperatures {sorted(temperatures)}")
    sizes = [len(g.rollout.prompt_ids) + len(g.rollout.response_ids) - 1 for g in graded]
    rows = best_fit(sizes, max(trainer.row, *sizes))
    pieces = [rows[i : i + trainer.rows] for i in range(0, len(rows), trainer.rows)]
    return Minibatch(
        batches=tuple(_batch(graded, places, piece) for piece in pieces),
        counts=StepCounts(
            sequences=sum(bool(everything[i].rollout.response_ids) for i in share),
            tokens=sum(len(everything[i].rollout.response_ids) for i in share),
            max_length=max_tokens,
        ),
    )


def _batch(graded: Sequence[Graded], places: Sequence[int], rows: Sequence[Sequence[int]]) -> Batch:
    """The rows of one micro-batch, its sequences numbered from 0 in the order they are laid."""
    here = [b for row in rows for b in row]
    rollouts = [graded[b].rollout for b in here]
    number = {b: i for i, b in enumerate(here)}
    packed = lay_out(
        [(*r.prompt_ids, *r.response_ids) for r in rollouts],
        [[number[b] for b in row] for row in rows],
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
