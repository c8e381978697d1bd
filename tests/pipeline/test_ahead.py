"""One step ahead: gathered beside the body, waited for, and carried by a checkpoint to the bit."""

import threading
from random import Random

import pytest
import torch

from pipeline import checkpoint
from pipeline.ahead import Ahead
from pipeline.carried import carried, restored
from pipeline.clock import Clock
from pipeline.gather import Gathered
from verifiers.verdict import Verdict


@pytest.fixture
def some(graded):
    bad = Verdict(score=None, status="error", detail="no \x00 worker", queue_s=0.1)
    parts = Verdict(score=0.3, components={"share": 1 / 3}, answer="“7”", exec_s=1e-9)
    return Gathered(
        graded=[
            graded((1, 5), (7, 0), logp=(-0.1, -1e-30), verdicts={"accuracy": parts}, reward=0.3),
            graded((1,), (3,), logp=(-1 / 3,), verdicts={"accuracy": bad}, reward=None),
        ],
        asked=5,
        missing=2,
    )


def test_what_is_carried_is_what_was_gathered(some, tmp_path):
    state = carried(some)
    assert restored(state) == some
    saved = checkpoint.save(
        tmp_path, 1, write_model=lambda folder: None, state={"ahead": state}, keep=1
    )
    assert restored(checkpoint.load_state(saved)["ahead"]) == some


def test_nothing_gathered_is_carried_as_nothing():
    ahead = Ahead(lambda *_: None)
    assert ahead.state() is None and ahead.take() is None
    ahead.load(None)
    assert ahead.take() is None


class Gather:
    """Gathers when it is told to; counts its questions as a Gatherer does."""

    def __init__(self, some):
        self.some, self.next, self.began, self.go = some, 0, threading.Event(), threading.Event()

    def __call__(self, step, random, clock):
        with clock("sample"):
            self.began.set()
            assert self.go.wait(10) and random.random() == Random(step).random()
        self.next += 5
        if step == 13:
            raise LookupError("no sampler")
        return self.some


@pytest.fixture
def gather(some):
    return Gather(some)


def test_the_next_step_is_gathered_beside_what_goes_on_and_given_once(gather, some):
    ahead, clock = Ahead(gather), Clock()
    ahead.begin(4, Random(4))
    assert gather.began.wait(10) and ahead.take() is None
    ahead.begin(5, Random(5))  # one is on its way: none is begun
    gather.go.set()
    ahead.finish(clock)
    assert "wait" in clock.seconds
    state = ahead.state()
    gathered, beside = ahead.take()
    assert gathered is some and set(beside.seconds) == {"sample"} and ahead.take() is None
    ahead.finish(clock)  # of nothing
    ahead.load(state)
    assert ahead.take()[0] == some


def test_what_is_on_its_way_is_no_part_of_a_checkpoint_and_will_be_asked_again(gather, some):
    ahead = Ahead(gather)
    gather.go.set()
    ahead.begin(1, Random(1))
    ahead.finish(Clock())
    gather.go.clear()
    ahead.begin(2, Random(2))
    assert ahead.asked == 5 and restored(ahead.state()) == some
    gather.go.set()
    ahead.close()
    assert gather.next == 10 and ahead.asked == 5 and restored(ahead.state()) == some


def test_nothing_that_was_gathered_is_lost_to_what_comes_after_it(gather):
    ahead = Ahead(gather)
    gather.go.set()
    for step in (1, 2):
        ahead.begin(step, Random(step))
        if step == 1:
            ahead.finish(Clock())
    with pytest.raises(RuntimeError, match="have not had their turn"):
        ahead.finish(Clock())


def test_what_gathering_raises_is_raised_by_who_waits_for_it(gather):
    ahead = Ahead(gather)
    ahead.begin(13, Random(13))
    gather.go.set()
    with pytest.raises(LookupError, match="no sampler"):
        ahead.finish(Clock())
    ahead.close()


def test_closing_waits_for_what_is_on_its_way(gather):
    ahead = Ahead(gather)
    ahead.begin(1, Random(1))
    threading.Timer(0.05, gather.go.set).start()
    ahead.close()
    assert gather.next == 5


def test_logps_of_any_precision_are_kept(graded):
    value = torch.tensor(0.1, dtype=torch.float32).item()
    gathered = Gathered(graded=[graded((1,), (2,), logp=(value,))], asked=1, missing=0)
    assert restored(carried(gathered)).graded[0].rollout.logp == (value,)
