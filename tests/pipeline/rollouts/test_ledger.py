"""The record of begun turns: what is admitted, how far it goes, and what a checkpoint keeps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop.pipeline.rollouts.ledger import (
    OpenResponse,
    OpenTurn,
    admitted,
    digest,
    longest,
    pack,
    pause_at,
    unpack,
)
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.sampling.sampler import Completion


@given(
    ahead=st.integers(1, 6),
    steps=st.integers(1, 20),
    limit=st.integers(6, 40),
    expected=st.integers(1, 40),
)
def test_every_turn_is_begun_and_ended_once_in_order_and_within_the_bound(
    ahead, steps, limit, expected
):
    expected = min(expected, limit)
    open_turns, begun, tokens = [], {}, {}
    for step in range(steps):
        weights = max(step - 1, 0)  # updates that the weights have had which sample beside one
        turns = admitted(open_turns, step, ahead=ahead, steps=steps, responses=2, expected=expected)
        # AReaL's rule: groups begun <= (v + S + 1) turns' groups
        assert turns[-1].step + 1 <= weights + ahead + 1
        for later, turn in enumerate(turns):
            begun.setdefault(turn.step, weights)
            so_far = tokens.get(turn.step, 0)
            if so_far < limit:
                tokens[turn.step] = pause_at(so_far, later + 1, turn.expected, limit)
                assert so_far < tokens[turn.step] <= limit
        assert turns[0].step == step and tokens[step] == limit
        assert step - begun[step] <= ahead
        open_turns = turns[1:]
    assert not open_turns and list(begun) == list(range(steps))


def test_in_the_long_run_an_answer_has_equal_parts():
    begun = (0, 4), (28, 3), (84, 1)
    parts = [pause_at(tokens, parts, 112, 112) - tokens for tokens, parts in begun]
    assert parts == [28, 28, 28]


def test_parts_are_equal_for_the_longest_answer_that_is_expected():
    ends = [pause_at(tokens, parts, 40, 112) for tokens, parts in ((0, 4), (10, 3), (20, 2))]
    assert ends == [10, 20, 30]
    assert pause_at(30, 1, 40, 112) == 112  # the last part completes it, however long it is
    assert pause_at(40, 2, 40, 112) == 76  # longer than expected: equal parts of what may follow


def test_the_longest_answer_is_that_with_the_most_tokens():
    responses = [OpenResponse(ids=tuple(range(n))) for n in (3, 8, 0)]
    assert longest(OpenTurn(step=1, responses=tuple(responses), expected=4)) == 8


@pytest.mark.parametrize("known", [[3], [5, 6], [4, 6], [4, 5, 6]])
def test_turns_that_are_not_those_due_are_refused(known):
    turns = [OpenTurn(step=step, responses=(), expected=9) for step in known]
    with pytest.raises(ValueError, match=r"are open before turn 4, with rollout\.ahead=2"):
        admitted(turns, 4, ahead=2, steps=9, responses=1, expected=9)


def test_a_response_grows_by_what_each_version_added():
    first = OpenResponse().after(Completion(ids=(5, 6), logp=(-1.0, -2.0), finish="length"), 3, 4)
    assert first == OpenResponse(ids=(5, 6), logp=(-1.0, -2.0), versions=(3, 3))
    whole = Completion(ids=(5, 6, 7, 8), logp=(-1.0, -2.0, -0.5, -0.1), finish="length")
    last = first.after(whole, 8, 4)
    assert (last.versions, last.finish) == ((3, 3, 8, 8), "length")
    ended = first.after(Completion(ids=(5, 6, 0), logp=(-1.0, -2.0, -3.0), finish="stop"), 8, 4)
    assert (ended.versions, ended.finish) == ((3, 3, 8), "stop")


def test_a_checkpoint_keeps_begun_turns_to_the_bit(tmp_path):
    grown = OpenResponse(ids=(5, 0), logp=(-1 / 3, -1e-30), versions=(2, 4), finish="stop")
    turns = (
        OpenTurn(step=4, responses=(grown, OpenResponse()), expected=7),
        OpenTurn(
            step=5,
            responses=(OpenResponse(ids=(9,), logp=(-0.1,), versions=(4,)),),
            expected=5,
            prompts=(digest((1, 7)),),
        ),
    )
    saved = checkpoint.save(
        tmp_path, 1, write_model=lambda folder: None, state={"open": pack(turns)}, keep=1
    )
    assert unpack(checkpoint.load_state(saved)["open"]) == turns
    assert unpack(pack(())) == ()


def test_a_checkpoint_of_an_earlier_version_knows_no_prompts():
    turn = OpenTurn(step=4, responses=(OpenResponse(),), expected=7)
    state = pack([turn]) | {"turns": "[[4, 1, 7]]"}
    assert unpack(state) == (turn,)


def test_a_digest_tells_prompts_apart():
    assert digest((1, 2)) == digest([1, 2]) != digest((12,)) != digest((1, 2, 3))
