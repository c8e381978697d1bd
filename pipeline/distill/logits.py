"""One optimizer step on written answers towards what was kept of a teacher's distributions.

Axes: M learned tokens of a packed piece.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from data.sft_ids import Lesson
from pipeline.config import TrainerConfig
from pipeline.device import device_of, onto
from pipeline.distill.teacher_pass import owners
from pipeline.losses.distillation import TopK, token_share, top_k_kl_from_hidden
from pipeline.policy import hidden_states
from pipeline.sft.step import Piece, pieces
from pipeline.tally import Tally
from pipeline.ways import output_head

Kept = Mapping[Lesson, TopK]


def gradient(
    model: Any, batch: Sequence[Lesson], kept: Kept, trainer: TrainerConfig, temperature: float
) -> dict[str, float]:
    """Backward of the mean `top_k_kl` over the step's tokens: any split leaves the same gradient.

    `kept` is at this temperature. The loss is in nats per learned token.
    """
    tokens, tally = sum(lesson.targets for lesson in batch), Tally()
    for piece in pieces(batch, trainer):
        values_M = _values(model, batch, piece, kept, trainer, temperature)
        share = token_share(values_M, tokens)
        share.backward()
        tally.add("loss", share)
    return tally.told() | {"tokens": float(tokens)}


@torch.no_grad()
def measure(
    model: Any, lessons: Sequence[Lesson], kept: Kept, trainer: TrainerConfig, temperature: float
) -> dict[str, float]:
    """The forward KL to the teacher that can be told from what is kept, nats per learned token."""
    tokens, tally = sum(lesson.targets for lesson in lessons), Tally()
    for piece in pieces(lessons, trainer):
        values_M = _values(model, lessons, piece, kept, trainer, temperature)
        tally.add("total", values_M.double().sum())
    return {"kl_to_teacher": tally.told().get("total", 0.0) / max(tokens, 1)}


def _values(
    model: Any,
    batch: Sequence[Lesson],
    piece: Piece,
    kept: Kept,
    trainer: TrainerConfig,
    temperature: float,
) -> Tensor:
    hidden_RTD = hidden_states(model.base_model, piece.ids_RT, piece.positions_RT)
    said = [kept[batch[i]] for i in owners(piece)[0]]
    joined = TopK(
        ids_XK=torch.cat([one.ids_XK for one in said]),
        logq_XK=torch.cat([one.logq_XK for one in said]),
        rest_X=torch.cat([one.rest_X for one in said]),
    )
    return top_k_kl_from_hidden(
        hidden_RTD[piece.learned_RT],
        output_head(model),
        onto(joined, device_of(model)),
        temperature=temperature,
        chunk=trainer.logits_chunk,
    )
