"""Reward-model training on ranked answers: encoding, loss and metrics of an optimizer step.

Axes: Q rankings of K answers in a micro-batch, from the best to the worst.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from veriloop.data.preference_ids import EncodedAnswer, encode
from veriloop.data.preferences import Labelled, Pair, Row
from veriloop.pipeline.cluster.deal import balanced_rows, counted, gathered_values
from veriloop.pipeline.config.preference import RewardModelRecipe
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.losses.reward_model import centring, pair_accuracy, step_metrics
from veriloop.pipeline.losses.reward_model import ranking as ranking_loss
from veriloop.pipeline.model.scalar_head import answer_rewards
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.preference import pointwise
from veriloop.pipeline.preference.examples import fits
from veriloop.pipeline.training.accumulate import accumulated
from veriloop.pipeline.training.epoch_loop import EpochLoop
from veriloop.pipeline.training.measurements import Tally
from veriloop.pipeline.training.trainer import TrainerDeps

Ranking = tuple[EncodedAnswer, ...]  # answers to one prompt, best first


def encode_rankings(
    rows: Sequence[Row], tokenizer: Any, ends: Sequence[int], limits: tuple[int, int]
) -> tuple[list[Ranking], int]:
    """Rows as ids, and how many exceed `limits`, the tokens of a prompt and of an answer.

    Raises RecipeError, with the row's place, for a single label or a row that cannot be encoded.
    """
    rankings: list[Ranking] = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, Labelled):
            raise RecipeError(
                f"{row.place or f'row {number}'}: loss: pairwise learns from pairs (prompt, "
                "chosen, rejected) or rankings (prompt, ranked), not from single labels; set loss: "
                "pointwise"
            )
        texts = (row.chosen, row.rejected) if isinstance(row, Pair) else row.answers
        try:
            rankings.append(tuple(encode(row.prompt, text, tokenizer, ends) for text in texts))
        except ValueError as mistake:
            raise RecipeError(f"{row.place or f'row {number}'}: {mistake}") from mistake
    short = [ranking for ranking in rankings if all(fits(answer, *limits) for answer in ranking)]
    return short, len(rankings) - len(short)


class RewardLoop(EpochLoop[Any]):
    """Trains a classifier on rankings, or point-wise on labelled answers."""

    def __init__(
        self, recipe: RewardModelRecipe, train: Sequence[Any], model: Any, deps: TrainerDeps
    ) -> None:
        step = pointwise.gradient if recipe.loss == "pointwise" else gradient
        super().__init__(
            recipe,
            train,
            model,
            deps,
            lambda batch: deps.ranks.together(step, model, batch, recipe),
            purpose="rewards",
        )


def gradient(
    model: Any, batch: Sequence[Ranking], recipe: RewardModelRecipe, ranks: Ranks = SINGLE
) -> dict[str, float]:
    """Backward pass over micro-batches of rankings of equal length; metrics under TRL's names."""
    groups = _groups(batch, recipe.trainer, ranks.count)
    mine: list[Tensor] = []

    def share(group: Sequence[Ranking], _: Tally) -> Tensor:
        rewards_QK = _rewards(model, group, recipe.trainer)
        loss = ranking_loss(rewards_QK, rankings=len(batch), form=recipe.ranking)
        ends = rewards_QK[:, 0], rewards_QK[:, -1]
        mine.append(rewards_QK.detach())
        return loss + centring(*ends, weight=recipe.centring, pairs=len(batch))

    totals = accumulated(groups, share, ranks)
    rewards_by_group = _of_all(ranks, groups, mine)
    right = sum(accuracy(rewards_QK) * len(rewards_QK) for rewards_QK in rewards_by_group)
    rewards = torch.cat([rewards_QK.flatten() for rewards_QK in rewards_by_group])
    return step_metrics(totals["loss"], right / len(batch), rewards)


@torch.no_grad()
def measure(
    model: Any, held_out: Sequence[Ranking], trainer: TrainerConfig, ranks: Ranks = SINGLE
) -> dict[str, float]:
    """Share of held-out pairs in the right order, and mean margin of the best over the worst.

    A ranking of K answers counts with the share of its K (K - 1) / 2 pairs.
    """
    right, margin = 0.0, 0.0
    groups = _groups(held_out, trainer, ranks.count)
    mine = [_rewards(model, group, trainer) for group, _ in counted(ranks, groups)]
    for group, rewards_QK in zip(groups, _of_all(ranks, groups, mine), strict=True):
        right += accuracy(rewards_QK) * len(group)
        margin += (rewards_QK[:, 0] - rewards_QK[:, -1]).sum().item()
    return {"accuracy": right / len(held_out), "margin": margin / len(held_out)}


@torch.no_grad()
def rewards_of(
    model: Any, answers: Sequence[EncodedAnswer], trainer: TrainerConfig, ranks: Ranks = SINGLE
) -> Tensor:
    """The reward of each answer, [B]."""
    parts = [answers[i : i + trainer.rows] for i in range(0, len(answers), trainer.rows)]
    mine = [answer_rewards(model, part, row=trainer.row) for part, _ in counted(ranks, parts)]
    return torch.cat(gathered_values(ranks, [len(part) for part in parts], mine))


def accuracy(rewards_QK: Tensor) -> float:
    """Share of the rankings' pairs that are in the right order; a tie counts half."""
    k = rewards_QK.shape[1]
    better, worse = torch.triu_indices(k, k, offset=1)
    return pair_accuracy(rewards_QK[:, better].flatten(), rewards_QK[:, worse].flatten())


def _groups(batch: Sequence[Ranking], trainer: TrainerConfig, ranks: int) -> list[list[Ranking]]:
    """Micro-batches of rankings with equally many answers, `trainer.rows` answers at most, or fewer
    where that gives each of `ranks` one.

    A longer ranking forms its own micro-batch.
    """
    by_length: dict[int, list[Ranking]] = {}
    for ranking in batch:
        by_length.setdefault(len(ranking), []).append(ranking)
    groups: list[list[Ranking]] = []
    for k, same in by_length.items():
        size = balanced_rows(len(same), max(1, trainer.rows // k), ranks)
        groups += [same[i : i + size] for i in range(0, len(same), size)]
    return groups


def _rewards(model: Any, group: Sequence[Ranking], trainer: TrainerConfig) -> Tensor:
    answers = [answer for ranking in group for answer in ranking]
    return answer_rewards(model, answers, row=trainer.row).reshape(len(group), -1)


def _of_all(
    ranks: Ranks, groups: Sequence[Sequence[Ranking]], mine: Sequence[Tensor]
) -> list[Tensor]:
    """The rewards of every group, [Q, K] each, from those of this rank's deal."""
    sizes = [sum(map(len, group)) for group in groups]
    flat = gathered_values(ranks, sizes, [rewards_QK.flatten() for rewards_QK in mine])
    return [rewards.view(len(group), -1) for rewards, group in zip(flat, groups, strict=True)]
