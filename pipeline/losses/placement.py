"""What each KL estimator does where it is put: whose gradient, in expectation, the policy follows.

In the *loss* a term is differentiated and the sampling is not. In the *reward* it is a detached
number that the policy gradient multiplies with grad log pi. So one estimator has two gradients.
Told for tokens that the current policy sampled, and for KL(pi || ref), the reverse KL, of one token
with what stands before it given. What a token does to the KL of those after it is counted by a
penalty in the reward (k1, in a reward-to-go) and by no term of the loss.
"""

from dataclasses import dataclass
from typing import Literal, get_args

Estimator = Literal["k1", "k2", "k3", "k3_corrected"]
Place = Literal["reward", "loss"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The expected gradient of an estimator at a place."""

    gradient: Literal["unbiased", "biased", "zero"]
    of: Literal["reverse", "forward"] | None  # the KL it is the gradient of, when of any
    reason: str

    @property
    def sound(self) -> bool:
        """Whether the gradient is exactly that of a KL: anything else is allowed by name only."""
        return self.gradient == "unbiased"


_PLACEMENTS: dict[tuple[Estimator, Place], Placement] = {
    ("k1", "loss"): Placement(
        gradient="zero",
        of=None,
        reason="its gradient is grad log pi, whose mean over the policy's own tokens is 0: it adds "
        "noise and pulls nowhere; use k2 or k3_corrected in the loss, or k1 in the reward",
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
        reason="it pulls by log(pi / ref)^2 / 2, which makes tokens that pi has lost less likely "
        "still; use k1 in the reward",
    ),
    ("k3", "reward"): Placement(
        gradient="biased",
        of=None,
        reason="its gradient is that of KL(pi || ref) minus that of KL(ref || pi): it drives the "
        "policy off what the reference does and the policy has lost; use k1 in the reward",
    ),
    ("k3_corrected", "reward"): Placement(
        gradient="biased",
        of=None,
        reason="a reward is detached, so its ratio corrects nothing: on new tokens it is k3 in the "
        "reward, on old ones the ratio counts twice; use k1 in the reward",
    ),
}


def placement(estimator: Estimator, place: Place) -> Placement:
    """What `estimator` is at `place`. Raises ValueError for a name that is neither."""
    if estimator not in get_args(Estimator):
        raise ValueError(f"KL estimator {estimator!r} is not one of {get_args(Estimator)}")
    if place not in get_args(Place):
        raise ValueError(f"KL placement {place!r} is not one of {get_args(Place)}")
    return _PLACEMENTS[estimator, place]
