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
from veriloop.pipeline.model.policy import forward, hidden_states
from veriloop.pipeline.model.probe import output_head
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.sft.step import Piece, pieces
from veriloop.pipeline.training.accumulate import accumulated
from veriloop.pipeline.training.measurements import Tally

Targets = Mapping[EncodedExample, TopK]


def gradient(
    model: Any,
    batch: Sequence[EncodedExample],
    targets: Targets,
    trainer: TrainerConfig,
    temperature: float,
    ranks: Ranks = SINGLE,
) -> dict[str, float]:
    """Backward pass of the mean `top_k_kl` over the step's tokens, whatever the packing.

    `targets` were computed at `temperature`. The loss is in nats per learned token.
    """
    tokens = sum(example.targets for example in batch)

    def share(piece: Piece, _: Tally) -> Tensor:
        values_M = _divergence(model, batch, piece, targets, trainer, temperature)
        return token_share(values_M, tokens)

    totals = accumulated(pieces(batch, trainer, ranks.count), share, ranks)
    return totals | {"tokens": float(tokens)}


@torch.no_grad()
def measure(
    model: Any,
    examples: Sequence[EncodedExample],
    targets: Targets,
    trainer: TrainerConfig,
    temperature: float,
    ranks: Ranks = SINGLE,
) -> dict[str, float]:
    """Forward KL to the teacher on its top k and the remaining mass, nats per learned token; no
    number for no examples."""
    if not examples:
        return {}
    tokens = sum(example.targets for example in examples)

    def share(piece: Piece, _: Tally) -> Tensor:
        return _divergence(model, examples, piece, targets, trainer, temperature).double().sum()

    parts = pieces(examples, trainer, ranks.count)
    totals = accumulated(parts, share, ranks, backward=False)
    return {"kl_to_teacher": totals["loss"] / tokens}


def _divergence(
    model: Any,
    batch: Sequence[EncodedExample],
    piece: Piece,
    targets: Targets,
    trainer: TrainerConfig,
    temperature: float,
) -> Tensor:
    """`top_k_kl` of each learned token of the piece, [M], nats."""
    parts = [targets[batch[i]] for i in token_owners(piece)[0]]
    top_k = TopK(
        ids_XK=torch.cat([part.ids_XK for part in parts]),
        logq_XK=torch.cat([part.logq_XK for part in parts]),
        rest_X=torch.cat([part.rest_X for part in parts]),
    )
    top_k = onto(top_k, device_of(model))
    return forward(model, _top_k_kl, piece, top_k, temperature, trainer.logits_chunk)


def _top_k_kl(model: Any, piece: Piece, top_k: TopK, temperature: float, chunk: int) -> Tensor:
    hidden_RTD = hidden_states(model.base_model, piece.ids_RT, piece.positions_RT)
    hidden_MD, head = hidden_RTD[piece.learned_RT], output_head(model)
    return top_k_kl_from_hidden(hidden_MD, head, top_k, temperature=temperature, chunk=chunk)
