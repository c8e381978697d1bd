"""One optimizer step: score, objective, KL, aggregate, backward, step.

Axes: R packed rows, T positions, M masked-in tokens of a micro-batch.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pipeline.algorithm import AlgorithmConfig
from pipeline.assemble import Minibatch, on_device
from pipeline.clock import span
from pipeline.critic import Critic
from pipeline.device import device_of
from pipeline.failures import StageError
from pipeline.losses.aggregate import aggregate
from pipeline.losses.kl import k3
from pipeline.losses.mismatch import DroppedByLength, dropped_by_length
from pipeline.losses.policy_gradient import importance_ratio
from pipeline.losses.trust_region import old_policy_kl
from pipeline.losses.value import value_loss
from pipeline.objective import correction, drift, objective
from pipeline.optimizer import Optimizer
from pipeline.policy import logp_entropy
from pipeline.records import Batch, Signals, StepCounts, Update
from pipeline.tally import Tally
from pipeline.token_trace import TokenTrace
from pipeline.trust_region import step_within

LENGTHS = tuple(2**n for n in range(6, 16))  # tokens of answers, where one bucket ends


class MismatchError(StageError):
    """The trainer does not find the log-probs that the sampler reported; no step was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """What an optimizer step works on."""

    policy: Any
    optimizer: Optimizer
    algorithm: AlgorithmConfig
    chunk: int  # tokens whose logits exist at one time
    critic: Critic | None = None
    pretraining: Callable[[int], Tensor] | None = None  # the loss on text, by optimizer step
    trace: TokenTrace | None = None  # where to take down what is seen of each token


@dataclass(slots=True)
class _Sums:
    """Token sums over the micro-batches of a step, where they were computed."""

    tally: Tally = field(default_factory=Tally)
    dropped: DroppedByLength | None = None


def update(
    learner: Learner,
    minibatch: Minibatch,
    *,
    progress: float,
    done: int,
    old_kl_coefficient: float = 0.0,
    policy_rests: bool = False,
    tolerance: float | None = None,
) -> Update:
    """Accumulate the gradient over the micro-batches and step once.

    `progress` and `done` place the step in the learning-rate schedule. `old_kl_coefficient` is
    the KL penalty's weight as it stands. With `policy_rests` the critic alone learns. With a
    `tolerance` the policy is taken to be the one that sampled: raises MismatchError, before
    stepping, when log-probs differ by more nats on average. (Not at most: float32 alone moves one
    token in many thousands by 1e-4.)
    """
    sums, counts = _Sums(), minibatch.counts
    for batch, signals in on_device(minibatch, device_of(learner.policy)):
        with span("forward"):
            loss = _loss(learner, batch, signals, counts, old_kl_coefficient, sums)
            if learner.critic is not None:
                value = _value_loss(learner, batch, signals, counts, sums)
                loss = value if policy_rests else loss + value
        with span("backward"):
            loss.backward()
    scored = sum(int(batch.mask_RT.sum()) for batch in minibatch.batches)
    tokens = max(scored, 1)
    with span("backward"):  # a card is waited for where its work was asked for
        seen = defaultdict(float, sums.tally.told())
    gap, widest = seen["gap"] / tokens, seen["widest"]
    check_mismatch(learner.optimizer, gap, widest, tokens, tolerance, done)
    if learner.pretraining is not None and not policy_rests:
        learner.pretraining(done).backward()
    with span("optimizer"):
        grad_norm, learning_rate, kept = _step(learner, minibatch, progress, done, policy_rests)
    return Update(
        loss=seen["loss"],
        value_loss=seen["value_loss"],
        kl=seen["kl"] / tokens,
        old_kl=seen["old_kl"] / tokens,
        entropy=seen["entropy"] / tokens,
        clipped_low=seen["low"] / tokens,
        clipped_high=seen["high"] / tokens,
        ratio_mean=seen["ratio"] / tokens,
        mismatch_mean=gap,
        mismatch_max=widest,
        dropped=() if sums.dropped is None else tuple(sums.dropped.share.tolist()),
        grad_norm=grad_norm,
        learning_rate=learning_rate,
        kept=kept,
        tokens=counts.tokens,
        scored=scored,
    )


def _loss(
    learner: Learner,
    batch: Batch,
    signals: Signals,
    counts: StepCounts,
    old_kl_coefficient: float,
    sums: _Sums,
) -> Tensor:
    """This micro-batch's share of -J; adds its token sums to `sums`."""
    algorithm = learner.algorithm
    logp_M, entropy_M = logp_entropy(learner.policy, batch, learner.chunk)
    found = objective(algorithm, logp_M, signals, batch, old_kl_coefficient=old_kl_coefficient)
    if learner.trace is not None:
        advantages_M = signals.advantages_M
        learner.trace.note(batch, logp_M, entropy_M, advantages_M, found.low_M, found.high_M)
    objective_M = found.values_M
    if algorithm.old_logp == "trainer":
        weight_M = correction(algorithm, signals.old_M, batch)
        objective_M = objective_M * weight_M
        sequence_M = batch.sequence_RT[batch.mask_RT]
        here = dropped_by_length(weight_M != 0, sequence_M, batch.lengths_B, LENGTHS)
        sums.dropped = here if sums.dropped is None else sums.dropped + here
    if signals.reference_M is not None:
        sums.tally.add("kl", k3(logp_M.detach(), signals.reference_M).sum())
        if algorithm.kl_placement == "loss":
            kl_M = drift(algorithm.kl_estimator, logp_M, signals.reference_M, signals.old_M)
            objective_M = objective_M - algorithm.kl_coefficient * kl_M
    if algorithm.entropy_coefficient:
        objective_M = objective_M + algorithm.entropy_coefficient * entropy_M
    _measure(sums.tally, logp_M, signals.old_M, batch)
    sums.tally.add("entropy", entropy_M.sum())
    sums.tally.add("low", found.low_M.sum())
    sums.tally.add("high", found.high_M.sum())
    loss = _spread(-objective_M, batch, counts, algorithm)
    sums.tally.add("loss", loss)
    return loss


def _value_loss(
    learner: Learner, batch: Batch, signals: Signals, counts: StepCounts, sums: _Sums
) -> Tensor:
    """The critic's share of the loss, a mean over the step's tokens."""
    critic, algorithm = learner.critic, learner.algorithm
    assert critic is not None and signals.values_M is not None and signals.targets_M is not None
    values_M = critic.values(learner.policy, batch)
    squares_M, _ = value_loss(
        values_M, signals.values_M, signals.targets_M, clip=algorithm.value_clip
    )
    loss = squares_M.sum() / max(counts.tokens, 1)
    sums.tally.add("value_loss", loss)
    return loss if critic.trunk is not None else algorithm.value_coefficient * loss


def _spread(
    values_M: Tensor, batch: Batch, counts: StepCounts, algorithm: AlgorithmConfig
) -> Tensor:
    """Token values to this micro-batch's share of the step's scalar."""
    values_RT = torch.zeros_like(batch.sampler_logp_RT).masked_scatter(batch.mask_RT, values_M)
    return aggregate(
        values_RT,
        batch.mask_RT,
        batch.sequence_RT,
        batch.lengths_B,
        counts,
        algorithm.aggregation,
    )


def _step(
    learner: Learner, minibatch: Minibatch, progress: float, done: int, policy_rests: bool
) -> tuple[float, float, float]:
    """(gradient norm, learning rate, share of the step that stands)."""
    optimizer, critic = learner.optimizer, learner.critic
    if critic is not None:
        critic.step(optimizer.config.max_grad_norm)
    if policy_rests:
        optimizer.forget()
        return 0.0, 0.0, 0.0
    if learner.algorithm.trust_region:
        return step_within(
            learner.algorithm.trust_region,
            learner.policy,
            minibatch,
            learner.chunk,
            lambda: optimizer.step(progress, done),
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
    """Raise MismatchError, the gradient forgotten, when trainer and sampler differ by more nats
    on average than the tolerance; `widest` is the largest difference on these tokens."""
    if tolerance is None or mean <= tolerance:  # NaN fails this too
        return
    optimizer.forget()
    raise MismatchError(
        f"before optimizer step {done} the trainer's log-probs differ from the sampler's by "
        f"{mean:.2e} nats on average, {widest:.2e} at most, on {tokens} "
        f"tokens, allowed {tolerance:.0e}: stale weights, another temperature, or misplaced "
        "tokens"
    )


@torch.no_grad()
def _measure(tally: Tally, logp_M: Tensor, old_M: Tensor, batch: Batch) -> None:
    """Add how far the current policy is from the old one and from the sampler."""
    gap_M = (logp_M - batch.sampler_logp_RT[batch.mask_RT]).abs()
    tally.widen("widest", gap_M)
    tally.add("gap", gap_M.sum())
    tally.add("ratio", importance_ratio(logp_M, old_M).sum())
    tally.add("old_kl", old_policy_kl(logp_M, old_M).sum())
