"""Steps of a text, found again in the tokens that wrote it."""

from dataclasses import replace

import pytest

from veriloop.pipeline.rl.learner import character_offsets, token_steps
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
    assert [score for _, score in found] == [1.0, 0.0]
    for (end, _), wanted in zip(found, ("3 + 4 = 7", "7 - 5 = 3"), strict=True):
        assert tokenizer.decode(ids[: end + 1]).startswith(text[: text.index(wanted) + len(wanted)])
        before = tokenizer.decode(ids[:end])
        assert len(before) < text.index(wanted) + len(wanted)


def test_a_step_that_ends_with_the_response_has_its_own_score_and_not_the_reward(
    written, tokenizer
):
    one = written("1 + 1 = 2", reward=0.5)
    assert token_steps(one, tokenizer) == [(len(one.rollout.response_ids) - 1, 1.0)]


def test_a_response_without_steps_has_none(written, tokenizer):
    one = written("no sums here", reward=0.0)
    assert one.steps == () and token_steps(one, tokenizer) == []


def test_a_rollout_nobody_could_judge_has_no_steps(written, tokenizer):
    assert token_steps(written("1 + 1 = 2", reward=None), tokenizer) is None


def test_an_empty_response_has_none_either(graded, tokenizer):
    assert token_steps(replace(graded((1,), ()), steps=()), tokenizer) == []


def test_a_response_whose_steps_have_no_scores_has_none(written, tokenizer):
    assert token_steps(replace(written("1 + 1 = 2"), steps=None), tokenizer) is None


TEXT = "Let x = 3 + 4 = 7 . 数学很难 é 😀 👩‍👩‍👧 Wait , 7 - 5 = 2 . "


def test_characters_are_complete_at_the_token_with_their_last_byte(tokenizer):
    ids = tuple(tokenizer(TEXT * 3, add_special_tokens=False)["input_ids"])

    def text(count):
        return tokenizer.decode(ids[:count], clean_up_tokenization_spaces=False)

    wanted = [len(text(n).rstrip("\ufffd")) for n in range(1, len(ids) + 1)]
    assert character_offsets(ids, tokenizer) == wanted
    assert wanted[-1] == len(TEXT) * 3 < len(ids)
    assert character_offsets((), tokenizer) == []


def test_bytes_that_make_no_character_are_counted_as_they_are_decoded(tokenizer):
    half = tokenizer("数", add_special_tokens=False)["input_ids"][0]
    ids = (half,) * 100
    offsets = character_offsets(ids, tokenizer)
    assert offsets == sorted(offsets) and offsets[-1] == len(tokenizer.decode(ids))


class Decodes:
    """Counts the tokens that a tokenizer decodes, and refuses the clean-up of spaces."""

    def __init__(self, tokenizer):
        self.tokenizer, self.tokens = tokenizer, 0

    def decode(self, ids, *, clean_up_tokenization_spaces):
        assert clean_up_tokenization_spaces is False
        self.tokens += len(ids)
        return self.tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def test_the_work_is_in_proportion_to_the_length_whatever_the_number_of_steps(written, tokenizer):
    text = "3 + 4 = 7. " * 100
    steps = tuple((end, 1.0) for end in range(9, len(text), 11))
    one, counted = replace(written(text), steps=steps), Decodes(tokenizer)
    assert len(token_steps(one, counted)) == len(steps) == 100
    assert counted.tokens < 30 * len(one.rollout.response_ids)
