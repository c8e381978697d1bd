"""Answers that nothing is learned from: advantages of exactly 0, and no other term in the loss.

They stay in the step's counts, so the gradient is that of a step with them in its forward pass.
"""

from collections.abc import Collection, Sequence

from pipeline.algorithm import AlgorithmConfig
from pipeline.losses.baselines import RunningMean
from pipeline.records import Graded
from pipeline.signals import outcome_advantages

OUTCOMES = ("group", "leave_one_out", "batch", "running", "none")  # advantages of whole answers
CHECKED = 512  # answer tokens of a step at least: they prove that the sampler has its weights


def unlearned(
    graded: Sequence[Graded], algorithm: AlgorithmConfig, past: RunningMean
) -> frozenset[int]:
    """Places of the rollouts that give no gradient; none where anything else might give one."""
    if not rewards_alone(algorithm):
        return frozenset()
    advantages_N, _ = outcome_advantages(graded, algorithm, past)
    return frozenset((advantages_N == 0).nonzero().squeeze(1).tolist())


def rewards_alone(algorithm: AlgorithmConfig) -> bool:
    """Whether a token's gradient is its advantage times something, and nothing is asked of tokens
    without one: no KL, entropy bonus, critic, bound on the policy's move, or reward of steps."""
    others = (
        algorithm.kl_coefficient,
        algorithm.entropy_coefficient,
        algorithm.old_kl_coefficient,
        algorithm.old_kl_target,
        algorithm.trust_region,
        algorithm.critic != "none",
    )
    return algorithm.advantage in OUTCOMES and not any(others)


def scored(share: Sequence[int], graded: Sequence[Graded], skipped: Collection[int]) -> list[int]:
    """The rollouts of a step that go through the forward pass, in their order: all but those
    skipped, and of these as many of the first as bring the tokens to `CHECKED`."""
    lengths = {i: len(graded[i].rollout.response_ids) for i in share}
    tokens = sum(length for i, length in lengths.items() if i not in skipped)
    kept: list[int] = []
    for i in share:
        if i in skipped:
            if tokens >= CHECKED:
                continue
            tokens += lengths[i]
        kept.append(i)
    return kept
