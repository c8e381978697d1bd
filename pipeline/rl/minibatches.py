"""Graded rollouts to mini-batches, each of micro-batches of packed rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from random import Random

import torch
from torch import Tensor

from veriloop.pipeline.cluster.deal import balanced_rows, empty_pair
from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.device import onto
from veriloop.pipeline.model.packing import best_fit, families, lay_out, response_mask
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.types import Batch, Graded, Rollout, Signals, StepCounts

Rows = list[list[int]]  # the sequences in each row of a micro-batch
Layout = Callable[..., tuple[list[Rows], list[int]]]  # of rollouts, trainer and ranks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Minibatch:
    """The data of one optimizer step, in micro-batches that fit into memory."""

    batches: tuple[Batch, ...]
    counts: StepCounts
    signals: tuple[Signals, ...] = ()  # of each batch, once the models have scored it


def on_device(
    part: Minibatch, device: torch.device, ranks: Ranks = SINGLE
) -> Iterator[tuple[Batch, Signals]]:
    """This rank's batches with their signals, moved to the device one at a time."""
    pairs = [*zip(part.batches, part.signals, strict=True)]
    for batch, signals in ranks.deal(pairs, lambda: empty_pair(*pairs[0])):
        yield onto(batch, device), onto(signals, device)


def minibatches(
    graded: Sequence[Graded],
    config: AlgorithmConfig,
    trainer: TrainerConfig,
    *,
    max_tokens: int,
    shuffle: Random,
    select: Callable[[Sequence[int]], Sequence[int]] = tuple,
    share_prompts: bool = False,
    ranks: int = 1,
    reads_rewards: bool = True,
) -> list[Minibatch]:
    """`config.minibatches` random, nearly equal shares of the rollouts that are `trained` on.

    `select` picks the rollouts of a share that go through the forward pass; its counts include the
    whole share. With `share_prompts` a micro-batch is one long row, in which a prompt appears once
    before all its responses. Several `ranks` get shorter micro-batches where that gives each one.
    """
    usable = trained(graded, config, reads_rewards=reads_rewards)
    shuffle.shuffle(usable)
    shares = [usable[part :: config.minibatches] for part in range(config.minibatches)]
    layout = _long_rows if share_prompts else _rows
    return [
        _minibatch(graded, share, select(share), trainer, max_tokens, partial(layout, ranks=ranks))
        for share in shares
        if share
    ]


def trained(graded: Sequence[Graded], config: AlgorithmConfig, *, reads_rewards: bool) -> list[int]:
    """The indices of the rollouts that are trained on.

    Excludes rollouts whose verifier failed, for process supervision that of their steps too, unless
    the update reads no rewards; with `truncated: mask` also those cut by max_tokens.
    """
    return [
        i
        for i, g in enumerate(graded)
        if (_is_scored(g, config) or not reads_rewards)
        and not (config.truncated == "mask" and g.rollout.finish == "length")
    ]


def _is_scored(graded: Graded, config: AlgorithmConfig) -> bool:
    has_steps = config.advantage != "process" or graded.steps is not None
    return graded.reward is not None and has_steps


def with_signals_of(scored: Sequence[Minibatch], fresh: Sequence[Minibatch]) -> list[Minibatch]:
    """`fresh`, the same rollouts in another order, with the signals that `scored` has for them.

    A rollout that is not in `scored` was left out because it has no gradient: its advantages are 0
    and its old log-probs those of the sampler.
    """
    known: dict[str, dict[int, Tensor]] = {field.name: {} for field in fields(Signals)}
    for part in scored:
        for batch, signals in zip(part.batches, part.signals, strict=True):
            for name, by_rollout in known.items():
                if (values_M := getattr(signals, name)) is not None:
                    by_rollout.update(_by_rollout(batch, values_M))

    def signals_of(batch: Batch) -> Signals:
        sampler_M = batch.sampler_logp_RT[batch.mask_RT]
        order = _by_rollout(batch, sampler_M)
        left_out = {"advantages_M": _by_rollout(batch, torch.zeros_like(sampler_M)), "old_M": order}
        by_name = {name: left_out.get(name, {}) | own for name, own in known.items()}
        return Signals(
            **{name: torch.cat([own[n] for n in order]) for name, own in by_name.items() if own}
        )

    return [replace(part, signals=tuple(map(signals_of, part.batches))) for part in fresh]


def _by_rollout(batch: Batch, values_M: Tensor) -> dict[int, Tensor]:
    """The values of each rollout's tokens, in the order of the batch."""
    owner_M = batch.rollout_B[batch.sequence_RT[batch.mask_RT]]
    rollouts, counts = owner_M.unique_consecutive(return_counts=True)
    return dict(zip(rollouts.tolist(), values_M.split(counts.tolist()), strict=True))


def _minibatch(
    everything: Sequence[Graded],
    share: Sequence[int],
    places: Sequence[int],
    trainer: TrainerConfig,
    max_tokens: int,
    layout: Layout,
) -> Minibatch:
    graded = [everything[i] for i in places]
    temperatures = {everything[i].rollout.temperature for i in share}
    if len(temperatures) > 1:
        raise ValueError(f"one step mixes the temperatures {sorted(temperatures)}")
    pieces, borrowed = layout([g.rollout for g in graded], trainer)
    return Minibatch(
        batches=tuple(_batch(graded, places, piece, borrowed) for piece in pieces),
        counts=StepCounts(
            sequences=sum(bool(everything[i].rollout.response_ids) for i in share),
            tokens=sum(len(everything[i].rollout.response_ids) for i in share),
            max_length=max_tokens,
        ),
    )


def _rows(
    rollouts: Sequence[Rollout], trainer: TrainerConfig, *, ranks: int
) -> tuple[list[Rows], list[int]]:
    """The rows of each micro-batch; every sequence is whole."""
    lengths = [len(r.prompt_ids) + len(r.response_ids) - 1 for r in rollouts]
    rows = best_fit(lengths, max(trainer.row, *lengths))
    count = balanced_rows(len(rows), trainer.rows, ranks)
    pieces = [rows[i : i + count] for i in range(0, len(rows), count)]
    return pieces, [0] * len(rollouts)


def _long_rows(
    rollouts: Sequence[Rollout], trainer: TrainerConfig, *, ranks: int
) -> tuple[list[Rows], list[int]]:
    """One long row for each micro-batch, with the responses to a prompt adjacent.

    Also returns how many positions each sequence borrows from the first of its prompt.
    """
    lengths = [len(r.prompt_ids) + len(r.response_ids) - 1 for r in rollouts]
    prompts = [r.prompt_ids for r in rollouts]
    capacity = max(trainer.row * trainer.rows, *lengths)
    groups, borrowed = families(prompts, lengths, capacity)
    if ranks > 1:
        capacity = min(capacity, max(-(-(sum(lengths) - sum(borrowed)) // ranks), *lengths))
        groups, borrowed = families(prompts, lengths, capacity)
    sizes = [sum(lengths[b] - borrowed[b] for b in group) for group in groups]
    rows = best_fit(sizes, capacity)
    return [[[b for g in row for b in groups[g]]] for row in rows], borrowed


def _batch(
    graded: Sequence[Graded], places: Sequence[int], rows: Rows, borrowed: Sequence[int]
) -> Batch:
    """The rows of one micro-batch; its sequences are numbered in layout order."""
    order = [b for row in rows for b in row]
    rollouts = [graded[b].rollout for b in order]
    number = {b: i for i, b in enumerate(order)}
    packed = lay_out(
        [(*r.prompt_ids, *r.response_ids) for r in rollouts],
        [[number[b] for b in row] for row in rows],
        [borrowed[b] for b in order],
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
        rollout_B=torch.tensor([places[b] for b in order]),
        lengths_B=torch.tensor([len(r.response_ids) for r in rollouts]),
        temperature=rollouts[0].temperature,
    )
