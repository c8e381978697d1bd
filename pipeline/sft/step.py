"""The SFT loss and metrics of one optimizer step: cross-entropy of the learned tokens.

Axes: R rows, T positions, M learned tokens, D width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from veriloop.data.sft_ids import EncodedExample
from veriloop.pipeline.cluster.deal import balanced_rows
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.device import brought
from veriloop.pipeline.model.logprob import likeliest
from veriloop.pipeline.model.packing import best_fit, lay_out
from veriloop.pipeline.model.policy import forward, hidden_states, score, score_hidden
from veriloop.pipeline.model.probe import output_head
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.training.accumulate import accumulated
from veriloop.pipeline.training.measurements import Tally


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """The packed rows of a micro-batch."""

    ids_RT: Tensor  # int64
    positions_RT: Tensor  # int64, 0 at the start of each sequence
    targets_RT: Tensor  # int64
    learned_RT: Tensor  # bool, loss mask of the targets
    sequence_RT: Tensor  # int64, index of the example in the batch; -1 on padding


def pieces(
    batch: Sequence[EncodedExample], trainer: TrainerConfig, ranks: int = 1
) -> Iterator[Piece]:
    """Pack the batch, `trainer.rows` rows to a piece, or fewer where that gives each of `ranks`
    one; no example is split between rows."""
    lengths = [len(example.ids) - 1 for example in batch]
    rows = best_fit(lengths, max(trainer.row, *lengths))
    count = balanced_rows(len(rows), trainer.rows, ranks)
    for first in range(0, len(rows), count):
        piece_rows = rows[first : first + count]
        packed = lay_out([example.ids for example in batch], piece_rows)
        flags = lay_out([example.learned for example in batch], piece_rows)  # shifted like ids
        yield Piece(
            ids_RT=packed.ids_RT,
            positions_RT=packed.positions_RT,
            targets_RT=packed.targets_RT,
            learned_RT=flags.targets_RT.bool(),
            sequence_RT=packed.sequence_RT,
        )


def gradient(
    model: Any,
    batch: Sequence[EncodedExample],
    trainer: TrainerConfig,
    ranks: Ranks = SINGLE,
) -> dict[str, float]:
    """Backward pass of -sum(log pi) / tokens of the whole step, whatever the packing.

    Metrics under TRL's names: loss and entropy in nats per learned token.
    """
    tokens = sum(example.targets for example in batch)

    def share(piece: Piece, tally: Tally) -> Tensor:
        logp_M, entropy_M = score(
            model,
            piece.ids_RT,
            piece.positions_RT,
            piece.targets_RT,
            piece.learned_RT,
            temperature=1.0,
            chunk=trainer.logits_chunk,
        )
        tally.add("entropy", entropy_M.detach().sum().double() / tokens)
        return -logp_M.sum() / tokens

    totals = accumulated(pieces(batch, trainer, ranks.count), share, ranks)
    return {"loss": totals["loss"], "entropy": totals["entropy"], "tokens": float(tokens)}


@torch.no_grad()
def measure(
    model: Any,
    examples: Sequence[EncodedExample],
    trainer: TrainerConfig,
    ranks: Ranks = SINGLE,
) -> dict[str, float]:
    """Loss in nats per learned token, and the share of tokens that the model ranks first."""
    tokens = sum(example.targets for example in examples)

    def share(piece: Piece, tally: Tally) -> Tensor:
        loss, right = forward(model, _measured, piece, trainer.logits_chunk)
        tally.add("right", right)
        return loss

    parts = pieces(examples, trainer, ranks.count)
    totals = accumulated(parts, share, ranks, backward=False)
    return {
        "eval_loss": totals["loss"] / tokens,
        "eval_mean_token_accuracy": totals["right"] / tokens,
    }


def _measured(model: Any, piece: Piece, chunk: int) -> tuple[Tensor, Tensor]:
    """The summed loss of a piece and the number of tokens that the model ranks first."""
    hidden_RTD = hidden_states(model.base_model, piece.ids_RT, piece.positions_RT)
    hidden_MD = hidden_RTD[piece.learned_RT]
    targets_M = brought(piece.targets_RT[piece.learned_RT], hidden_MD.device)
    logp_M, _ = score_hidden(model, hidden_MD, targets_M, temperature=1.0, chunk=chunk)
    right = likeliest(hidden_MD, output_head(model), chunk=chunk) == targets_M
    return -logp_M.double().sum(), right.sum()
