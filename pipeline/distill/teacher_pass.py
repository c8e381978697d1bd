"""What the teacher says of every learned token of the data: computed once, before training on it.

The pass is kept on disk under a key of the teacher's weights, all ids and what is kept of each
distribution, in parts, so that one that was interrupted goes on where it stopped and one that is
complete is only read. Axes: M learned tokens of a packed piece, K kept ids.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from data.sft_ids import Lesson
from pipeline.config import TrainerConfig
from pipeline.device import CPU, onto
from pipeline.durable import write_atomically
from pipeline.losses.distillation import TopK, top_k_from_hidden
from pipeline.policy import hidden_states
from pipeline.reference import fingerprint
from pipeline.sft.step import Piece, pieces
from pipeline.ways import output_head

PART = 256  # lessons of a part


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How much of each distribution is kept."""

    k: int  # ids
    ids: int  # that the student's head has: the teacher's others are left out
    temperature: float
    trainer: TrainerConfig


def pass_key(teacher: Any, lessons: Sequence[Lesson], keeping: Keeping) -> str:
    """Hash of whose distributions these are, at which tokens, and how much of them."""
    digest = sha256(fingerprint(teacher).encode())
    digest.update(struct.pack("<qqd", keeping.k, keeping.ids, keeping.temperature))
    for lesson in lessons:
        for numbers in (lesson.ids, lesson.learned):
            digest.update(struct.pack(f"<q{len(numbers)}q", len(numbers), *numbers))
    return digest.hexdigest()[:16]


def teacher_pass(
    teacher: Any,
    lessons: Sequence[Lesson],
    keeping: Keeping,
    folder: Path,
    say: Callable[[str], None] = lambda _: None,
) -> list[TopK]:
    """What is kept for the learned tokens of each lesson, from `folder` where it is and otherwise
    from the teacher; written there part by part."""
    found: list[TopK] = []
    made = 0
    for number, first in enumerate(range(0, len(lessons), PART)):
        path = folder / f"part_{number:05d}.pt"
        if not path.is_file():
            part = lessons[first : first + PART]
            kept = [_stored(one) for one in read_by(teacher, part, keeping)]
            write_atomically(path, lambda fresh, kept=kept: torch.save(kept, fresh))
            made += len(part)
        found += map(_restored, torch.load(path, weights_only=True))
    say(f"teacher: {made} of {len(lessons)} rows read now, the rest before; kept in {folder}")
    return found


@torch.no_grad()
def read_by(teacher: Any, lessons: Sequence[Lesson], keeping: Keeping) -> list[TopK]:
    """What is kept for the learned tokens of each lesson, in their order."""
    found: dict[int, TopK] = {}
    trainer = keeping.trainer
    for piece in pieces(lessons, trainer):
        hidden_RTD = hidden_states(teacher.base_model, piece.ids_RT, piece.positions_RT)
        kept = top_k_from_hidden(
            hidden_RTD[piece.learned_RT],
            output_head(teacher),
            keeping.k,
            ids=keeping.ids,
            temperature=keeping.temperature,
            chunk=trainer.logits_chunk,
        )
        kept, (order, counts) = onto(kept, CPU), owners(piece)
        parts = (x.split(counts) for x in (kept.ids_XK, kept.logq_XK, kept.rest_X))
        for lesson, ids, logq, rest in zip(order, *parts, strict=True):
            found[lesson] = TopK(ids_XK=ids.clone(), logq_XK=logq.clone(), rest_X=rest.clone())
    return [found[i] for i in range(len(lessons))]


def owners(piece: Piece) -> tuple[list[int], list[int]]:
    """Which lessons the learned tokens of a piece belong to, in their order, and how many each
    has; those of one lesson lie side by side."""
    order, counts = piece.sequence_RT[piece.learned_RT].unique_consecutive(return_counts=True)
    return order.tolist(), counts.tolist()


def _stored(kept: TopK) -> dict[str, Tensor]:
    return {"ids": kept.ids_XK.to(torch.int32), "logq": kept.logq_XK, "rest": kept.rest_X}


def _restored(stored: dict[str, Tensor]) -> TopK:
    ids_XK = stored["ids"].to(torch.int64)
    return TopK(ids_XK=ids_XK, logq_XK=stored["logq"], rest_X=stored["rest"])
