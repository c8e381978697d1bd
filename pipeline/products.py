"""The three matrix products of a linear layer: through oneDNN where torch alone would take another
library, which on AMD cores multiplies float32 at half to four fifths of its speed.

Axes: N rows, I inputs, O outputs.
"""

import torch
from torch import Tensor


def fused_available() -> bool:
    """Whether this torch can run a linear layer by oneDNN outside of compiled code."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


FUSED = fused_available()


def forward(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x W' + b, [N, O], of any leading shape."""
    if _by_onednn(x_NI, weight_OI):
        return torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")
    return torch.nn.functional.linear(x_NI, weight_OI, bias_O)


def by_input(grad_NO: Tensor, weight_OI: Tensor) -> Tensor:
    """g W, [N, I]: the gradient of the input."""
    if _by_onednn(grad_NO, weight_OI):
        return torch.ops.mkldnn._linear_pointwise(grad_NO, weight_OI.t(), None, "none", [], "")
    return grad_NO @ weight_OI


def by_weight(grad_NO: Tensor, x_NI: Tensor) -> Tensor:
    """g' x, [O, I]: the gradient of the weight. oneDNN is told of the wider side as the outputs."""
    if not _by_onednn(grad_NO, x_NI):
        return grad_NO.t() @ x_NI
    if grad_NO.shape[1] >= x_NI.shape[1]:
        flipped_IO = torch.ops.mkldnn._linear_pointwise(x_NI.t(), grad_NO.t(), None, "none", [], "")
        return flipped_IO.t()
    return torch.ops.mkldnn._linear_pointwise(grad_NO.t(), x_NI.t(), None, "none", [], "")


def _by_onednn(*tensors: Tensor) -> bool:
    """Float32 on the CPU, and something to multiply; bfloat16 goes to oneDNN by itself."""
    return FUSED and all(
        t.dtype is torch.float32 and t.device.type == "cpu" and t.numel() for t in tensors
    )
