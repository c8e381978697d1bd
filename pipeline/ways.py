"""What the packing and the head have to know of a model: measured on it, not looked up by its name.

Axes: R packed rows, T positions, D width, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

from pipeline import packed_attention
from pipeline.failures import StageError
from pipeline.losses.logprob import Head
from pipeline.segments import borrowing, laid

FIRST, SECOND = 5, 4  # positions of two sequences in one row
CLOSE = {2: 0.05, 4: 1e-3, 8: 1e-3}  # relative, by bytes of a number
FAR = 1e6  # a logit that every cap is below
RAMP = 60.0  # logits among which the head's rule is checked


class UnknownHeadError(StageError):
    """A model makes its logits in a way that is not computed here."""


def output_head(model: Any) -> Head:
    """The last layer and what the model makes of its output, measured once.

    Raises UnknownHeadError where that is neither a factor nor a factor and a soft cap.
    """
    layer = model.get_output_embeddings()
    if layer is None:
        raise UnknownHeadError(f"{type(model).__name__} has no output embeddings to score with")
    if "_head_rule" not in vars(model):
        model._head_rule = _head_rule(model, layer)
    return Head(layer.weight, getattr(layer, "bias", None), *model._head_rule)


def packs(trunk: Any) -> bool:
    """Whether sequences laid end to end in a row come out as if each were alone: the same numbers,
    and no gradient from the second to the first. Measured once for each kind of attention."""
    known = vars(trunk).setdefault("_packs", {})
    kind = trunk.config._attn_implementation
    if kind not in known:
        known[kind] = _packs(trunk)
    return known[kind]


def shares(*trunks: Any) -> bool:
    """Whether a sequence may borrow its first positions from another: where attention is ours, on
    the CPU."""
    return all(_ours(trunk) and trunk.device.type == "cpu" for trunk in trunks)


def extras(trunk: Any, positions_RT: Tensor) -> dict[str, Any]:
    """What the attention of a trunk is told beside ids and positions: once, not in every layer.

    Raises ValueError for a sequence that borrows positions where attention could not know of it.
    """
    if not shares(trunk) and borrowing(positions_RT):
        kind = f"{trunk.config._attn_implementation!r} on {trunk.device.type}"
        raise ValueError(f"attention {kind} cannot read rows whose sequences share a prompt")
    if not _ours(trunk):
        return {}
    embedding = trunk.get_input_embeddings()
    dtype = getattr(embedding, "compute", embedding.weight.dtype)  # it gives all others theirs
    return {"segments_of_rows": laid(positions_RT, dtype)}


def _ours(trunk: Any) -> bool:
    return trunk.config._attn_implementation == packed_attention.NAME


def _packs(trunk: Any) -> bool:
    embedding = trunk.get_input_embeddings()
    ids_1T = _ids(trunk, FIRST + SECOND)
    positions = torch.cat([torch.arange(FIRST), torch.arange(SECOND)])[None].to(ids_1T.device)
    leaves: list[Tensor] = []

    def leaf(_: Any, __: Any, found: Tensor) -> Tensor:
        leaves.append(found.detach().requires_grad_())
        return leaves[-1]

    with torch.inference_mode(False), torch.enable_grad():
        handle = embedding.register_forward_hook(leaf)
        try:
            row_1TD = _trunk(trunk, ids_1T, positions)[:, FIRST:]
            alone_1TD = _trunk(trunk, ids_1T[:, FIRST:], positions[:, FIRST:])
        finally:
            handle.remove()
        noise = torch.Generator().manual_seed(0)
        along_1TD = torch.randn(row_1TD.shape, generator=noise).to(row_1TD)
        grad_1TD = torch.autograd.grad((row_1TD * along_1TD).sum(), leaves[0])[0].float()
    crossed, own = (x.abs().max().item() for x in grad_1TD.split((FIRST, SECOND), 1))
    gap = (row_1TD - alone_1TD).float().norm() / alone_1TD.float().norm()
    return own > 0 and crossed <= 1e-6 * own and gap.item() <= CLOSE[row_1TD.element_size()]


def _trunk(trunk: Any, ids_RT: Tensor, positions_RT: Tensor) -> Tensor:
    found = extras(trunk, positions_RT)
    out = trunk(input_ids=ids_RT, position_ids=positions_RT, use_cache=False, **found)
    return out.last_hidden_state


def _head_rule(model: Any, layer: Any) -> tuple[float, float]:
    """(scale, cap), from what becomes of logits that are put in the place of the layer's own."""
    ids_1T = _ids(model, 2)
    positions = torch.arange(2, device=ids_1T.device)[None]
    given_V = torch.linspace(-RAMP, RAMP, len(layer.weight), device=ids_1T.device)
    given_V[:2] = torch.tensor([1e-3, FAR])
    came: list[Tensor] = []
    hooks = [
        model.base_model.register_forward_hook(lambda _, __, out: came.append(out[0])),
        layer.register_forward_pre_hook(lambda _, inputs: came.append(inputs[0])),
        layer.register_forward_hook(lambda _, __, out: given_V.expand(out.shape)),
    ]
    try:
        with torch.inference_mode(False), torch.no_grad():
            said_V = model(input_ids=ids_1T, position_ids=positions, use_cache=False).logits[0, -1]
    finally:
        for hook in hooks:
            hook.remove()
    made_V = said_V.float()
    scale, top = made_V[0].item() / 1e-3, made_V[1].item()
    cap = 0.0 if abs(top / (scale * FAR) - 1) < 1e-3 else top
    want_V = scale * given_V
    if cap:
        want_V = cap * (want_V / cap).tanh()
    same = len(came) == 2 and came[0].shape == came[1].shape
    same = same and torch.allclose(*came, rtol=0.0, atol=0.0, equal_nan=True)
    if not (same and scale > 0 and torch.allclose(made_V, want_V, rtol=1e-4, atol=1e-5)):
        raise UnknownHeadError(
            f"{type(model).__name__} makes its logits in a way that is not known here: known are "
            "a linear layer on the trunk's last hidden states, times a number, under a soft cap"
        )
    return _plain(scale), cap


def _plain(scale: float) -> float:
    """1 where the measurement differs from it by rounding."""
    return 1.0 if abs(scale - 1) < 1e-5 else scale


def _ids(model: Any, count: int) -> Tensor:
    ids_T = torch.arange(3, 3 + count, device=next(model.parameters()).device)
    return (ids_T % model.config.get_text_config().vocab_size)[None]
