"""Point-wise training of a reward model on answers that are labelled good or bad."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from veriloop.data.preference_ids import EncodedAnswer, encode
from veriloop.data.preferences import Ranked, Row
from veriloop.pipeline.cluster.deal import balanced_rows, counted, gathered_values
from veriloop.pipeline.config.preference import RewardModelRecipe
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.losses.reward_model import (
    auc,
    label_accuracy,
    pointwise,
    step_metrics,
)
from veriloop.pipeline.model.scalar_head import answer_rewards
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.preference.examples import fits, to_labelled
from veriloop.pipeline.training.accumulate import accumulated
from veriloop.pipeline.training.measurements import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledAnswer:
    """An answer as ids, and its label."""

    answer: EncodedAnswer
    good: bool


def encode_answers(
    rows: Sequence[Row], tokenizer: Any, ends: Sequence[int], limits: tuple[int, int]
) -> tuple[list[LabelledAnswer], int]:
    """Labelled rows, and both answers of pairs, as ids; and how many exceed `limits`, the tokens of
    a prompt and of an answer. Raises RecipeError for rankings, which have no labels, and for a row
    that cannot be encoded."""
    if any(isinstance(row, Ranked) for row in rows):
        raise RecipeError(
            "loss: pointwise learns from labels (prompt, completion, label) or from pairs, not "
            "from rankings (prompt, ranked), whose best answer may be a bad one"
        )
    answers: list[LabelledAnswer] = []
    for number, row in enumerate(to_labelled(rows), 1):
        try:
            answer = encode(row.prompt, row.completion, tokenizer, ends)
        except ValueError as mistake:
            raise RecipeError(f"{row.place or f'answer {number}'}: {mistake}") from mistake
        answers.append(LabelledAnswer(answer=answer, good=row.label))
    short = [item for item in answers if fits(item.answer, *limits)]
    return short, len(answers) - len(short)


def gradient(
    model: Any, batch: Sequence[LabelledAnswer], recipe: RewardModelRecipe, ranks: Ranks = SINGLE
) -> dict[str, float]:
    """Backward pass over micro-batches; metrics as those of rankings."""
    groups = _groups(batch, recipe.trainer, ranks.count)
    mine: list[Tensor] = []

    def share(group: Sequence[LabelledAnswer], _: Tally) -> Tensor:
        rewards_N = _rewards(model, group, recipe.trainer)
        mine.append(rewards_N.detach())
        return pointwise(rewards_N, _labels(group, rewards_N), answers=len(batch))

    totals = accumulated(groups, share, ranks)
    rewards_N = torch.cat(gathered_values(ranks, [len(group) for group in groups], mine))
    accuracy = label_accuracy(rewards_N, _labels(batch, rewards_N))
    return step_metrics(totals["loss"], accuracy, rewards_N)


@torch.no_grad()
def measure(
    model: Any, held_out: Sequence[LabelledAnswer], trainer: TrainerConfig, ranks: Ranks = SINGLE
) -> dict[str, float]:
    """Share of held-out answers on the right side of 0, area under the ROC curve, and the loss."""
    groups = _groups(held_out, trainer, ranks.count)
    mine = [_rewards(model, group, trainer) for group, _ in counted(ranks, groups)]
    rewards_N = torch.cat(gathered_values(ranks, [len(group) for group in groups], mine))
    good_N = _labels(held_out, rewards_N)
    return {
        "accuracy": label_accuracy(rewards_N, good_N),
        "auc": auc(rewards_N, good_N),
        "loss": pointwise(rewards_N, good_N, answers=len(held_out)).item(),
    }


def _groups(
    batch: Sequence[LabelledAnswer], trainer: TrainerConfig, ranks: int
) -> list[Sequence[LabelledAnswer]]:
    """Micro-batches in order, so that their rewards are those of the batch in order."""
    size = balanced_rows(len(batch), trainer.rows, ranks)
    return [batch[i : i + size] for i in range(0, len(batch), size)]


def _rewards(model: Any, group: Sequence[LabelledAnswer], trainer: TrainerConfig) -> Tensor:
    return answer_rewards(model, [item.answer for item in group], row=trainer.row)


def _labels(group: Sequence[LabelledAnswer], rewards_N: Tensor) -> Tensor:
    """Labels beside the rewards, on their device."""
    return torch.tensor([item.good for item in group], device=rewards_N.device)
