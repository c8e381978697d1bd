"""Frozen weights in 4 bits under adapters: QLoRA (arXiv 2305.14314), by bitsandbytes.

A weight is one tensor of bytes: a float32 scale for every 64 numbers, then two numbers in a
byte. Each product dequantizes it anew, also in the backward pass, and keeps nothing but the bytes.
Axes: I inputs, O outputs, B bytes.
"""

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.lora import LoraLinear

BLOCK = 64  # numbers with a scale of their own
KIND = "nf4"


class Nf4LoraLinear(LoraLinear):
    """A linear layer with an adapter over a frozen weight in 4 bits."""

    def frozen(self, input: Tensor) -> Tensor:
        product = _product(input, self.weight, self.out_features, self.in_features, False)
        return product if self.bias is None else product + self.bias.to(input.dtype)

    def plain_weight(self, held: Tensor) -> Tensor:
        return dequantized(held, self.out_features, self.in_features)


def require_library(trainer: TrainerConfig) -> None:
    """Raise RecipeError if frozen weights are to be in 4 bits and bitsandbytes does not import."""
    if trainer.lora.base != KIND:
        return
    try:
        importlib.import_module("bitsandbytes")
    except ImportError as failure:
        raise RecipeError(
            f"trainer.lora.base=nf4 needs bitsandbytes ({failure}): pip install bitsandbytes, or "
            "set full"
        ) from failure


def quantize(model: Any, device: torch.device) -> None:
    """Quantize the frozen weight of every layer with an adapter, one at a time on `device`."""
    for layer in model.modules():
        if type(layer) is LoraLinear:
            held_B = quantized(layer.weight.detach().to(device))
            layer.weight = nn.Parameter(held_B, requires_grad=False)
            layer.__class__ = Nf4LoraLinear


def quantized(weight_OI: Tensor) -> Tensor:
    """[B], uint8"""
    blocks = nn.functional.pad(weight_OI.flatten(), (0, -weight_OI.numel() % BLOCK)).view(-1, BLOCK)
    packed, scales = torch.ops.bitsandbytes.quantize_4bit(blocks, BLOCK, KIND, torch.uint8)
    return torch.cat([scales.float().view(torch.uint8), packed.flatten()])


def dequantized(held_B: Tensor, outputs: int, inputs: int) -> Tensor:
    """[O, I], float32"""
    count = -(-outputs * inputs // BLOCK)
    scales, packed = held_B.tensor_split([4 * count])
    # As rows of one block: the library's CPU kernel lets no block cross rows.
    blocks = torch.ops.bitsandbytes.dequantize_4bit(
        packed[:, None], scales.view(torch.float32), BLOCK, KIND, (count, BLOCK), torch.float32
    )
    return blocks.flatten()[: outputs * inputs].view(outputs, inputs)


# An operation of its own: neither autograd nor the compiler keeps the dequantized weight.
@torch.library.custom_op("veriloop::nf4_product", mutates_args=())
def _product(x: Tensor, held_B: Tensor, outputs: int, inputs: int, transposed: bool) -> Tensor:
    weight_OI = dequantized(held_B, outputs, inputs).to(x.dtype)
    return x @ (weight_OI if transposed else weight_OI.t())


@_product.register_fake
def _(x: Tensor, held_B: Tensor, outputs: int, inputs: int, transposed: bool) -> Tensor:
    return x.new_empty(*x.shape[:-1], inputs if transposed else outputs)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, held_B, *ctx.rest, ctx.transposed = inputs
    ctx.save_for_backward(held_B)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (held_B,) = ctx.saved_tensors
    return _product(grad, held_B, *ctx.rest, not ctx.transposed), None, None, None, None


_product.register_autograd(_backward, setup_context=_setup)
