"""The record of begun turns: what is admitted, how far it goes, and what a checkpoint keeps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop.pipeline.rollouts.ledger import (
    OpenResponse,
    OpenTurn,
    admitted,
    pack,
    pause_at,
    unpack,
)
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.sampling.sampler import Completion


@given(ahead=st.integers(1, 6), steps=st.integers(1, 20), limit=st.integers(6, 40))
def test_every_turn_is_begun_and_ended_once_in_order_and_within_the_bound(ahead, steps, limit):
    open_turns, begun, tokens = [], {}, {}
    for step in range(steps):
        weights = max(step - 1, 0)  # updates that the weights have had which sample beside one
        turns = admitted(open_turns, step, ahead=ahead, steps=steps, responses=2)
        # AReaL's rule: groups begun <= (v + S + 1) turns' groups
        assert turns[-1].step + 1 <= weights + ahead + 1
        for later, turn in enumerate(turns):
            begun.setdefault(turn.step, weights)
            so_far = tokens.get(turn.step, 0)
            if so_far < limit:
                tokens[turn.step] = pause_at(so_far, later + 1, limit)
                assert so_far < tokens[turn.step] <= limit
        assert turns[0].step == step and tokens[step] == limit
        assert step - begun[step] <= ahead
        open_turns = turns[1:]
    assert not open_turns and list(begun) == list(range(steps))


def test_in_the_long_run_an_answer_has_equal_parts():
    parts = [pause_at(tokens, parts, 112) - tokens for tokens, parts in ((0, 4), (28, 3), (84, 1))]
    assert parts == [28, 28, 28]


@pytest.mark.parametrize("known", [[3], [5, 6], [4, 6], [4, 5, 6]])
def test_turns_that_are_not_those_due_are_refused(known):
    turns = [OpenTurn(step=step, responses=()) for step in known]
    with pytest.raises(ValueError, match=r"are open before turn 4, with rollout\.ahead=2"):
        admitted(turns, 4, ahead=2, steps=9, responses=1)


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
        OpenTurn(step=4, responses=(grown, OpenResponse())),
        OpenTurn(step=5, responses=(OpenResponse(ids=(9,), logp=(-0.1,), versions=(4,)),)),
    )
    saved = checkpoint.save(
        tmp_path, 1, write_model=lambda folder: None, state={"open": pack(turns)}, keep=1
    )
    assert unpack(checkpoint.load_state(saved)["open"]) == turns
    assert unpack(pack(())) == ()
