"""Steps of a text, found again in the tokens that wrote it."""

from dataclasses import replace

import pytest

from veriloop.pipeline.rl.learner import token_steps
from veriloop.verifiers import unit_chain


@pytest.fixture
def written(graded, tokenizer):
    """Function: a graded response of this text, with the scores of its steps."""

    def write(text, reward=1.0):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        g = graded((1,), tuple(ids), reward=reward, said=text)
        return replace(g, steps=tuple(unit_chain.step_scores(g.rollout.problem, text)))

    return write


def test_each_step_ends_at_the_token_that_holds_its_last_character(written, tokenizer):
    text = "3 + 4 = 7. 7 - 5 = 3. So 2"
    one = written(text, reward=2.0)
    found = token_steps(one, tokenizer)
    ids = one.rollout.response_ids
    assert [score for _, score in found] == [1.0, 0.0, 2.0]
    assert found[-1][0] == len(ids) - 1
    for (end, _), wanted in zip(found, ("3 + 4 = 7", "7 - 5 = 3"), strict=False):
        assert tokenizer.decode(ids[: end + 1]).startswith(text[: text.index(wanted) + len(wanted)])
        before = tokenizer.decode(ids[:end])
        assert len(before) < text.index(wanted) + len(wanted)


def test_the_last_token_earns_the_reward_even_where_a_step_ends_there(written, tokenizer):
    found = token_steps(written("1 + 1 = 2", reward=0.5), tokenizer)
    assert [score for _, score in found] == [0.5]


def test_without_steps_the_reward_is_the_only_one(written, tokenizer):
    one = written("no sums here", reward=0.0)
    assert one.steps == ()
    assert token_steps(one, tokenizer) == [(len(one.rollout.response_ids) - 1, 0.0)]


def test_a_rollout_nobody_could_judge_has_no_steps(written, tokenizer):
    assert token_steps(written("1 + 1 = 2", reward=None), tokenizer) is None


def test_an_empty_response_has_none_either(graded, tokenizer):
    assert token_steps(replace(graded((1,), ()), steps=()), tokenizer) == []


def test_a_response_whose_steps_have_no_scores_has_none(written, tokenizer):
    assert token_steps(replace(written("1 + 1 = 2"), steps=None), tokenizer) is None
