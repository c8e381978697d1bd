"""The expected gradient of each KL estimator, in the loss and in the reward.

In the *loss* the term is differentiated and the sampling is not. In the *reward* it is a detached
number that the policy gradient multiplies with grad log pi. So one estimator has two gradients.
Stated for tokens sampled by the current policy and for the reverse KL(pi || ref) of one token given
its prefix. A token's effect on the KL of later tokens is counted by a penalty in the reward (k1 in
a reward-to-go) and by no term of the loss.
"""

from dataclasses import dataclass
from typing import Literal, get_args

KLEstimator = Literal["k1", "k2", "k3", "k3_corrected"]
KLPlacement = Literal["reward", "loss"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The expected gradient of an estimator in the loss or in the reward."""

    gradient: Literal["unbiased", "biased", "zero"]
    of: Literal["reverse", "forward"] | None  # the KL it is the gradient of; None: of no KL
    reason: str

    @property
    def sound(self) -> bool:
        """Whether the gradient is exactly that of a KL divergence."""
        return self.gradient == "unbiased"


_PLACEMENTS: dict[tuple[KLEstimator, KLPlacement], Placement] = {
    ("k1", "loss"): Placement(
        gradient="zero",
        of=None,
        reason="its gradient is grad log pi, whose mean over the policy's own tokens is 0: it adds "
        "only noise; use k2 or k3_corrected in the loss, or k1 in the reward",
    ),
    ("k2", "loss"): Placement(
        gradient="unbiased",
        of="reverse",
        reason="its gradient is log(pi / ref) grad log pi, that of the reverse KL(pi || ref)",
    ),
    ("k3", "loss"): Placement(
        gradient="unbiased",
        of="forward",
        reason="its gradient is (1 - ref / pi) grad log pi, that of the forward KL(ref || pi) and "
        "not of the KL whose value it estimates: GRPO's own choice",
    ),
    ("k3_corrected", "loss"): Placement(
        gradient="unbiased",
        of="reverse",
        reason="with the differentiable ratio the sampling is differentiated too: the reverse "
        "KL(pi || ref), on old tokens as well",
    ),
    ("k1", "reward"): Placement(
        gradient="unbiased",
        of="reverse",
        reason="log(pi / ref) grad log pi is the gradient of the reverse KL(pi || ref)",
    ),
    ("k2", "reward"): Placement(
        gradient="biased",
        of=None,
        reason="its weight log(pi / ref)^2 / 2 makes tokens that pi has become less likely to "
        "sample even less likely; use k1 in the reward",
    ),
    ("k3", "reward"): Placement(
        gradient="biased",
        of=None,
        reason="its gradient is that of KL(pi || ref) minus that of KL(ref || pi): it drives the "
        "policy away from what the reference does and the policy no longer does; use k1 in the "
        "reward",
    ),
    ("k3_corrected", "reward"): Placement(
        gradient="biased",
        of=None,
        reason="a reward is detached, so the ratio corrects nothing: on tokens of the current "
        "policy it is k3 in the reward, on older ones the ratio counts twice; use k1 in the reward",
    ),
}


def placement(estimator: KLEstimator, position: KLPlacement) -> Placement:
    """The gradient of `estimator` at `position`. Raises ValueError for an unknown name."""
    if estimator not in get_args(KLEstimator):
        raise ValueError(f"KL estimator {estimator!r} is not one of {get_args(KLEstimator)}")
    if position not in get_args(KLPlacement):
        raise ValueError(f"KL placement {position!r} is not one of {get_args(KLPlacement)}")
    return _PLACEMENTS[estimator, position]
