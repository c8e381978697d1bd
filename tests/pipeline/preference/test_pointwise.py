"""Point-wise steps of the reward model: any split, labels from both layouts, what is learned."""

from random import Random

import pytest
import torch
from torch.testing import assert_close

from tests.gradients import take_gradient
from veriloop.data.preferences import Labelled, Pair, Ranked
from veriloop.pipeline.config.preference import RewardModelRecipe
from veriloop.pipeline.config.sections import OptimizerConfig, TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.scalar_head import answer_rewards
from veriloop.pipeline.preference.pointwise import (
    LabelledAnswer,
    encode_answers,
    gradient,
    measure,
)
from veriloop.pipeline.training.optimizer import Optimizer


def recipe(**changes):
    values = {"name": "n", "start": "s", "optimizer": {"learning_rate": 1e-3}}
    return RewardModelRecipe.model_validate(values | {"loss": "pointwise"} | changes)


@pytest.fixture
def batch(answer):
    random = Random(0)
    return [LabelledAnswer(answer=answer(random), good=n % 3 == 0) for n in range(7)]


def test_any_split_has_the_gradient_of_torchs_own_cross_entropy(model, batch):
    told = {}
    for rows in (64, 2, 1):
        numbers = gradient(model, batch, recipe(trainer={"row": 32, "rows": rows}))
        told[rows] = numbers, take_gradient(model)
    for rows in (2, 1):
        assert told[rows][0] == pytest.approx(told[64][0], abs=1e-5)
        assert_close(told[rows][1], told[64][1], atol=1e-5, rtol=1e-3)
    rewards = answer_rewards(model, [item.answer for item in batch], row=64)
    labels = torch.tensor([float(item.good) for item in batch])
    loss = torch.nn.functional.binary_cross_entropy_with_logits(rewards, labels)
    loss.backward()
    assert loss.item() == pytest.approx(told[64][0]["loss"], abs=1e-5)
    assert_close(take_gradient(model), told[64][1], atol=1e-5, rtol=1e-3)
    right = ((rewards > 0) == labels.bool()).float().mean().item()
    assert told[1][0]["accuracy"] == pytest.approx(right)
    assert told[1][0]["mean_reward"] == pytest.approx(rewards.mean().item(), abs=1e-5)


def test_it_learns_labels_and_measures_them_in_any_split(model, batch):
    before = measure(model, batch, TrainerConfig(row=32, rows=8))
    optimizer = Optimizer(model, OptimizerConfig(learning_rate=3e-3))
    for step in range(20):
        gradient(model, batch, recipe())
        optimizer.step(0.0, step)
    after = measure(model, batch, TrainerConfig(row=32, rows=8))
    assert after["accuracy"] == after["auc"] == 1.0
    assert before["accuracy"] < 1.0 and after["loss"] < before["loss"]
    assert measure(model, batch, TrainerConfig(row=32, rows=3)) == pytest.approx(after, abs=1e-5)


def test_labelled_rows_and_both_answers_of_pairs_are_encoded(tokenizer):
    rows = [
        Labelled(prompt="p", completion="a", label=True),
        Labelled(prompt="p", completion="First 3", label=False),
    ]
    answers, dropped = encode_answers(rows, tokenizer, (2,), (99, 99))
    assert [item.good for item in answers] == [True, False] and dropped == 0
    pairs = [Pair(prompt="p", chosen="a", rejected="First 3")]
    assert encode_answers(pairs, tokenizer, (2,), (99, 99))[0] == answers
    short, dropped = encode_answers(rows, tokenizer, (2,), (99, 2))
    assert short == answers[:1] and dropped == 1
    with pytest.raises(RecipeError, match=r"answer 1: .*end-of-sequence id"):
        encode_answers(
            [Labelled(prompt="p", completion="a<eos>b", label=True)], tokenizer, (2,), (99, 99)
        )


def test_rankings_have_no_labels(tokenizer):
    with pytest.raises(RecipeError, match="not from rankings"):
        encode_answers([Ranked(prompt="p", answers=("a", "b", "c"))], tokenizer, (2,), (99, 99))


@pytest.mark.parametrize(
    "changes",
    [{"kind": "ranked"}, {"ranking": "plackett_luce"}, {"centring": 0.1}, {"anchors": "a.jsonl"}],
)
def test_what_only_orders_read_is_refused(changes):
    (name,) = changes
    with pytest.raises(ValueError, match=f"{name}=.* is not read by loss: pointwise"):
        recipe(**changes)
