"""torch's Muon, with all matrices of one shape orthogonalised together.

One by one, small matrices cost more in calls than in products; large ones still go one by one, so
that no copy of all is held. Axes: B matrices, M and N the shorter and the longer side of each.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

TOGETHER = 2**22  # elements that are orthogonalised at a time, or one matrix


class Muon(torch.optim.Muon):
    """Muon (Keller Jordan, 2024) with torch's settings and state, and its learning rate's factor
    sqrt(max(1, rows / columns)). Raises ValueError for another."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        for group in self.param_groups:
            if group["adjust_lr_fn"] not in (None, "original"):
                raise ValueError(f"adjust_lr_fn={group['adjust_lr_fn']!r}: known is 'original'")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            alike = defaultdict[tuple[int, int], list[Tensor]](list)
            for weight in group["params"]:
                if weight.grad is not None:
                    alike[min(weight.shape), max(weight.shape)].append(weight)
            for (shorter, longer), weights in alike.items():
                count = max(1, TOGETHER // (shorter * longer))
                for first in range(0, len(weights), count):
                    self._step_together(group, weights[first : first + count])
        return loss

    def _step_together(self, group: dict[str, Any], weights: Sequence[Tensor]) -> None:
        directions = [_wide(self._direction(group, weight)) for weight in weights]
        made_BMN = orthogonal(
            torch.stack(directions), group["ns_coefficients"], group["ns_steps"], group["eps"]
        )
        for weight, made_MN in zip(weights, made_BMN, strict=True):
            rows, columns = weight.shape
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            rate = group["lr"] * math.sqrt(max(1, rows / columns))
            weight.add_(made_MN.T if rows > columns else made_MN, alpha=-rate)

    def _direction(self, group: dict[str, Any], weight: Tensor) -> Tensor:
        """The gradient with its momentum, which it is then part of."""
        assert weight.grad is not None, "left out before"
        state, momentum = self.state[weight], group["momentum"]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight.grad)
        moved = state["momentum_buffer"].lerp_(weight.grad, 1 - momentum)
        return weight.grad.lerp(moved, momentum) if group["nesterov"] else moved


def orthogonal(
    given_BMN: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """Every singular value near 1, by Newton-Schulz in bfloat16."""
    a, b, c = coefficients
    x_BMN = given_BMN.bfloat16()
    x_BMN = x_BMN / torch.linalg.vector_norm(x_BMN, dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram_BMM = x_BMN @ x_BMN.mT
        update_BMM = torch.baddbmm(gram_BMM, gram_BMM, gram_BMM, beta=b, alpha=c)
        x_BMN = torch.baddbmm(x_BMN, update_BMM, x_BMN, beta=a)
    return x_BMN


def _wide(matrix: Tensor) -> Tensor:
    return matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
