"""One optimizer step on written answers: the cross-entropy of their learned tokens.

Axes: R rows, T positions, M learned tokens, D width, V vocabulary, C tokens of a chunk.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from data.sft_ids import Lesson
from pipeline.config import TrainerConfig
from pipeline.device import brought
from pipeline.packing import best_fit, lay_out
from pipeline.policy import hidden_states, score, score_hidden
from pipeline.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """The packed rows of a micro-batch."""

    ids_RT: Tensor  # int64
    positions_RT: Tensor  # int64, 0 at the start of each sequence
    targets_RT: Tensor  # int64
    learned_RT: Tensor  # bool, true where the target is learned
    sequence_RT: Tensor  # int64, which lesson of the batch a position belongs to; -1 on padding


def pieces(batch: Sequence[Lesson], trainer: TrainerConfig) -> Iterator[Piece]:
    """The batch in packed rows, `trainer.rows` of them at a time; every lesson stands in one."""
    lengths = [len(lesson.ids) - 1 for lesson in batch]
    rows = best_fit(lengths, max(trainer.row, *lengths))
    for first in range(0, len(rows), trainer.rows):
        here = rows[first : first + trainer.rows]
        packed = lay_out([lesson.ids for lesson in batch], here)
        flags = lay_out([lesson.learned for lesson in batch], here)  # shifted as the ids are
        yield Piece(
            ids_RT=packed.ids_RT,
            positions_RT=packed.positions_RT,
            targets_RT=packed.targets_RT,
            learned_RT=flags.targets_RT.bool(),
            sequence_RT=packed.sequence_RT,
        )


def gradient(model: Any, batch: Sequence[Lesson], trainer: TrainerConfig) -> dict[str, float]:
    """Backward of -sum(log pi) / tokens over the whole step: any split leaves the same gradient.

    Metrics under TRL's names: loss and entropy in nats per learned token.
    """
    tokens, tally = sum(lesson.targets for lesson in batch), Tally()
    for piece in pieces(batch, trainer):
        logp_M, entropy_M = score(
            model,
            piece.ids_RT,
            piece.positions_RT,
            piece.targets_RT,
            piece.learned_RT,
            temperature=1.0,
            chunk=trainer.logits_chunk,
        )
        share = -logp_M.sum() / tokens
        share.backward()
        tally.add("loss", share)
        tally.add("entropy", entropy_M.detach().sum().double() / tokens)
    return tally.told() | {"tokens": float(tokens)}


@torch.no_grad()
def measure(model: Any, lessons: Sequence[Lesson], trainer: TrainerConfig) -> dict[str, float]:
    """Loss in nats per learned token, and the share of them that the model ranks first."""
    tokens, tally = sum(lesson.targets for lesson in lessons), Tally()
    for piece in pieces(lessons, trainer):
        hidden_RTD = hidden_states(model.base_model, piece.ids_RT, piece.positions_RT)
        hidden_MD = hidden_RTD[piece.learned_RT]
        targets_M = brought(piece.targets_RT[piece.learned_RT], hidden_MD.device)
        head = model.get_output_embeddings()  # what follows it keeps the order of its logits
        logp_M, _ = score_hidden(
            model, hidden_MD, targets_M, temperature=1.0, chunk=trainer.logits_chunk
        )
        tally.add("loss", -logp_M.double().sum())
        chunks = zip(
            hidden_MD.split(trainer.logits_chunk),
            targets_M.split(trainer.logits_chunk),
            strict=True,
        )
        for hidden_CD, targets_C in chunks:
            tally.add("right", (head(hidden_CD).argmax(-1) == targets_C).sum())
    found = tally.told()
    return {
        "eval_loss": found["loss"] / tokens,
        "eval_mean_token_accuracy": found["right"] / tokens,
    }
