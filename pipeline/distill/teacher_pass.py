"""The teacher's top-k log-probs at every learned token, computed once before training.

The pass is cached on disk in parts, keyed by the teacher's weights, all ids and the options, so
that an interrupted pass continues and a complete one is only read. Axes: M learned tokens of a
packed piece, X learned tokens of one example, K top ids.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veriloop.data.sft_ids import EncodedExample
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.losses.distillation import TopK, top_k_from_hidden
from veriloop.pipeline.model.device import CPU, onto
from veriloop.pipeline.model.policy import hidden_states
from veriloop.pipeline.model.probe import output_head
from veriloop.pipeline.model.reference import deciding_config, fingerprint
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.console import activity
from veriloop.pipeline.sft.step import Piece, pieces

PART = 256  # examples of a cached file


@dataclass(frozen=True, slots=True, kw_only=True)
class TopKOptions:
    """How much of each teacher distribution is stored."""

    k: int  # ids per token
    ids: int  # size of the student's head; teacher ids beyond it are dropped
    temperature: float
    trainer: TrainerConfig


def pass_key(teacher: Any, examples: Sequence[EncodedExample], options: TopKOptions) -> str:
    """Hash of the teacher's weights and config, the examples and the options that change a
    number."""
    digest = sha256(fingerprint(teacher).encode())
    digest.update(deciding_config(teacher).encode())
    digest.update(struct.pack("<qqd", options.k, options.ids, options.temperature))
    digest.update(options.trainer.compute.encode())
    for example in examples:
        for numbers in (example.ids, example.learned):
            digest.update(struct.pack(f"<q{len(numbers)}q", len(numbers), *numbers))
    return digest.hexdigest()[:16]


def teacher_pass(
    teacher: Any,
    examples: Sequence[EncodedExample],
    options: TopKOptions,
    folder: Path,
    say: Callable[[str], None] = lambda _: None,
) -> list[TopK]:
    """The teacher's top k at the learned tokens of each example; parts missing from `folder` are
    computed and written."""
    targets: list[TopK] = []
    computed = 0
    with activity("scoring by the teacher", len(examples)) as scoring:
        for number, first in enumerate(range(0, len(examples), PART)):
            path, part = folder / f"part_{number:05d}.pt", examples[first : first + PART]
            if not path.is_file():
                tensors = [_to_file(top_k) for top_k in score_top_k(teacher, part, options)]
                write_atomically(path, partial(torch.save, tensors), shared=True)
                computed += len(part)
            targets += map(_from_file, torch.load(path, weights_only=True))
            scoring.advance(len(part))
    say(f"teacher: {computed} of {len(examples)} rows scored now, the rest cached; in {folder}")
    return targets


@torch.no_grad()
def score_top_k(
    teacher: Any, examples: Sequence[EncodedExample], options: TopKOptions
) -> list[TopK]:
    """The teacher's top k at the learned tokens of each example, in order."""
    targets: dict[int, TopK] = {}
    trainer = options.trainer
    for piece in pieces(examples, trainer):
        hidden_RTD = hidden_states(teacher.base_model, piece.ids_RT, piece.positions_RT)
        top_k = top_k_from_hidden(
            hidden_RTD[piece.learned_RT],
            output_head(teacher),
            options.k,
            ids=options.ids,
            temperature=options.temperature,
            chunk=trainer.logits_chunk,
        )
        top_k, (order, counts) = onto(top_k, CPU), token_owners(piece)
        parts = (x.split(counts) for x in (top_k.ids_XK, top_k.logq_XK, top_k.rest_X))
        for example, ids, logq, rest in zip(order, *parts, strict=True):
            # clones, because a view would keep the whole piece in memory and in the file
            targets[example] = TopK(ids_XK=ids.clone(), logq_XK=logq.clone(), rest_X=rest.clone())
    return [targets[i] for i in range(len(examples))]


def token_owners(piece: Piece) -> tuple[list[int], list[int]]:
    """Indices of the examples that the piece's learned tokens belong to, in packing order, and the
    number of tokens of each; the tokens of one example are contiguous."""
    order, counts = piece.sequence_RT[piece.learned_RT].unique_consecutive(return_counts=True)
    return order.tolist(), counts.tolist()


def _to_file(top_k: TopK) -> dict[str, Tensor]:
    return {"ids": top_k.ids_XK.to(torch.int32), "logq": top_k.logq_XK, "rest": top_k.rest_X}


def _from_file(tensors: dict[str, Tensor]) -> TopK:
    ids_XK = tensors["ids"].to(torch.int64)
    return TopK(ids_XK=ids_XK, logq_XK=tensors["logq"], rest_X=tensors["rest"])
