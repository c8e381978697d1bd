"""The loss of `method: logits`: KL to the teacher's cached top-k distributions on SFT rows.

Axes: M learned tokens of a packed piece.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from veriloop.data.sft_ids import EncodedExample
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.distill.teacher_pass import token_owners
from veriloop.pipeline.losses.distillation import TopK, token_share, top_k_kl_from_hidden
from veriloop.pipeline.model.device import device_of, onto
from veriloop.pipeline.model.policy import hidden_states
from veriloop.pipeline.model.probe import output_head
from veriloop.pipeline.sft.step import Piece, pieces
from veriloop.pipeline.training.measurements import Tally

Targets = Mapping[EncodedExample, TopK]


def gradient(
    model: Any,
    batch: Sequence[EncodedExample],
    targets: Targets,
    trainer: TrainerConfig,
    temperature: float,
) -> dict[str, float]:
    """Backward pass of the mean `top_k_kl` over the step's tokens, whatever the packing.

    `targets` were computed at `temperature`. The loss is in nats per learned token.
    """
    tokens, tally = sum(example.targets for example in batch), Tally()
    for piece in pieces(batch, trainer):
        values_M = _divergence(model, batch, piece, targets, trainer, temperature)
        share = token_share(values_M, tokens)
        share.backward()
        tally.add("loss", share)
    return tally.totals() | {"tokens": float(tokens)}


@torch.no_grad()
def measure(
    model: Any,
    examples: Sequence[EncodedExample],
    targets: Targets,
    trainer: TrainerConfig,
    temperature: float,
) -> dict[str, float]:
    """Forward KL to the teacher on its top k and the remaining mass, nats per learned token."""
    tokens, tally = sum(example.targets for example in examples), Tally()
    for piece in pieces(examples, trainer):
        values_M = _divergence(model, examples, piece, targets, trainer, temperature)
        tally.add("total", values_M.double().sum())
    return {"kl_to_teacher": tally.totals().get("total", 0.0) / max(tokens, 1)}


def _divergence(
    model: Any,
    batch: Sequence[EncodedExample],
    piece: Piece,
    targets: Targets,
    trainer: TrainerConfig,
    temperature: float,
) -> Tensor:
    """`top_k_kl` of each learned token of the piece, [M], nats."""
    hidden_RTD = hidden_states(model.base_model, piece.ids_RT, piece.positions_RT)
    parts = [targets[batch[i]] for i in token_owners(piece)[0]]
    top_k = TopK(
        ids_XK=torch.cat([part.ids_XK for part in parts]),
        logq_XK=torch.cat([part.logq_XK for part in parts]),
        rest_X=torch.cat([part.rest_X for part in parts]),
    )
    return top_k_kl_from_hidden(
        hidden_RTD[piece.learned_RT],
        output_head(model),
        onto(top_k, device_of(model)),
        temperature=temperature,
        chunk=trainer.logits_chunk,
    )
