"""The records that flow from the sampler to the optimizer. Each step makes a new one.

Axes: N rollouts of a step, R packed rows, T positions in a row, B sequences of a batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from data.problem import Problem
from verifiers.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One sampled response, exactly as the policy produced it."""

    group: str  # which rollouts are compared with each other: one id per asked prompt
    problem: Problem
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]  # with the end-of-sequence id when the policy wrote one
    logp: tuple[float, ...]  # nats, one per response id, under the policy that sampled them
    response: str  # what the model wrote, tags and all; without the end-of-sequence token
    finish: Literal["stop", "length"]
    temperature: float  # the one `logp` was computed under
    policy_version: int  # optimizer steps the sampling policy had taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """A rollout, what each verifier said, and the scalar the optimizer sees."""

    rollout: Rollout
    verdicts: Mapping[str, Verdict]  # by component name, e.g. "accuracy", "format"
    reward: float | None  # unitless; None when a verifier failed: never trained on


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Packed rows, already shifted: position t of a row predicts targets_RT[:, t].

    A row holds several sequences one after the other; positions start again at 0 in each and
    attention never crosses from one to the next.
    """

    ids_RT: Tensor  # int64
    positions_RT: Tensor  # int64, place inside the sequence; 0 on padding
    targets_RT: Tensor  # int64, the next token of the same sequence
    mask_RT: Tensor  # bool, true where the target is a response token to train on
    sequence_RT: Tensor  # int64 in [0, B), which sequence a position belongs to; -1 on padding
    sampler_logp_RT: Tensor  # float32 nats under the policy that sampled; 0 outside the mask
    rollout_B: Tensor  # int64, the place of each sequence among the rollouts of the step
    lengths_B: Tensor  # int64, masked-in tokens of each sequence
    temperature: float  # divides the logits of every policy that scores these tokens


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Signals:
    """What is known of a batch's M masked-in tokens before the first update of a rollout."""

    advantages_M: Tensor  # float32, unitless
    old_M: Tensor  # nats, under the policy that the ratio starts from
    reference_M: Tensor | None = None  # nats, under the reference
    values_M: Tensor | None = None  # of the critic, in units of reward
    targets_M: Tensor | None = None  # what the critic should have said


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """What one optimizer step is averaged over, however it is split into micro-batches."""

    sequences: int  # sequences with at least one token to train on
    tokens: int  # their masked-in tokens
    max_length: int  # the most tokens a response may have: Dr. GRPO's constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What one optimizer step did. Means are over the tokens that were scored: all of the step's
    but those of answers that nothing was learned from."""

    loss: float  # of the policy
    kl: float  # nats per token, policy to reference by k3; 0 when no reference is used
    entropy: float  # nats per token, of the policy at the sampling temperature
    clipped_low: float  # share of tokens with A < 0 whose ratio fell under 1 - eps_low
    clipped_high: float  # share of tokens with A > 0 whose ratio rose over 1 + eps_high
    ratio_mean: float  # current policy over the old one
    old_kl: float  # nats per token, old policy to the current one
    value_loss: float  # of the critic, 0 without one
    dropped: tuple[float, ...]  # share of tokens a mismatch mask left out, by answers' lengths
    kept: float  # share of the step that a trust region let stand; 1 without one
    mismatch_mean: float  # nats, |current policy - sampler| before this step
    mismatch_max: float
    grad_norm: float  # before clipping
    learning_rate: float
    tokens: int  # masked-in tokens of the step, which its loss is averaged over
    scored: int  # those of them that went through the forward pass
