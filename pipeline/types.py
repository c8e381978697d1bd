"""The records that flow from the sampler to the optimizer.

Axes: N rollouts of a step, R packed rows, T positions in a row (of a response in SeenTokens),
B sequences of a batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from veriloop.data.problem import Problem
from veriloop.verifiers.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One sampled response, exactly as the policy produced it."""

    group: str  # id shared by the rollouts of one prompt, which are compared with each other
    problem: Problem
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]  # with the end-of-sequence id when the policy wrote one
    logp: tuple[float, ...]  # nats, one per response id, under the policy that sampled them
    response: str  # decoded text with special tokens, without the end-of-sequence token
    finish: Literal["stop", "length"]
    temperature: float  # the one `logp` was computed under
    policy_version: int  # optimizer steps the policy had taken that sampled the first token
    versions: tuple[int, ...] | None = None  # the same of each token; None: all of the first's


ScoredSteps = tuple[tuple[int, float], ...]  # the offset after the last character of a step, score


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """A rollout with its verdicts and its reward."""

    rollout: Rollout
    verdicts: Mapping[str, Verdict]  # by component name, e.g. "accuracy", "format"
    reward: float | None  # unitless; None when a verifier failed: never trained on
    steps: ScoredSteps | None = None  # for process supervision; None where they have no scores


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Packed rows, already shifted: position t of a row predicts targets_RT[:, t].

    A row holds several sequences; positions restart at 0 in each, and attention does not cross
    sequences.
    """

    ids_RT: Tensor  # int64
    positions_RT: Tensor  # int64, position in the sequence; 0 on padding
    targets_RT: Tensor  # int64, the next token of the same sequence
    mask_RT: Tensor  # bool, true where the target is a response token to train on
    sequence_RT: Tensor  # int64 in [0, B), which sequence a position belongs to; -1 on padding
    sampler_logp_RT: Tensor  # float32 nats under the policy that sampled; 0 outside the mask
    rollout_B: Tensor  # int64, index of each sequence's rollout in the step
    lengths_B: Tensor  # int64, masked-in tokens of each sequence
    temperature: float  # divides the logits of every policy that scores the tokens


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Signals:
    """Per-token inputs of the update for a batch's M masked-in tokens, fixed before the first."""

    advantages_M: Tensor  # float32, unitless
    old_M: Tensor  # nats, under the policy in the ratio's denominator
    reference_M: Tensor | None = None  # nats, under the reference
    values_M: Tensor | None = None  # of the critic, in units of reward
    targets_M: Tensor | None = None  # value targets of the critic


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """The denominators of one optimizer step, over all its micro-batches."""

    sequences: int  # sequences with at least one token to train on
    tokens: int  # their masked-in tokens
    max_length: int  # maximum tokens of a response, for Dr. GRPO's constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The numbers of one optimizer step.

    Means are over the scored tokens: all but those of rollouts without a gradient.
    """

    loss: float  # of the policy
    kl: float  # nats per token, policy to reference or teacher; 0 when none is used
    entropy: float  # nats per token, of the policy at the sampling temperature
    # share of tokens with A < 0 whose ratio fell under 1 - eps_low, or rose over a dual clip
    clipped_low: float
    clipped_high: float  # share of tokens with A > 0 whose ratio rose over 1 + eps_high
    ratio_mean: float  # current policy over the old one
    old_kl: float  # nats per token, old policy to the current one
    value_loss: float  # of the critic, 0 without one
    # (tokens that a mismatch mask dropped, all tokens), by response length; () without a mask
    dropped: tuple[tuple[int, int], ...]
    kept: float  # share of the step kept by the trust region; 1 without one
    mismatch_mean: float  # nats, |current policy - sampler| before this step
    mismatch_max: float
    grad_norm: float  # before clipping
    learning_rate: float
    tokens: int  # masked-in tokens of the step, the loss's denominator
    scored: int  # tokens that went through the forward pass
    ptx_loss: float | None = None  # nats per token of pre-training text; None without one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeenTokens:
    """One response as scored by its update, before the optimizer step."""

    logp_T: Tensor  # nats, under the policy being updated
    entropy_T: Tensor  # nats, at the sampling temperature
    advantage_T: Tensor  # unitless
    clipped_T: Tensor  # int8: -1 clipped with A < 0, 1 with A > 0, 0 not clipped
