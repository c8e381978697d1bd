"""Pairs of sampled answers: right above wrong, best beside worst, none that was not judged."""

import math
from dataclasses import replace

import pytest
import torch

from veriloop.pipeline.config.preference import LabelConfig
from veriloop.pipeline.preference.examples import unpair
from veriloop.pipeline.preference.labelling import (
    by_rewards,
    by_verifiers,
    ids_of,
    pairs_of,
    read_round,
    refusal,
    write_round,
)
from veriloop.pipeline.rollouts.grade import open_judges
from veriloop.verifiers.http_json import EndpointError


@pytest.fixture
def group(graded):
    """Factory: graded rollouts of one group, their responses told apart by their first id."""

    def build(rewards, name="g", prompt=(1, 5)):
        found = [graded(prompt, (10 + i, 0), group=name) for i in range(len(rewards))]
        return [replace(g, reward=r) for g, r in zip(found, rewards, strict=True)]

    return build


def sides(pairs):
    return [(p.answers[0].completion[0], p.answers[1].completion[0]) for p in pairs]


def test_the_best_is_paired_with_the_worst_and_so_on_inwards(group):
    answers = group([1.0, 2.0, 0.0, 0.5, 1.5])
    assert sides(pairs_of(answers, LabelConfig(pairs=1))) == [(11, 12)]
    both = pairs_of(answers, LabelConfig(pairs=5))
    assert sides(both) == [(11, 12), (14, 13)] and [p.gap for p in both] == [2.0, 1.0]


def test_more_pairs_than_a_group_has_are_as_many_as_it_has(group):
    assert sides(pairs_of(group([1.0, 0.0]), LabelConfig(pairs=9))) == [(10, 11)]


def test_equal_rewards_make_no_pair(group):
    assert pairs_of(group([1.0, 1.0, 1.0]), LabelConfig(pairs=3)) == []
    assert sides(pairs_of(group([1.0, 1.0, 0.0, 1.0]), LabelConfig(pairs=3))) == [(10, 12)]
    assert pairs_of(group([1.0, 0.5]), LabelConfig(gap=0.5)) == []
    assert len(pairs_of(group([1.0, 0.5]), LabelConfig(gap=0.4))) == 1


def test_a_rollout_without_a_reward_is_skipped(group):
    assert sides(pairs_of(group([None, 1.0, None, 0.0]), LabelConfig(pairs=2))) == [(11, 13)]
    assert pairs_of(group([None, 1.0]), LabelConfig()) == []


def test_groups_are_not_mixed(group):
    mixed = [*group([1.0, 1.0], "a"), *group([0.0, 0.0], "b")]
    assert pairs_of(mixed, LabelConfig(pairs=2)) == []
    two = [*group([1.0, 0.0], "a"), *group([0.0, 1.0], "b")]
    assert sides(pairs_of([two[0], two[2], two[1], two[3]], LabelConfig())) == [(10, 11), (11, 10)]


def test_pairs_have_the_sampled_ids(graded):
    one = graded((1, 5), (7, 8), finish="length").rollout
    ids = ids_of(one)
    assert (ids.prompt, ids.completion, ids.segments) == ((1, 5), (7, 8), (0, 0))  # no EOS added


def test_kto_takes_the_answers_of_pairs_one_by_one(group):
    pairs = pairs_of(
        [*group([1.0, 0.0], "a"), *group([1.0, 0.0], "b", prompt=(1, 6))], LabelConfig()
    )
    examples = unpair(pairs)
    assert [e.label for e in examples] == [True, False, True, False]
    assert [e.answers[0] for e in examples] == [a for p in pairs for a in p.answers]
    assert all(e.answers[1].prompt == e.answers[0].prompt for e in examples)
    assert examples[0].answers[1].completion == pairs[1].answers[0].completion


def test_a_round_is_read_as_it_was_written(group, tmp_path, labelled_answers):
    for examples in (pairs_of(group([1.0, 0.0]), LabelConfig()), labelled_answers(5), []):
        write_round(tmp_path / "round.json", examples)
        assert read_round(tmp_path / "round.json") == examples


@pytest.mark.slow
def test_verifiers_reward_accuracy_and_format_as_the_recipe_weighs_them(graded):
    texts = {
        "<think>1</think><answer>1</answer>": 2.5,
        "<think>1</think><answer>2</answer>": 0.5,
        "<answer>1</answer>": 2.0,
        "2": 0.0,
    }
    rollouts = [graded(response=(1,)).rollout for _ in texts]
    rollouts = [replace(r, response=text) for r, text in zip(rollouts, texts, strict=True)]
    with open_judges(["number", "think_format"]) as pool:
        label = by_verifiers(LabelConfig(accuracy=2.0, format=0.5), pool)
        assert [g.reward for g in label(rollouts)] == list(texts.values())


def test_a_reward_model_reads_the_sampled_ids(graded):
    rollouts = [graded(response=(i, 0)).rollout for i in (3, 9)]
    label = by_rewards(lambda answers: [float(a.completion[0]) for a in answers])
    assert [g.reward for g in label(rollouts)] == [3.0, 9.0]
    assert [g.rollout for g in label(rollouts)] == rollouts


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_reward_that_is_not_finite_is_none(graded, value):
    rollouts = [graded(response=(i, 0)).rollout for i in (3, 9)]
    first, last = by_rewards(lambda _: [value, 0.5])(rollouts)
    assert first.reward is None and first.verdicts["reward"].status == "error"
    detail = first.verdicts["reward"].detail
    assert f"returned {value}" in detail and last.reward == 0.5
    assert ("more tokens than it has positions" in detail) is math.isnan(value)


def test_pairs_of_very_different_length_are_refused(graded):
    long, short = graded((1, 5), tuple(range(10, 19))), graded((1, 5), (7, 8, 9))
    pair = replace(long, reward=1.0), replace(short, reward=0.0)
    for ratio, why in ((0.0, ""), (3.0, ""), (2.9, "length"), (1.0, "length")):
        assert refusal(*pair, LabelConfig(length_ratio=ratio)) == why
        assert bool(pairs_of(pair, LabelConfig(length_ratio=ratio))) is not bool(why)
        assert refusal(pair[1], pair[0], LabelConfig(length_ratio=ratio)) == "gap"
    assert refusal(*pair, LabelConfig(gap=1.0)) == "gap"


def by_margins(margins):
    """A judge's labeller whose margins are given by the first ids of two answers."""
    from veriloop.pipeline.preference import labelling

    def margin(question, first, second, rubric, *, queries, seconds):
        result = margins[int(first), int(second)]
        if isinstance(result, Exception):
            raise result
        return result

    return labelling, margin


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 4])
def test_rewards_of_a_judge_are_the_least_squares_fit_of_its_margins(graded, monkeypatch, workers):
    margins = {(0, 1): 1.0, (0, 2): 2.0, (1, 2): 0.5, (3, 4): 2.0}
    module, margin = by_margins(margins)
    monkeypatch.setattr(module, "margin", margin)
    groups = ["a", "a", "a", "b", "b"]
    rollouts = [graded((1, 5), (i, 9), group=name).rollout for i, name in enumerate(groups)]
    label = module.by_judge(
        LabelConfig(by="judge", workers=workers), lambda rollout: str(rollout.response_ids[0])
    )
    rewards = [g.reward for g in label(rollouts)]
    design = torch.tensor([[1.0, -1, 0], [1, 0, -1], [0, 1, -1], [1, 1, 1]]).double()
    fit = torch.linalg.lstsq(design, torch.tensor([1.0, 2.0, 0.5, 0.0]).double()).solution
    assert rewards[:3] == pytest.approx(fit.tolist())
    assert rewards[3] - rewards[4] == 2.0  # of two answers the difference is the margin itself


def test_answers_of_a_failed_comparison_have_an_error_and_no_reward(graded, monkeypatch):
    margins = dict.fromkeys(((0, 1), (0, 2), (0, 3), (1, 2), (1, 3)), 1.0)
    module, margin = by_margins(margins | {(2, 3): EndpointError("HTTP 503")})
    monkeypatch.setattr(module, "margin", margin)
    rollouts = [graded((1, 5), (i, 9)).rollout for i in range(4)]
    label = module.by_judge(LabelConfig(by="judge"), lambda rollout: str(rollout.response_ids[0]))
    labelled = label(rollouts)
    assert [g.reward for g in labelled] == [0.75, 0.25, None, None]
    assert [g.verdicts["judge"].status for g in labelled[2:]] == ["error", "error"]
    assert labelled[2].verdicts["judge"].detail == "HTTP 503"
    assert sides(pairs_of(labelled, LabelConfig(by="judge", pairs=2))) == [(0, 1)]
