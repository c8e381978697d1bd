"""Properties of a model for packing and scoring, measured on it instead of looked up by name.

Axes: R packed rows, T positions, D width, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.errors import StageError
from veriloop.pipeline.model import packed_attention
from veriloop.pipeline.model.logprob import Head
from veriloop.pipeline.model.packed_attention import HALF, attention_layout, borrowing

FIRST, SECOND = 5, 4  # lengths of two sequences in one row
CLOSE = {2: 0.05, 4: 1e-3, 8: 1e-3}  # relative tolerance, by bytes of a number
FAR = 1e6  # a logit above every soft cap
RAMP = 60.0  # range of logits over which the head's rule is checked


Pass = Callable[[Callable[[], tuple[Tensor, Tensor]]], tuple[Tensor, Tensor]]


class UnknownHeadError(StageError):
    """A model computes its logits in an unsupported way."""


def _direct(forward: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return forward()


def output_head(model: Any) -> Head:
    """The output head with its scale and soft cap, measured once.

    Raises UnknownHeadError if the model does anything else to the logits.
    """
    layer = model.get_output_embeddings()
    if layer is None:
        raise UnknownHeadError(f"{type(model).__name__} has no output embeddings to score with")
    if "_head_rule" not in vars(model):
        model._head_rule = _head_rule(model, layer)
    scale, cap = model._head_rule
    compiled = getattr(model, "_compiled", False)
    return Head(layer.weight, getattr(layer, "bias", None), scale, cap, compiled)


def supports_packing(trunk: Any, gathering: Pass = _direct) -> bool:
    """Whether each sequence of a packed row gets the same outputs as alone, with no gradient across
    sequences. Measured once per attention implementation.

    `gathering` runs a forward pass where the trunk's weights are whole.
    """
    known = vars(trunk).setdefault("_packs", {})
    kind = trunk.config._attn_implementation
    if kind not in known:
        known[kind] = _packs(trunk, gathering)
    return known[kind]


def supports_shared_prompts(*trunks: Any) -> bool:
    """Whether a sequence may borrow its first positions: with packed attention, on the CPU or in
    half precision."""
    return all(
        _is_packed(trunk) and (trunk.device.type == "cpu" or compute_dtype(trunk) in HALF)
        for trunk in trunks
    )


def compute_dtype(trunk: Any) -> torch.dtype:
    """The dtype of the embedding's activations, which later layers follow."""
    embedding = trunk.get_input_embeddings()
    return getattr(embedding, "compute", embedding.weight.dtype)


def attention_kwargs(
    trunk: Any, positions_RT: Tensor, ids_RT: Tensor | None = None
) -> dict[str, Any]:
    """Keyword arguments for a trunk's attention, computed once for all layers.

    Raises ValueError if a sequence borrows positions and the attention does not support it.
    """
    if not supports_shared_prompts(trunk) and borrowing(positions_RT):
        dtype = str(compute_dtype(trunk)).removeprefix("torch.")
        kind = f"{trunk.config._attn_implementation!r} in {dtype} on {trunk.device.type}"
        raise ValueError(f"attention {kind} cannot read rows whose sequences share a prompt")
    if not _is_packed(trunk):
        return {}
    return {"segments_of_rows": attention_layout(positions_RT, compute_dtype(trunk), ids_RT)}


def _is_packed(trunk: Any) -> bool:
    return trunk.config._attn_implementation == packed_attention.NAME


def _packs(trunk: Any, gathering: Pass) -> bool:
    embedding = trunk.get_input_embeddings()
    ids_1T = _ids(trunk, FIRST + SECOND)
    positions = torch.cat([torch.arange(FIRST), torch.arange(SECOND)])[None].to(ids_1T.device)
    leaves: list[Tensor] = []

    def leaf(_: Any, __: Any, embedded: Tensor) -> Tensor:
        leaves.append(embedded.detach().requires_grad_())
        return leaves[-1]

    with torch.inference_mode(False), torch.enable_grad():
        handle = embedding.register_forward_hook(leaf)
        try:
            row_1TD, alone_1TD = gathering(
                lambda: (
                    _trunk(trunk, ids_1T, positions)[:, FIRST:],
                    _trunk(trunk, ids_1T[:, FIRST:], positions[:, FIRST:]),
                )
            )
        finally:
            handle.remove()
        noise = torch.Generator().manual_seed(0)
        along_1TD = torch.randn(row_1TD.shape, generator=noise).to(row_1TD)
        grad_1TD = torch.autograd.grad((row_1TD * along_1TD).sum(), leaves[0])[0].float()
    crossed, own = (x.abs().max().item() for x in grad_1TD.split((FIRST, SECOND), 1))
    gap = (row_1TD - alone_1TD).float().norm() / alone_1TD.float().norm()
    return own > 0 and crossed <= 1e-6 * own and gap.item() <= CLOSE[row_1TD.element_size()]


def _trunk(trunk: Any, ids_RT: Tensor, positions_RT: Tensor) -> Tensor:
    kwargs = attention_kwargs(trunk, positions_RT)
    out = trunk(input_ids=ids_RT, position_ids=positions_RT, use_cache=False, **kwargs)
    return out.last_hidden_state


def _head_rule(model: Any, layer: Any) -> tuple[float, float]:
    """(scale, cap), from the model's output when the layer's logits are replaced by known ones."""
    ids_1T = _ids(model, 2)
    positions = torch.arange(2, device=ids_1T.device)[None]
    input_V = torch.linspace(-RAMP, RAMP, len(layer.weight), device=ids_1T.device)
    input_V[:2] = torch.tensor([1e-3, FAR])
    hidden: list[Tensor] = []  # after the trunk, and before the head
    hooks = [
        model.base_model.register_forward_hook(lambda _, __, out: hidden.append(out[0])),
        layer.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0])),
        layer.register_forward_hook(lambda _, __, out: input_V.expand(out.shape)),
    ]
    try:
        with torch.inference_mode(False), torch.no_grad():
            out = model(input_ids=ids_1T, position_ids=positions, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    logits_V = out.logits[0, -1].float()
    scale, top = logits_V[0].item() / 1e-3, logits_V[1].item()
    cap = 0.0 if abs(top / (scale * FAR) - 1) < 1e-3 else top
    expected_V = scale * input_V
    if cap:
        expected_V = cap * (expected_V / cap).tanh()
    same = len(hidden) == 2 and hidden[0].shape == hidden[1].shape
    same = same and torch.allclose(*hidden, rtol=0.0, atol=0.0, equal_nan=True)
    if not (same and scale > 0 and torch.allclose(logits_V, expected_V, rtol=1e-4, atol=1e-5)):
        raise UnknownHeadError(
            f"{type(model).__name__} computes its logits in an unsupported way; supported: a "
            "linear layer on the trunk's last hidden states, with a scale and a soft cap"
        )
    return _plain(scale), cap


def _plain(scale: float) -> float:
    """Exactly 1 if the measurement differs from it only by rounding."""
    return 1.0 if abs(scale - 1) < 1e-5 else scale


def _ids(model: Any, count: int) -> Tensor:
    ids_T = torch.arange(3, 3 + count, device=next(model.parameters()).device)
    return (ids_T % model.config.get_text_config().vocab_size)[None]
