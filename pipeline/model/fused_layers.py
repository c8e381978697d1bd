"""Transformer layers with the same weights and results, in fewer passes over memory.

Activations carry the compute dtype and weights follow it: if the embedding emits bfloat16, each
layer rounds its float32 weights for the product and accumulates its gradient in float32.
Linear layers use oneDNN where torch would use another library, which on AMD CPUs multiplies
float32 at half to four fifths of oneDNN's speed; the gradient of a small weight is torch's product,
which divides the sum over positions among threads, where oneDNN divides the small result.
torch.compile sees plain operations instead of these functions and fuses them itself.
Axes: N positions, D width, I inputs, O outputs.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

NORMS = (  # classes that compute weight * x / rms
    "LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm", "MistralRMSNorm", "MixtralRMSNorm",
    "Phi3RMSNorm", "Olmo2RMSNorm", "OlmoeRMSNorm", "Qwen2MoeRMSNorm", "Qwen3MoeRMSNorm",
    "GraniteRMSNorm", "SmolLM3RMSNorm",
)  # fmt: skip


class FastLinear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        bias = self.bias
        if input.dtype == self.weight.dtype and not torch.compiler.is_compiling():
            return _Linear.apply(input, self.weight, bias)
        bias = None if bias is None else bias.to(input.dtype)
        return nn.functional.linear(input, self.weight.to(input.dtype), bias)


class FastNorm(nn.Module):
    """Replaces a class of `NORMS`, whose attributes it reads."""

    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            return _RMSNorm.apply(hidden_states, self.weight, self.variance_epsilon)
        x = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
        scale = (x.square().mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()
        return (x * scale * self.weight).to(hidden_states.dtype)


class TypedEmbedding(nn.Embedding):
    """Emits activations in the compute dtype, which later layers follow."""

    compute: torch.dtype = torch.float32

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).to(self.compute)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight_OI)
        return linear_forward(x, weight_OI, bias_O)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, weight_OI = ctx.saved_tensors
        grad_NO = grads[0].reshape(-1, weight_OI.shape[0])
        by_x = by_weight = by_bias = None
        if ctx.needs_input_grad[0]:
            by_x = linear_input_grad(grad_NO, weight_OI).view(x.shape)
        if ctx.needs_input_grad[1]:
            by_weight = linear_weight_grad(grad_NO, x.reshape(-1, x.shape[-1]))
        if ctx.needs_input_grad[2]:
            by_bias = grad_NO.sum(0)
        return by_x, by_weight, by_bias


class _RMSNorm(torch.autograd.Function):
    """w x / sqrt(mean(x^2) + eps), in float32 or wider; saves x and one number per position."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_D: Tensor, epsilon: float) -> Tensor:
        x_ND = _rows(x)
        weight_D = weight_D.to(x_ND.dtype)
        norm_N = torch.linalg.vector_norm(x_ND, dim=-1)
        scale_N = norm_N.square().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, weight_D, scale_N)
        return (x_ND * scale_N[:, None]).mul_(weight_D).to(x.dtype).view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, weight_D, scale_N = ctx.saved_tensors
        x_ND, grad_ND = _rows(x), _rows(grads[0])
        product_ND = grad_ND * x_ND
        by_weight_D = product_ND.t() @ scale_N if ctx.needs_input_grad[1] else None
        along_N = (product_ND @ weight_D).mul_(scale_N.pow(3)).div_(-x.shape[-1])
        by_x_ND = torch.mul(grad_ND, weight_D, out=product_ND).mul_(scale_N[:, None])
        by_x_ND.addcmul_(x_ND, along_N[:, None])
        return by_x_ND.to(x.dtype).view(x.shape), by_weight_D, None


def _rows(x: Tensor) -> Tensor:
    """[N, D], in float32 or wider."""
    return x.reshape(-1, x.shape[-1]).to(torch.promote_types(x.dtype, torch.float32))


def onednn_linear_available() -> bool:
    """Whether this torch can run a linear layer through oneDNN outside of compiled code."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


ONEDNN_LINEAR = onednn_linear_available()
SMALL_GRADIENT = 2**16  # elements of a weight whose gradient is not oneDNN's


def linear_forward(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x W' + b, [N, O], of any leading shape."""
    if _uses_onednn(x_NI, weight_OI):
        return torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")
    return torch.nn.functional.linear(x_NI, weight_OI, bias_O)


def linear_input_grad(grad_NO: Tensor, weight_OI: Tensor) -> Tensor:
    """g W, [N, I]: the gradient of the input."""
    if _uses_onednn(grad_NO, weight_OI):
        return torch.ops.mkldnn._linear_pointwise(grad_NO, weight_OI.t(), None, "none", [], "")
    return grad_NO @ weight_OI


def linear_weight_grad(grad_NO: Tensor, x_NI: Tensor) -> Tensor:
    """g' x, [O, I]: the gradient of the weight."""
    if not _uses_onednn(grad_NO, x_NI) or grad_NO.shape[1] * x_NI.shape[1] <= SMALL_GRADIENT:
        return grad_NO.t() @ x_NI
    # oneDNN is faster when the wider side is passed as the outputs.
    if grad_NO.shape[1] >= x_NI.shape[1]:
        flipped_IO = torch.ops.mkldnn._linear_pointwise(x_NI.t(), grad_NO.t(), None, "none", [], "")
        return flipped_IO.t()
    return torch.ops.mkldnn._linear_pointwise(grad_NO.t(), x_NI.t(), None, "none", [], "")


def _uses_onednn(*tensors: Tensor) -> bool:
    """Non-empty float32 tensors on the CPU; torch itself sends bfloat16 to oneDNN."""
    return ONEDNN_LINEAR and all(
        t.dtype is torch.float32 and t.device.type == "cpu" and t.numel() for t in tensors
    )


@contextmanager
def in_float32(model: Any) -> Iterator[None]:
    """Compute in float32 inside the block, whatever `trainer.compute` is, to compare weights.

    Not compiled: what is compiled is half precision of another attention.
    """
    embeddings = [m for m in model.modules() if isinstance(m, TypedEmbedding)]
    dtypes = [m.compute for m in embeddings]
    compiled = getattr(model, "_compiled", False)
    try:
        for embedding in embeddings:
            embedding.compute = torch.float32
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            yield
    finally:
        for embedding, dtype in zip(embeddings, dtypes, strict=True):
            embedding.compute = dtype
