"""What engines are asked and what they return: seeds of responses, responses that go on."""

import pytest

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.sampling.sampler import (
    Completion,
    Sampling,
    Unfinished,
    continued,
    require_room,
)


@pytest.mark.parametrize("seed", [0, 7, 5 * 2**60])
def test_responses_have_seeds_that_follow_each_other_within_63_bits(seed):
    asked = Sampling(per_prompt=1, temperature=1.0, max_tokens=1, seed=seed)
    assert [asked.seed_of(number) for number in (0, 1, 999)] == [
        (seed * 1_000_003 + number) % 9223372036854775808 for number in (0, 1, 999)
    ]


def test_nothing_is_cut_unless_a_share_of_probability_is_named():
    assert Sampling(per_prompt=1, temperature=1.0, max_tokens=1, seed=0).top_p == 1


def test_a_response_that_went_on_has_its_earlier_tokens_and_the_new_finish():
    begun = Unfinished(prompt=(1,), ids=(5, 6), logp=(-0.5, -0.6), until=4)
    added = Completion(ids=(7,), logp=(-0.7,), finish="stop")
    whole = Completion(ids=(5, 6, 7), logp=(-0.5, -0.6, -0.7), finish="stop")
    assert continued(begun, added) == whole


def test_a_prompt_may_fill_the_room_that_the_answer_leaves():
    require_room([(1,) * 6, (1,)], 4, 10)
    require_room([(1,) * 99], 4, None)
    with pytest.raises(RecipeError, match=r"prompt 1 has 7 tokens.* exceeds the engine's 10"):
        require_room([(1,) * 6, (1,) * 7], 4, 10)
