"""What a reward model learns: batches of ranked answers, one optimizer step each.

Axes: Q rankings of K answers in a micro-batch, from the best to the worst.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from data.preference_ids import Ids, encode
from data.preferences import Labelled, Pair, Row
from pipeline.config import TrainerConfig
from pipeline.epochs import EpochLoop, EpochTools
from pipeline.failures import RecipeError
from pipeline.losses.reward_model import centring, pair_accuracy, ranking
from pipeline.preference.scalar_head import answer_rewards
from pipeline.preference_config import RewardModelRecipe
from pipeline.tally import Tally

Ranking = tuple[Ids, ...]  # answers to one prompt, best first


def rankings(
    rows: Sequence[Row], tokenizer: Any, ends: Sequence[int], longest: tuple[int, int]
) -> tuple[list[Ranking], int]:
    """Rows as ids, and how many were left out because a prompt or an answer exceeds `longest`.

    Raises RecipeError for a row that cannot be encoded, or that ranks nothing.
    """
    found: list[Ranking] = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, Labelled):
            raise RecipeError(
                f"row {number}: a reward model learns from pairs (prompt, chosen, rejected) or "
                "rankings (prompt, ranked), not from single labels"
            )
        texts = (row.chosen, row.rejected) if isinstance(row, Pair) else row.answers
        try:
            found.append(tuple(encode(row.prompt, text, tokenizer, ends) for text in texts))
        except ValueError as mistake:
            raise RecipeError(f"row {number}: {mistake}") from mistake
    prompt, completion = longest
    kept = [
        r
        for r in found
        if all(len(a.prompt) <= prompt and len(a.completion) <= completion for a in r)
    ]
    return kept, len(found) - len(kept)


class RewardLoop(EpochLoop[Ranking]):
    """Trains a classifier on rankings as `recipe` says."""

    def __init__(
        self, recipe: RewardModelRecipe, train: Sequence[Ranking], model: Any, tools: EpochTools
    ) -> None:
        super().__init__(
            recipe,
            train,
            model,
            tools,
            lambda batch: gradient(model, batch, recipe),
            purpose="rewards",
        )


def gradient(model: Any, batch: Sequence[Ranking], recipe: RewardModelRecipe) -> dict[str, float]:
    """Backward over micro-batches of rankings of one length; metrics under TRL's names."""
    tally = Tally()
    seen: list[Tensor] = []
    for group in _alike(batch, recipe.trainer):
        rewards_QK = _rewards(model, group, recipe.trainer)
        loss = ranking(rewards_QK, rankings=len(batch), form=recipe.ranking)
        ends = rewards_QK[:, 0], rewards_QK[:, -1]
        loss = loss + centring(*ends, weight=recipe.centring, pairs=len(batch))
        loss.backward()
        tally.add("loss", loss)
        seen.append(rewards_QK.detach())
    right = sum(accuracy(rewards_QK) * len(rewards_QK) for rewards_QK in seen)
    rewards = torch.cat([rewards_QK.flatten() for rewards_QK in seen])
    return {
        "loss": tally.told()["loss"],
        "accuracy": right / len(batch),
        "mean_reward": rewards.mean().item(),
        "min_reward": rewards.min().item(),
        "max_reward": rewards.max().item(),
    }


@torch.no_grad()
def measure(model: Any, held_out: Sequence[Ranking], trainer: TrainerConfig) -> dict[str, float]:
    """Share of held-out pairs (of a ranking: of all its pairs) that are in the right order, and
    the mean lead of the best answer over the worst."""
    right, lead = 0.0, 0.0
    for group in _alike(held_out, trainer):
        rewards_QK = _rewards(model, group, trainer)
        right += accuracy(rewards_QK) * len(group)
        lead += (rewards_QK[:, 0] - rewards_QK[:, -1]).sum().item()
    return {"accuracy": right / len(held_out), "margin": lead / len(held_out)}


def accuracy(rewards_QK: Tensor) -> float:
    """Share of the pairs within the rankings that are in the right order, a tie half of one."""
    k = rewards_QK.shape[1]
    better, worse = torch.triu_indices(k, k, offset=1)
    return pair_accuracy(rewards_QK[:, better].flatten(), rewards_QK[:, worse].flatten())


def _alike(batch: Sequence[Ranking], trainer: TrainerConfig) -> list[list[Ranking]]:
    """Groups of rankings with as many answers each, of at most `trainer.rows` answers together
    (and one ranking at least)."""
    by_length: dict[int, list[Ranking]] = {}
    for one in batch:
        by_length.setdefault(len(one), []).append(one)
    groups: list[list[Ranking]] = []
    for k, same in by_length.items():
        size = max(1, trainer.rows // k)
        groups += [same[i : i + size] for i in range(0, len(same), size)]
    return groups


def _rewards(model: Any, group: Sequence[Ranking], trainer: TrainerConfig) -> Tensor:
    answers = [answer for one in group for answer in one]
    return answer_rewards(model, answers, row=trainer.row).reshape(len(group), -1)
