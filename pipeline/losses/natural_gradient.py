"""The natural gradient F^-1 g by conjugate gradients, and the length of a step along it: TRPO.

Trust Region Policy Optimization, arXiv 1502.05477, appendix C. Axes: P parameters, end to end.
"""

from collections.abc import Callable
from math import sqrt

import torch
from torch import Tensor

TOLERANCE = 1e-10  # of the squared residual, relative to that at the start


def conjugate_gradients(
    product: Callable[[Tensor], Tensor], target_P: Tensor, *, iterations: int
) -> tuple[Tensor, float]:
    """x with product(x) near `target_P`, and the quadratic form x . product(x).

    `product` multiplies by a symmetric positive definite matrix, once for each iteration. Fewer are
    made if x is exact, or if rounding leaves a direction without curvature. Raises ValueError for
    no iterations.
    """
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, got {iterations}")
    x_P, residual_P = torch.zeros_like(target_P), target_P.clone()
    direction_P = residual_P.clone()
    square = start = _dot(residual_P, residual_P)
    for _ in range(iterations):
        if square <= TOLERANCE * start:
            break
        image_P = product(direction_P)
        curvature = _dot(direction_P, image_P)
        if not curvature > 0:
            break
        step = square / curvature
        x_P.add_(direction_P, alpha=step)
        residual_P.sub_(image_P, alpha=step)
        square, before = _dot(residual_P, residual_P), square
        direction_P.mul_(square / before).add_(residual_P)
    return x_P, _dot(x_P, target_P - residual_P)


def step_length(quadratic: float, bound: float) -> float:
    """sqrt(2 delta / (x . F x)): the length along x at which the KL, x . F x / 2 near the old
    policy, is `bound` nats. 0 without curvature: there is no direction.

    Raises ValueError for a bound that is not above 0.
    """
    if not bound > 0:
        raise ValueError(f"bound must be above 0 nats per token, got {bound}")
    return sqrt(2 * bound / quadratic) if quadratic > 0 else 0.0


def _dot(one_P: Tensor, other_P: Tensor) -> float:
    return torch.dot(one_P, other_P).item()
