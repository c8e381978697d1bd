"""The reward model's step: rankings of any lengths, any split, and the accuracy of their pairs."""

from random import Random

import pytest
import torch
from torch.testing import assert_close

from tests.gradients import take_gradient
from veriloop.data.preferences import Labelled, Pair, Ranked
from veriloop.pipeline.config.preference import RewardModelRecipe
from veriloop.pipeline.config.sections import OptimizerConfig, TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.losses.reward_model import centring, ranking
from veriloop.pipeline.model.scalar_head import answer_rewards
from veriloop.pipeline.preference.reward_training import (
    accuracy,
    encode_rankings,
    gradient,
    measure,
)
from veriloop.pipeline.training.optimizer import Optimizer


def recipe(**changes):
    values = {"name": "n", "start": "s", "optimizer": {"learning_rate": 1e-3}}
    return RewardModelRecipe.model_validate(values | changes)


@pytest.fixture
def batch(answer):
    random = Random(0)
    return [tuple(answer(random) for _ in range(k)) for k in (2, 3, 2, 4, 3, 2)]


@pytest.mark.parametrize("form", ["pairs", "plackett_luce"])
def test_any_split_has_the_gradient_of_the_losses_by_their_names(model, batch, form):
    told = {}
    for rows in (64, 1):
        asked = recipe(ranking=form, centring=0.1, trainer={"row": 32, "rows": rows})
        told[rows] = gradient(model, batch, asked), take_gradient(model)
    assert told[1][0] == pytest.approx(told[64][0], abs=1e-5)
    assert_close(told[1][1], told[64][1], atol=1e-5, rtol=1e-3)
    losses = []
    for one in batch:
        rewards = answer_rewards(model, one, row=64)[None]
        losses.append(ranking(rewards, rankings=6, form=form))
        losses.append(centring(rewards[:, 0], rewards[:, -1], weight=0.1, pairs=6))
    sum(losses).backward()
    assert sum(losses).item() == pytest.approx(told[64][0]["loss"], abs=1e-5)
    assert_close(take_gradient(model), told[64][1], atol=1e-5, rtol=1e-3)


def test_accuracy_is_over_all_pairs_of_a_ranking():
    assert accuracy(torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]])) == pytest.approx(
        (2 + 1.5) / 6
    )


@pytest.mark.slow
def test_it_learns_what_it_is_shown(model, batch):
    trainer = TrainerConfig(row=32, rows=8)
    before = measure(model, batch, trainer)
    optimizer = Optimizer(model, OptimizerConfig(learning_rate=3e-3))
    for step in range(15):
        numbers = gradient(model, batch, recipe())
        optimizer.step(0.0, step)
    after = measure(model, batch, trainer)
    assert after["accuracy"] > before["accuracy"] and after["accuracy"] > 0.9
    assert after["margin"] > before["margin"]
    assert numbers["min_reward"] <= numbers["mean_reward"] <= numbers["max_reward"]


def test_pairs_and_rankings_are_encoded_and_labels_refused(tokenizer):
    rows = [
        Pair(prompt="p", chosen="a", rejected="First 3"),
        Ranked(prompt="p", answers=("a", "b", "c")),
    ]
    found, dropped = encode_rankings(rows, tokenizer, (2,), (99, 99))
    assert [len(r) for r in found] == [2, 3] and dropped == 0
    found, dropped = encode_rankings(rows, tokenizer, (2,), (99, 2))
    assert [len(r) for r in found] == [3] and dropped == 1
    with pytest.raises(RecipeError, match="row 1: loss: pairwise learns from pairs"):
        encode_rankings(
            [Labelled(prompt="p", completion="a", label=True)], tokenizer, (2,), (99, 99)
        )
    with pytest.raises(RecipeError, match=r"row 1: .*end-of-sequence id"):
        encode_rankings(
            [Pair(prompt="p", chosen="a<eos>b", rejected="c")], tokenizer, (2,), (99, 99)
        )
