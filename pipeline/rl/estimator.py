"""Rewards to advantages per token: scores before the first update, then the estimator.

Axes: N rollouts of a step, M masked-in tokens of a batch, A masked-in tokens of all batches.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import nan
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.cluster.deal import empty_batch, exchanged
from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.user_code import Options, is_function, load_function
from veriloop.pipeline.errors import NonFiniteError, StageError
from veriloop.pipeline.losses.advantages import (
    RunningMean,
    batch_advantages,
    group_advantages,
    moments,
    running_advantages,
    whiten,
)
from veriloop.pipeline.losses.process import Steps, process_advantages
from veriloop.pipeline.losses.value import gae, reward_to_go, token_rewards, trajectory_return
from veriloop.pipeline.model.device import CPU, device_of, onto
from veriloop.pipeline.model.policy import logp_entropy
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.rl.critic import Critic
from veriloop.pipeline.rl.minibatches import Minibatch
from veriloop.pipeline.rl.objective import drift
from veriloop.pipeline.types import Batch, Graded, Signals

# Response tokens of a mini-batch that are always scored: they verify the sampler's weights.
MIN_FORWARD_TOKENS = 512
_SCORES = {
    "old_M": "log-probs of the policy",
    "reference_M": "log-probs of the reference",
    "values_M": "values of the critic",
}
OUTCOMES = ("group", "leave_one_out", "batch", "running", "none")  # advantages of whole responses


@dataclass(slots=True)
class AdvantageEstimator:
    """Advantages as the recipe composes them; keeps the running mean of rewards."""

    algorithm: AlgorithmConfig
    past: RunningMean = field(default_factory=RunningMean)

    def __call__(
        self,
        graded: Sequence[Graded],
        parts: Sequence[Minibatch],
        *,
        steps_N: Sequence[Steps | None] | None = None,
    ) -> tuple[list[Minibatch], Tensor]:
        """`parts` with advantages and value targets, and each rollout's mean advantage, [N].

        `steps_N`: the step scores of each rollout, for `process`.
        """
        tokens = _Tokens.of(graded, parts)
        targets_A = None
        if self.algorithm.advantage == "gae":
            advantages_A, targets_A = self._gae(tokens)
        elif self.algorithm.advantage == "global":
            to_go_A = self._credited(tokens.at_the_end(_rewards(graded)), tokens)
            advantages_A = whiten(to_go_A, moments([to_go_A]))
        else:
            advantages_A = self._compared(tokens, steps_N)
            if self._kl_in_reward:
                # Added to the comparison and not inside it, so that a rollout's KL penalty does
                # not raise the advantages of the others.
                advantages_A = advantages_A + self._credited(0.0, tokens)
        lengths_N = tokens.lengths_N.clamp(min=1)
        sums_N = torch.zeros(len(graded)).index_add(0, tokens.rollout_A, advantages_A)
        return tokens.split(advantages_A, targets_A), sums_N / lengths_N

    def _gae(self, tokens: "_Tokens") -> tuple[Tensor, Tensor]:
        """Advantages, whitened over the step, and value targets.

        No value follows the last token, of a truncated response neither: its reward is final.
        """
        none_N = torch.zeros(len(tokens.graded))
        advantages_A, targets_A = gae(
            tokens.at_the_end(_rewards(tokens.graded)) - self._kl_penalty(tokens),
            tokens.signal("values_M"),
            none_N,
            none_N.bool(),
            tokens.rollout_A,
            tokens.lengths_N,
            gamma=self.algorithm.discount,
            lam=self.algorithm.gae_lambda,
        )
        return whiten(advantages_A, moments([advantages_A])), targets_A

    def _compared(self, tokens: "_Tokens", steps_N: Sequence[Steps | None] | None) -> Tensor:
        """Rewards of responses, or of their steps, relative to a baseline."""
        config = self.algorithm
        if config.advantage == "process":
            assert steps_N is not None, "advantage process needs the scores of steps"
            lengths = [len(g.rollout.response_ids) for g in tokens.graded]
            by_rollout = process_advantages(
                steps_N,
                _rewards(tokens.graded),
                _groups(tokens.graded),
                lengths,
                **_scaling(config),
            )
            return tokens.flatten(by_rollout)
        advantages_N, self.past = outcome_advantages(tokens.graded, config, self.past)
        return advantages_N[tokens.rollout_A]

    def _credited(self, rewards_A: Tensor | float, tokens: "_Tokens") -> Tensor:
        """Each token's credit for the rewards minus the KL penalty."""
        earned_A = rewards_A - self._kl_penalty(tokens)
        credit = reward_to_go if self.algorithm.credit == "to_go" else trajectory_return
        gamma = self.algorithm.discount
        return credit(earned_A, tokens.rollout_A, tokens.lengths_N, gamma=gamma)

    @property
    def _kl_in_reward(self) -> bool:
        return self.algorithm.kl_placement == "reward" and self.algorithm.kl_coefficient > 0

    def _kl_penalty(self, tokens: "_Tokens") -> Tensor:
        """Each token's KL penalty in the reward, [A]; 0 unless `kl_placement` is reward."""
        config = self.algorithm
        if not self._kl_in_reward:
            return torch.zeros(len(tokens.rollout_A))
        old_A, reference_A = tokens.signal("old_M"), tokens.signal("reference_M")
        return config.kl_coefficient * drift(config.kl_estimator, old_A, reference_A, old_A)


@dataclass(frozen=True, slots=True, eq=False)
class _Tokens:
    """All tokens of a step in the order of its batches; the tokens of a rollout are adjacent."""

    graded: Sequence[Graded]
    parts: Sequence[Minibatch]
    rollout_A: Tensor  # int64, rollout of each token
    lengths_N: Tensor  # tokens of each rollout; 0 if it is not trained on

    @classmethod
    def of(cls, graded: Sequence[Graded], parts: Sequence[Minibatch]) -> "_Tokens":
        rollouts = [
            batch.rollout_B[batch.sequence_RT[batch.mask_RT]]
            for part in parts
            for batch in part.batches
        ]
        rollout_A = torch.cat([torch.zeros(0, dtype=torch.int64), *rollouts])
        return cls(graded, parts, rollout_A, torch.bincount(rollout_A, minlength=len(graded)))

    def at_the_end(self, values_N: Tensor) -> Tensor:
        """A value of each rollout at its last token, 0 elsewhere."""
        return token_rewards(values_N, self.rollout_A, self.lengths_N)

    def flatten(self, by_rollout: Sequence[Tensor]) -> Tensor:
        """Token values of each rollout, [A]."""
        order = self.rollout_A.unique_consecutive().tolist()
        return torch.cat([torch.zeros(0), *(by_rollout[n] for n in order)])

    def split(self, advantages_A: Tensor, targets_A: Tensor | None) -> list[Minibatch]:
        """The parts, with these values in the signals of each batch."""
        start, parts = 0, list[Minibatch]()
        for part in self.parts:
            signals = list[Signals]()
            for old in part.signals:
                span = slice(start, start := start + len(old.old_M))
                targets_M = None if targets_A is None else targets_A[span]
                signals.append(replace(old, advantages_M=advantages_A[span], targets_M=targets_M))
            parts.append(replace(part, signals=tuple(signals)))
        return parts

    def signal(self, name: str) -> Tensor:
        """One field of the signals of all batches, [A]."""
        values = [getattr(signals, name) for part in self.parts for signals in part.signals]
        return torch.cat([torch.zeros(0), *values])


def outcome_advantages(
    graded: Sequence[Graded], config: AlgorithmConfig, past: RunningMean
) -> tuple[Tensor, RunningMean]:
    """Each rollout's reward relative to the baseline, [N], 0 if a verifier failed; new `past`."""
    rewards_N = _rewards(graded)
    scored_N = torch.tensor([g.reward is not None for g in graded])
    match config.advantage:
        case "none":
            return rewards_N.masked_fill(~scored_N, 0.0), past
        case "batch":
            return batch_advantages(rewards_N, scored_N, normalise=False), past
        case "running":
            return running_advantages(rewards_N, scored_N, past)
        case "group" | "leave_one_out":
            advantages_N = group_advantages(
                rewards_N,
                _groups(graded),
                scored_N,
                **_scaling(config),
                leave_one_out=config.advantage == "leave_one_out",
            )
            return advantages_N, past
        case function if is_function(function):
            return _of_user(graded, config, scored_N), past
        case _:
            raise ValueError(f"advantage {config.advantage!r} is not of whole rollouts")


def _scaling(config: AlgorithmConfig) -> dict[str, Any]:
    """The std that the losses divide by: which one, and what is subtracted from its count."""
    if config.advantage_scale == "sample":
        return {"scale": "group", "correction": 1}
    return {"scale": config.advantage_scale}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdvantageInputs:
    """What a function of the user gets for a step; the recipe names it as the advantage.

    It returns [N] and must be pure: it may be called twice for a step.
    """

    rewards_N: Tensor  # float32; NaN where a verifier failed
    scored_N: Tensor  # bool, false where a verifier failed
    groups_N: Tensor  # int64, equal for answers to the same prompt
    lengths_N: Tensor  # int64, tokens of each response
    options: Options  # algorithm.advantage_options


def _of_user(graded: Sequence[Graded], config: AlgorithmConfig, scored_N: Tensor) -> Tensor:
    """The user's advantages, 0 where a verifier failed. Raises StageError for another shape and for
    values that are not finite."""
    inputs = AdvantageInputs(
        rewards_N=_rewards(graded),
        scored_N=scored_N,
        groups_N=_groups(graded),
        lengths_N=torch.tensor([len(g.rollout.response_ids) for g in graded]),
        options=config.advantage_options,
    )
    advantages_N = load_function(config.advantage)(inputs)
    if not isinstance(advantages_N, Tensor) or advantages_N.shape != scored_N.shape:
        shape = tuple(getattr(advantages_N, "shape", ())) or type(advantages_N).__name__
        raise StageError(
            f"advantage {config.advantage} must return one value per response, shape "
            f"{tuple(scored_N.shape)}, got {shape}"
        )
    if not advantages_N[scored_N].isfinite().all():
        raise StageError(f"advantage {config.advantage} returns values that are not finite")
    return advantages_N.float().masked_fill(~scored_N, 0.0)


def without_gradient(
    graded: Sequence[Graded], algorithm: AlgorithmConfig, past: RunningMean
) -> frozenset[int]:
    """Indices of the rollouts that contribute no gradient: advantage 0 and no other loss term.

    They are left out of the forward pass but stay in the step's counts, so the gradient is
    unchanged. Empty if the algorithm has other terms.
    """
    if not rewards_alone(algorithm):
        return frozenset()
    advantages_N, _ = outcome_advantages(graded, algorithm, past)
    return frozenset((advantages_N == 0).nonzero().squeeze(1).tolist())


def rewards_alone(algorithm: AlgorithmConfig) -> bool:
    """Whether each token's gradient is proportional to its response's advantage.

    That is without KL penalty, entropy bonus, critic, trust region or step rewards, and without an
    objective of the user, which may have terms of its own.
    """
    others = (
        algorithm.kl_coefficient,
        algorithm.entropy_coefficient,
        algorithm.old_kl_coefficient,
        algorithm.old_kl_target,
        algorithm.trust_region,
        algorithm.critic != "none",
        is_function(algorithm.objective),
    )
    whole = algorithm.advantage in OUTCOMES or is_function(algorithm.advantage)
    return whole and not any(others)


def forwarded(
    share: Sequence[int], graded: Sequence[Graded], skipped: Collection[int]
) -> list[int]:
    """The rollouts of `share` that go through the forward pass, in order.

    These are all but the `skipped`, plus as many of the first skipped ones as are needed for
    `MIN_FORWARD_TOKENS`.
    """
    lengths = {i: len(graded[i].rollout.response_ids) for i in share}
    tokens = sum(length for i, length in lengths.items() if i not in skipped)
    selected: list[int] = []
    for i in share:
        if i in skipped:
            if tokens >= MIN_FORWARD_TOKENS:
                continue
            tokens += lengths[i]
        selected.append(i)
    return selected


def score_parts(
    policy: Any,
    reference: Any | None,
    critic: Critic | None,
    parts: Sequence[Minibatch],
    algorithm: AlgorithmConfig,
    chunk: int,
    ranks: Ranks = SINGLE,
) -> list[Minibatch]:
    """The parts with the models' scores of their tokens before the first update, on the CPU.

    All parts are queued on the device before the first result is fetched. Advantages are 0. Each of
    `ranks` scores its share of the batches, and gets all scores.
    """
    trainer = algorithm.old_logp == "trainer"
    needs_models = trainer or reference is not None or critic is not None
    device = device_of(policy) if needs_models else CPU

    def scored(batch: Batch) -> Signals:
        batch = onto(batch, device)
        sampler_M = batch.sampler_logp_RT[batch.mask_RT]
        return Signals(
            advantages_M=torch.zeros_like(sampler_M),
            old_M=logp_entropy(policy, batch, chunk)[0] if trainer else sampler_M,
            reference_M=None if reference is None else logp_entropy(reference, batch, chunk)[0],
            values_M=None if critic is None else critic.values(policy, batch),
        )

    batches = [batch for part in parts for batch in part.batches]
    deals = needs_models and ranks.count > 1
    mine = ranks.deal(batches, lambda: empty_batch(batches[0])) if deals else batches
    with torch.no_grad():
        scores = [scored(batch) for batch in mine]
    scores = [onto(signals, CPU) for signals in scores]
    signals = iter(exchanged(ranks, batches, scores) if deals else scores)
    return [replace(part, signals=tuple(islice(signals, len(part.batches)))) for part in parts]


def require_finite(parts: Sequence[Minibatch], done: int) -> None:
    """Raise NonFiniteError if a model's score of a token before the first update is NaN or
    infinite."""
    for name, scores in _SCORES.items():
        wrong = sum(
            int((~values_M.isfinite()).sum())
            for part in parts
            for signals in part.signals
            if (values_M := getattr(signals, name)) is not None
        )
        if wrong:
            raise NonFiniteError(
                f"{wrong} {scores} are not finite before optimizer step {done + 1}"
            )


def _rewards(graded: Sequence[Graded]) -> Tensor:
    return torch.tensor([nan if g.reward is None else g.reward for g in graded])


def _groups(graded: Sequence[Graded]) -> Tensor:
    index = {group: i for i, group in enumerate(dict.fromkeys(g.rollout.group for g in graded))}
    return torch.tensor([index[g.rollout.group] for g in graded])
