"""Gradients of large weights, added up where they are made.

Autograd hands a gradient on as a tensor of its own and adds it to `.grad` after that: for the head
of a large vocabulary that is as much memory again. A function that makes such a gradient part by
part can add each part to `.grad` itself, and return none.
"""

import torch
from torch import Tensor

_MARK = "gradient_in_place"


def mark(weight: Tensor) -> None:
    """Let functions that can do so add to the gradient of this weight themselves."""
    setattr(weight, _MARK, True)


def total(weight: Tensor, dtype: torch.dtype) -> Tensor | None:
    """The gradient to add to in this type, zero at first; None where that is autograd's to do."""
    if not getattr(weight, _MARK, False) or weight.dtype != dtype:
        return None
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    return weight.grad
