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
from veriloop.pipeline.preference import pointwise, reward_training
from veriloop.pipeline.preference.pointwise import LabelledAnswer
from veriloop.pipeline.preference.reward_training import (
    RewardLoop,
    accuracy,
    encode_rankings,
    gradient,
    measure,
    rewards_of,
)
from veriloop.pipeline.runs.console import StageConsole
from veriloop.pipeline.runs.record import StageRecord, read_metrics
from veriloop.pipeline.training.optimizer import Optimizer
from veriloop.pipeline.training.trainer import TrainerDeps


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
    losses, right = [], []
    for one in batch:
        rewards = answer_rewards(model, one, row=64)[None]
        right.append(accuracy(rewards))
        losses.append(ranking(rewards, rankings=6, form=form))
        losses.append(centring(rewards[:, 0], rewards[:, -1], weight=0.1, pairs=6))
    assert told[1][0]["accuracy"] == pytest.approx(sum(right) / 6)
    sum(losses).backward()
    assert sum(losses).item() == pytest.approx(told[64][0]["loss"], abs=1e-5)
    assert_close(take_gradient(model), told[64][1], atol=1e-5, rtol=1e-3)


def test_accuracy_is_over_all_pairs_of_a_ranking():
    assert accuracy(torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]])) == pytest.approx(
        (2 + 1.5) / 6
    )


@pytest.mark.parametrize("rows", [64, 4, 1])
def test_held_out_rankings_count_alike_whatever_their_lengths(model, batch, rows):
    by_ranking = [answer_rewards(model, one, row=64)[None] for one in batch]
    told = measure(model, batch, TrainerConfig(row=32, rows=rows))
    right = sum(accuracy(rewards) for rewards in by_ranking) / len(batch)
    margins = [(rewards[0, 0] - rewards[0, -1]).item() for rewards in by_ranking]
    assert told == {
        "accuracy": pytest.approx(right, abs=1e-6),
        "margin": pytest.approx(sum(margins) / len(batch), abs=1e-5),
    }


def test_rewards_are_those_of_each_answer_in_the_order_given(model, answer):
    answers = [answer(Random(n)) for n in range(7)]
    alone = [answer_rewards(model, [one], row=32).item() for one in answers]
    for rows in (64, 3):
        found = rewards_of(model, answers, TrainerConfig(row=32, rows=rows))
        assert found.tolist() == pytest.approx(alone, abs=1e-5) and not found.requires_grad


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [(64, [6, 6, 4]), (6, [6, 6, 4]), (5, [4, 2, 3, 3, 4]), (1, [2, 2, 2, 3, 3, 4])],
)
def test_a_micro_batch_has_as_many_answers_as_it_may_or_one_ranking(
    model, batch, monkeypatch, rows, sizes
):
    """Of three rankings of 2 answers, two of 3, and one of 4."""
    asked = []

    def noted(model, answers, *, row):
        asked.append(len(answers))
        return answer_rewards(model, answers, row=row)

    monkeypatch.setattr(reward_training, "answer_rewards", noted)
    gradient(model, batch, recipe(trainer={"row": 32, "rows": rows}))
    assert asked == sizes


@pytest.mark.parametrize("loss", ["pairwise", "pointwise"])
def test_the_loop_takes_the_steps_of_the_loss_that_the_recipe_names(
    model, batch, answer, tmp_path, loss
):
    asked = recipe(loss=loss, epochs=1, batch=99)
    labelled = [LabelledAnswer(answer=answer(Random(n)), good=n % 3 == 0) for n in range(6)]
    step, train = (pointwise.gradient, labelled) if loss == "pointwise" else (gradient, batch)
    want = step(model, train, asked)
    model.zero_grad()
    with StageRecord(tmp_path, tensorboard=False) as record:
        console = StageConsole("test", 1)
        deps = TrainerDeps(
            tokenizer=None, record=record, console=console, directory=tmp_path, start=tmp_path
        )
        RewardLoop(asked, train, model, deps).run(lambda: 0.0)
    (told,) = read_metrics(tmp_path / "metrics.jsonl")
    assert {name: told[name] for name in want} == pytest.approx(want, abs=1e-5)


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
