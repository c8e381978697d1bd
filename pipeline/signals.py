"""Rewards to advantages per token: scores before the first update, then the estimator.

Axes: N rollouts of a step, M masked-in tokens of a batch, A those of all batches in a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any

import torch
from torch import Tensor

from pipeline.algorithm import AlgorithmConfig
from pipeline.assemble import Minibatch
from pipeline.critic import Critic
from pipeline.device import CPU, device_of, onto
from pipeline.losses.advantages import group_advantages
from pipeline.losses.baselines import RunningMean, batch_advantages, running_advantages
from pipeline.losses.process import Steps, process_advantages
from pipeline.losses.returns import gae, reward_to_go, token_rewards, trajectory_return
from pipeline.losses.whitening import moments, whiten
from pipeline.objective import drift
from pipeline.policy import logp_entropy
from pipeline.records import Batch, Graded, Signals


@dataclass(slots=True)
class Estimator:
    """Advantages as a recipe composes them; remembers the running mean of rewards."""

    algorithm: AlgorithmConfig
    past: RunningMean = field(default_factory=RunningMean)

    def __call__(
        self,
        graded: Sequence[Graded],
        parts: Sequence[Minibatch],
        *,
        steps_N: Sequence[Steps | None] | None = None,
        beyond_N: Tensor | None = None,
    ) -> tuple[list[Minibatch], Tensor]:
        """`parts` with advantages and value targets, and each rollout's mean advantage, [N].

        `steps_N`: what a step verifier said of each rollout, for `process`. `beyond_N`: what the
        critic expects after each response that was cut, for `gae`.
        """
        tokens = _Tokens.of(graded, parts)
        targets_A = None
        if self.algorithm.advantage == "gae":
            advantages_A, targets_A = self._gae(tokens, beyond_N)
        elif self.algorithm.advantage == "global":
            to_go_A = self._credited(tokens.at_the_end(_rewards(graded)), tokens)
            advantages_A = whiten(to_go_A, moments([to_go_A]))
        else:
            # beside the comparison, not inside it: nobody is praised for another's KL
            advantages_A = self._compared(tokens, steps_N) + self._credited(0.0, tokens)
        lengths_N = tokens.lengths_N.clamp(min=1)
        sums_N = torch.zeros(len(graded)).index_add(0, tokens.rollout_A, advantages_A)
        return tokens.divided(advantages_A, targets_A), sums_N / lengths_N

    def _gae(self, tokens: "_Tokens", beyond_N: Tensor | None) -> tuple[Tensor, Tensor]:
        assert beyond_N is not None, "advantage gae comes with a critic"
        advantages_A, targets_A = gae(
            tokens.at_the_end(_rewards(tokens.graded)) - self._price(tokens),
            tokens.joined("values_M"),
            beyond_N,
            torch.tensor([g.rollout.finish == "length" for g in tokens.graded]),
            tokens.rollout_A,
            tokens.lengths_N,
            gamma=self.algorithm.discount,
            lam=self.algorithm.gae_lambda,
        )
        return whiten(advantages_A, moments([advantages_A])), targets_A

    def _compared(self, tokens: "_Tokens", steps_N: Sequence[Steps | None] | None) -> Tensor:
        """Outcomes, or the scores of steps, against those of the others."""
        config = self.algorithm
        if config.advantage == "process":
            assert steps_N is not None, "advantage process comes with the scores of steps"
            lengths = [len(g.rollout.response_ids) for g in tokens.graded]
            by_rollout = process_advantages(
                steps_N, _groups(tokens.graded), lengths, scale=config.advantage_scale
            )
            return tokens.laid_out(by_rollout)
        found_N, self.past = outcome_advantages(tokens.graded, config, self.past)
        return found_N[tokens.rollout_A]

    def _credited(self, rewards_A: Tensor | float, tokens: "_Tokens") -> Tensor:
        """Rewards less the price of the KL, as each token is credited with them."""
        earned_A = rewards_A - self._price(tokens)
        credit = reward_to_go if self.algorithm.credit == "to_go" else trajectory_return
        gamma = self.algorithm.discount
        return credit(earned_A, tokens.rollout_A, tokens.lengths_N, gamma=gamma)

    def _price(self, tokens: "_Tokens") -> Tensor:
        """What each token costs for its distance from the reference, where the reward says so."""
        config = self.algorithm
        if config.kl_placement != "reward" or not config.kl_coefficient:
            return torch.zeros(len(tokens.rollout_A))
        old_A, reference_A = tokens.joined("old_M"), tokens.joined("reference_M")
        return config.kl_coefficient * drift(config.kl_estimator, old_A, reference_A, old_A)


@dataclass(frozen=True, slots=True, eq=False)
class _Tokens:
    """All tokens of a step in the order of its batches; those of a rollout lie side by side."""

    graded: Sequence[Graded]
    parts: Sequence[Minibatch]
    rollout_A: Tensor  # int64, whose token it is
    lengths_N: Tensor  # tokens of each rollout that are here: none of one that is not trained on

    @classmethod
    def of(cls, graded: Sequence[Graded], parts: Sequence[Minibatch]) -> "_Tokens":
        found = [_owners(batch) for part in parts for batch in part.batches]
        rollout_A = torch.cat([torch.zeros(0, dtype=torch.int64), *found])
        return cls(graded, parts, rollout_A, torch.bincount(rollout_A, minlength=len(graded)))

    def at_the_end(self, values_N: Tensor) -> Tensor:
        """A value of each rollout at its last token, 0 elsewhere."""
        return token_rewards(values_N, self.rollout_A, self.lengths_N)

    def laid_out(self, by_rollout: Sequence[Tensor]) -> Tensor:
        """Tensors by token of each rollout, in our order."""
        order = self.rollout_A.unique_consecutive().tolist()
        return torch.cat([torch.zeros(0), *(by_rollout[n] for n in order)])

    def divided(self, advantages_A: Tensor, targets_A: Tensor | None) -> list[Minibatch]:
        """The parts, each batch's signals with their shares of these."""
        at, made = 0, list[Minibatch]()
        for part in self.parts:
            signals = list[Signals]()
            for one in part.signals:
                here = slice(at, at := at + len(one.old_M))
                targets_M = None if targets_A is None else targets_A[here]
                signals.append(replace(one, advantages_M=advantages_A[here], targets_M=targets_M))
            made.append(replace(part, signals=tuple(signals)))
        return made

    def joined(self, name: str) -> Tensor:
        found = [getattr(one, name) for part in self.parts for one in part.signals]
        return torch.cat([torch.zeros(0), *found])


def outcome_advantages(
    graded: Sequence[Graded], config: AlgorithmConfig, past: RunningMean
) -> tuple[Tensor, RunningMean]:
    """Each rollout's reward against the baseline, [N], 0 where a verifier failed; and the past."""
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
            found_N = group_advantages(
                rewards_N,
                _groups(graded),
                scored_N,
                scale=config.advantage_scale,
                leave_one_out=config.advantage == "leave_one_out",
            )
            return found_N, past
        case _:
            raise ValueError(f"advantage {config.advantage!r} is not of whole rollouts")


def score_parts(
    policy: Any,
    reference: Any | None,
    critic: Critic | None,
    parts: Sequence[Minibatch],
    algorithm: AlgorithmConfig,
    chunk: int,
) -> list[Minibatch]:
    """The parts with what the models say of their tokens before the first update; no advantages.

    On the processor: the models have been asked about all parts when the first answer is fetched.
    """
    trainer = algorithm.old_logp == "trainer"
    asked = trainer or reference is not None or critic is not None
    place = device_of(policy) if asked else CPU

    def scored(batch: Batch) -> Signals:
        batch = onto(batch, place)
        sampler_M = batch.sampler_logp_RT[batch.mask_RT]
        return Signals(
            advantages_M=torch.zeros_like(sampler_M),
            old_M=logp_entropy(policy, batch, chunk)[0] if trainer else sampler_M,
            reference_M=None if reference is None else logp_entropy(reference, batch, chunk)[0],
            values_M=None if critic is None else critic.values(policy, batch),
        )

    with torch.no_grad():
        found = [[scored(batch) for batch in part.batches] for part in parts]
    return [
        replace(part, signals=tuple(onto(one, CPU) for one in signals))
        for part, signals in zip(parts, found, strict=True)
    ]


def _owners(batch: Batch) -> Tensor:
    return batch.rollout_B[batch.sequence_RT[batch.mask_RT]]


def _rewards(graded: Sequence[Graded]) -> Tensor:
    return torch.tensor([nan if g.reward is None else g.reward for g in graded])


def _groups(graded: Sequence[Graded]) -> Tensor:
    names = {group: i for i, group in enumerate(dict.fromkeys(g.rollout.group for g in graded))}
    return torch.tensor([names[g.rollout.group] for g in graded])
