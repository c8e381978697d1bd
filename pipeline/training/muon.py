"""torch's Muon with matrices of one shape orthogonalised in batches.

For small matrices the calls cost more than the products. Large ones are still processed one by
one, which limits memory. Axes: B matrices, M and N the shorter and the longer side of each.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.model.sharded import shard_like, whole

BATCH_ELEMENTS = 2**22  # elements of a batch, which has at least one matrix


class Muon(torch.optim.Muon):
    """Muon (Keller Jordan, 2024) with torch's settings and state.

    The learning rate is scaled by sqrt(max(1, rows / columns)); raises ValueError for another
    `adjust_lr_fn`.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
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
            by_shape = defaultdict[tuple[int, int], list[Tensor]](list)
            for weight in group["params"]:
                if weight.grad is not None:
                    by_shape[min(weight.shape), max(weight.shape)].append(weight)
            for (shorter, longer), weights in by_shape.items():
                count = max(1, BATCH_ELEMENTS // (shorter * longer))
                for first in range(0, len(weights), count):
                    self._step_batch(group, weights[first : first + count])
        return loss

    def _step_batch(self, group: dict[str, Any], weights: Sequence[Tensor]) -> None:
        # Shards are gathered once, before the iterations, which would gather them in each product.
        directions = [_wide(whole(self._direction(group, weight))) for weight in weights]
        updates_BMN = orthogonal(
            torch.stack(directions), group["ns_coefficients"], group["ns_steps"], group["eps"]
        )
        for weight, update_MN in zip(weights, updates_BMN, strict=True):
            rows, columns = weight.shape
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            rate = group["lr"] * math.sqrt(max(1, rows / columns))
            update = update_MN.T if rows > columns else update_MN
            weight.add_(shard_like(update, weight), alpha=-rate)

    def _direction(self, group: dict[str, Any], weight: Tensor) -> Tensor:
        """Update the momentum with the gradient; returns the (Nesterov) momentum."""
        assert weight.grad is not None, "weights without a gradient were skipped"
        state, momentum = self.state[weight], group["momentum"]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight.grad)
        averaged = state["momentum_buffer"].lerp_(weight.grad, 1 - momentum)
        return weight.grad.lerp(averaged, momentum) if group["nesterov"] else averaged


def orthogonal(
    matrices_BMN: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """Move every singular value near 1 by Newton-Schulz iterations in bfloat16."""
    a, b, c = coefficients
    x_BMN = matrices_BMN.bfloat16()
    x_BMN = x_BMN / torch.linalg.vector_norm(x_BMN, dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram_BMM = x_BMN @ x_BMN.mT
        update_BMM = torch.baddbmm(gram_BMM, gram_BMM, gram_BMM, beta=b, alpha=c)
        x_BMN = torch.baddbmm(x_BMN, update_BMM, x_BMN, beta=a)
    return x_BMN


def _wide(matrix: Tensor) -> Tensor:
    return matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
