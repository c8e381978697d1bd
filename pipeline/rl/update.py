"""One optimizer step: score, objective, KL, aggregate, backward, step.

Axes: R packed rows, T positions, M masked-in tokens of a micro-batch.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.errors import NonFiniteError, StageError
from veriloop.pipeline.losses.aggregate import aggregate
from veriloop.pipeline.losses.kl import k3, old_policy_kl
from veriloop.pipeline.losses.mismatch import DroppedByLength, dropped_by_length
from veriloop.pipeline.losses.policy_gradient import importance_ratio, with_entropy_bonus
from veriloop.pipeline.losses.value import value_loss
from veriloop.pipeline.model.device import device_of
from veriloop.pipeline.model.policy import logp_entropy
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.rl.critic import Critic
from veriloop.pipeline.rl.minibatches import Minibatch, on_device
from veriloop.pipeline.rl.natural_step import Fisher, natural_step
from veriloop.pipeline.rl.objective import correction, drift, objective
from veriloop.pipeline.rl.trust_region import step_within
from veriloop.pipeline.training.measurements import Tally, span
from veriloop.pipeline.training.optimizer import Optimizer
from veriloop.pipeline.types import Batch, SeenTokens, Signals, StepCounts, Update

_MEASURED = {  # each can be infinite where the loss is finite: a clip or the reward keeps it out
    "value_loss": "value loss",
    "kl": "KL to the reference",
    "old_kl": "KL to the old policy",
    "ratio": "sum of importance ratios",
    "entropy": "entropy",
}
LENGTHS = tuple(2**n for n in range(6, 16))  # response tokens; upper edges of the buckets


class MismatchError(StageError):
    """The trainer's log-probs differ from those the sampler reported; no step was taken."""


@dataclass(slots=True)
class TokenTrace:
    """Collects `SeenTokens` by the index of a rollout in the step."""

    _noted: list[tuple[Tensor, ...]] = field(default_factory=list)  # on the update's device
    _seen: dict[int, SeenTokens] = field(default_factory=dict)

    @property
    def seen(self) -> Mapping[int, SeenTokens]:
        """Tokens by rollout index, without rollouts that were not trained on."""
        while self._noted:
            rollout_B, *rest = (x.cpu() for x in self._noted.pop(0))
            if rest:
                self._store(rollout_B, *rest)
            else:
                dropped = set(rollout_B.tolist())
                self._seen = {n: seen for n, seen in self._seen.items() if n not in dropped}
        return self._seen

    def clear(self) -> None:
        """Start a new step."""
        self._noted, self._seen = [], {}

    def forget(self, batches: Iterable[Batch]) -> None:
        """Drop what was recorded of these rollouts: another rank may record them next."""
        self._noted += [(batch.rollout_B,) for batch in batches]

    @torch.no_grad()
    def note(
        self,
        batch: Batch,
        logp_M: Tensor,
        entropy_M: Tensor,
        advantages_M: Tensor,
        low_M: Tensor,
        high_M: Tensor,
    ) -> None:
        """Record a micro-batch; `low_M` and `high_M` are the clip masks."""
        clipped_M = high_M.to(torch.int8) - low_M.to(torch.int8)
        values = (logp_M.detach(), entropy_M.detach(), advantages_M, clipped_M)
        self._noted.append((batch.rollout_B, batch.sequence_RT[batch.mask_RT], *values))

    def _store(self, rollout_B: Tensor, sequence_M: Tensor, *values_M: Tensor) -> None:
        sequences, counts = sequence_M.unique_consecutive(return_counts=True)
        pieces = [x_M.split(counts.tolist()) for x_M in values_M]
        rollouts = rollout_B[sequences].tolist()
        for rollout, logp, entropy, advantage, clipped in zip(rollouts, *pieces, strict=True):
            self._seen[rollout] = SeenTokens(
                logp_T=logp, entropy_T=entropy, advantage_T=advantage, clipped_T=clipped
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateContext:
    """What an optimizer step reads and updates."""

    policy: Any
    optimizer: Optimizer
    algorithm: AlgorithmConfig
    chunk: int  # tokens whose logits are in memory at once
    critic: Critic | None = None
    pretraining: Callable[[int], Tensor] | None = None  # PPO-ptx loss by optimizer step
    trace: TokenTrace | None = None  # records per-token values
    ranks: Ranks = SINGLE  # which share the micro-batches


@dataclass(slots=True)
class _Sums:
    """Token sums over the micro-batches of a step, on the device."""

    tally: Tally = field(default_factory=Tally)
    dropped: DroppedByLength | None = None

    def totals(self, ranks: Ranks) -> dict[str, float]:
        """The sums of all ranks."""
        if self.dropped is not None:
            self.dropped = DroppedByLength(
                tokens_L=ranks.summed(self.dropped.tokens_L),
                dropped_L=ranks.summed(self.dropped.dropped_L),
            )
        return self.tally.totals(ranks.stacked if ranks.count > 1 else None)


def update(
    context: UpdateContext,
    minibatch: Minibatch,
    *,
    progress: float,
    done: int,
    old_kl_coefficient: float = 0.0,
    critic_only: bool = False,
    tolerance: float | None = None,
) -> Update:
    """Accumulate the gradient over the micro-batches and step once.

    `progress` in [0, 1] and `done` (optimizer steps so far) place the step in the learning-rate
    schedule. `old_kl_coefficient` is the current weight of the penalty on KL(old || policy). With
    `critic_only` the policy is not stepped. A `tolerance`, in nats, asserts that the policy is the
    one that sampled: raises MismatchError, before stepping, if the mean difference of log-probs
    exceeds it. (The mean and not the maximum: float32 alone moves one token in many thousands by
    1e-4.)
    """
    sums, counts = _Sums(), minibatch.counts
    _accumulate(context, minibatch, sums, old_kl_coefficient, critic_only=critic_only)
    scored = sum(int(batch.mask_RT.sum()) for batch in minibatch.batches)
    tokens = max(scored, 1)
    with span("backward"):  # fetching the totals waits for the backward pass
        totals = defaultdict(float, sums.totals(context.ranks))
    gap, widest = totals["gap"] / tokens, totals["widest"]
    checked = {"loss": totals["loss"], "log-prob difference": gap}
    checked |= {name: totals[key] for key, name in _MEASURED.items()}
    with _all_or_none(context):
        _check_finite(done, checked)
    check_mismatch(context.optimizer, gap, widest, tokens, tolerance, done)
    ptx_loss = None if critic_only else _pretrain(context, done)
    with span("optimizer"), _all_or_none(context):
        if context.critic is not None:
            context.critic.check()
        if critic_only:
            context.optimizer.forget()
            grad_norm, learning_rate, kept = 0.0, 0.0, 0.0
        elif context.algorithm.objective == "natural_gradient":
            grad_norm, learning_rate, kept = _natural_step(
                context, minibatch, totals["loss"], old_kl_coefficient, done
            )
        else:
            grad_norm, learning_rate, kept = _step(context, minibatch, progress, done)
        if context.critic is not None:
            context.critic.step(progress, done)
    return Update(
        loss=totals["loss"],
        value_loss=totals["value_loss"],
        kl=totals["kl"] / tokens,
        old_kl=totals["old_kl"] / tokens,
        entropy=totals["entropy"] / tokens,
        clipped_low=totals["low"] / tokens,
        clipped_high=totals["high"] / tokens,
        ratio_mean=totals["ratio"] / tokens,
        mismatch_mean=gap,
        mismatch_max=widest,
        dropped=() if sums.dropped is None else sums.dropped.pairs,
        grad_norm=grad_norm,
        learning_rate=learning_rate,
        kept=kept,
        tokens=counts.tokens,
        scored=scored,
        ptx_loss=ptx_loss,
    )


def _pretrain(context: UpdateContext, done: int) -> float | None:
    """Add the gradient of the loss on text; returns that loss of all ranks without its weight."""
    if context.pretraining is None:
        return None
    share = context.pretraining(done)
    share.backward()
    return context.ranks.summed(share.detach()).item() / context.algorithm.ptx_coefficient


def _accumulate(
    context: UpdateContext,
    minibatch: Minibatch,
    sums: _Sums,
    old_kl_coefficient: float,
    *,
    critic_only: bool,
) -> None:
    """Add the gradient of every micro-batch to `.grad`, and its token sums to `sums`."""
    counts, ranks = minibatch.counts, context.ranks
    if context.trace is not None and ranks.count > 1:
        context.trace.forget(minibatch.batches)
    for batch, signals in on_device(minibatch, device_of(context.policy), ranks):
        with span("forward"):
            loss = _loss(context, batch, signals, counts, old_kl_coefficient, sums)
            if context.critic is not None:
                value = _value_loss(context, batch, signals, counts, sums)
                loss = value if critic_only else loss + value
        with span("backward"):
            loss.backward()


@contextmanager
def _all_or_none(context: UpdateContext) -> Iterator[None]:
    """If a total or gradient inside is not finite, the gradients of policy and critic are cleared,
    which the next step must not contain."""
    try:
        yield
    except NonFiniteError:
        context.optimizer.forget()
        if context.critic is not None:
            context.critic.forget()
        raise


def _check_finite(done: int, totals: Mapping[str, float]) -> None:
    for name, value in totals.items():
        if not math.isfinite(value):
            raise NonFiniteError(f"the {name} is {value} at optimizer step {done}")


def _loss(
    context: UpdateContext,
    batch: Batch,
    signals: Signals,
    counts: StepCounts,
    old_kl_coefficient: float,
    sums: _Sums,
) -> Tensor:
    """This micro-batch's share of -J, J the objective; adds its token sums to `sums`."""
    algorithm = context.algorithm
    logp_M, entropy_M = logp_entropy(context.policy, batch, context.chunk)
    terms = objective(algorithm, logp_M, signals, batch, old_kl_coefficient=old_kl_coefficient)
    if context.trace is not None:
        advantages_M = signals.advantages_M
        context.trace.note(batch, logp_M, entropy_M, advantages_M, terms.low_M, terms.high_M)
    objective_M = terms.values_M
    if algorithm.old_logp == "trainer":
        weight_M = correction(algorithm, signals.old_M, batch)
        objective_M = objective_M * weight_M
        sequence_M = batch.sequence_RT[batch.mask_RT]
        dropped = dropped_by_length(weight_M != 0, sequence_M, batch.lengths_B, LENGTHS)
        sums.dropped = dropped if sums.dropped is None else sums.dropped + dropped
    if signals.reference_M is not None:
        sums.tally.add("kl", k3(logp_M.detach(), signals.reference_M).sum())
        if algorithm.kl_placement == "loss":
            kl_M = drift(algorithm.kl_estimator, logp_M, signals.reference_M, signals.old_M)
            objective_M = objective_M - algorithm.kl_coefficient * kl_M
    if algorithm.entropy_coefficient:
        objective_M = with_entropy_bonus(objective_M, entropy_M, algorithm.entropy_coefficient)
    _measure(sums.tally, logp_M, signals.old_M, batch)
    sums.tally.add("entropy", entropy_M.sum())
    sums.tally.add("low", terms.low_M.sum())
    sums.tally.add("high", terms.high_M.sum())
    loss = _aggregate(-objective_M, batch, counts, algorithm)
    sums.tally.add("loss", loss)
    return loss


def _value_loss(
    context: UpdateContext, batch: Batch, signals: Signals, counts: StepCounts, sums: _Sums
) -> Tensor:
    """This micro-batch's share of the critic's loss, a mean over the step's tokens."""
    critic, algorithm = context.critic, context.algorithm
    assert critic is not None and signals.values_M is not None and signals.targets_M is not None
    values_M = critic.values(context.policy, batch)
    squares_M, _ = value_loss(
        values_M, signals.values_M, signals.targets_M, clip=algorithm.value_clip
    )
    loss = squares_M.sum() / max(counts.tokens, 1)
    sums.tally.add("value_loss", loss)
    return loss if critic.trunk is not None else algorithm.value_coefficient * loss


def _aggregate(
    values_M: Tensor, batch: Batch, counts: StepCounts, algorithm: AlgorithmConfig
) -> Tensor:
    """This micro-batch's share of the step's aggregate of token values."""
    values_RT = torch.zeros_like(batch.sampler_logp_RT).masked_scatter(batch.mask_RT, values_M)
    return aggregate(
        values_RT,
        batch.mask_RT,
        batch.sequence_RT,
        batch.lengths_B,
        counts,
        algorithm.aggregation,
    )


def _natural_step(
    context: UpdateContext,
    minibatch: Minibatch,
    loss: float,
    old_kl_coefficient: float,
    done: int,
) -> tuple[float, float, float]:
    """`_step` along the natural gradient, without the optimizer; `loss` is that before it."""
    untraced = replace(context, trace=None)

    @torch.no_grad()
    def measure() -> tuple[float, float]:
        sums = _Sums()
        for batch, signals in on_device(minibatch, device_of(context.policy)):
            _loss(untraced, batch, signals, minibatch.counts, old_kl_coefficient, sums)
        totals = sums.tally.totals()
        return totals["old_kl"] / max(minibatch.counts.tokens, 1), totals["loss"]

    fisher = Fisher(policy=context.policy, minibatch=minibatch, chunk=context.chunk)
    bound = context.algorithm.trust_region
    return natural_step(fisher, bound, loss=loss, measure=measure, done=done)


def _step(
    context: UpdateContext, minibatch: Minibatch, progress: float, done: int
) -> tuple[float, float, float]:
    """Returns (gradient norm, learning rate, share of the step kept by the trust region)."""
    optimizer = context.optimizer
    if context.algorithm.trust_region:
        return step_within(
            context.algorithm.trust_region,
            context.policy,
            minibatch,
            context.chunk,
            lambda: optimizer.step(progress, done),
            context.ranks,
        )
    return *optimizer.step(progress, done), 1.0


def check_mismatch(
    optimizer: Optimizer,
    mean: float,
    widest: float,
    tokens: int,
    tolerance: float | None,
    done: int,
) -> None:
    """Clear the gradient and raise MismatchError if trainer and sampler differ too much.

    `mean` and `widest` are the mean and largest difference of log-probs on these tokens, in nats;
    `mean` may be at most `tolerance`, None for no check.
    """
    if tolerance is None or mean <= tolerance:  # NaN fails this too
        return
    optimizer.forget()
    raise MismatchError(
        f"before optimizer step {done} the trainer's log-probs differ from the sampler's by "
        f"{mean:.2e} nats on average, {widest:.2e} at most, on {tokens} "
        f"tokens, allowed {tolerance:.0e} (sampler.tolerance): stale weights, another temperature, "
        "or misplaced tokens"
    )


@torch.no_grad()
def _measure(tally: Tally, logp_M: Tensor, old_M: Tensor, batch: Batch) -> None:
    """Add the distances of the current policy to the old one and to the sampler."""
    gap_M = (logp_M - batch.sampler_logp_RT[batch.mask_RT]).abs()
    tally.add_max("widest", gap_M)
    tally.add("gap", gap_M.sum())
    tally.add("ratio", importance_ratio(logp_M, old_M).sum())
    tally.add("old_kl", old_policy_kl(logp_M, old_M).sum())
