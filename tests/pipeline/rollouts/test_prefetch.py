"""One step ahead: gathered beside the body, waited for, and carried by a checkpoint to the bit."""

import json
import threading
from dataclasses import replace
from random import Random

import pytest
import torch

from veriloop.pipeline.rollouts.collect import CollectedStep
from veriloop.pipeline.rollouts.prefetch import RolloutPrefetcher, pack, unpack
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.training.measurements import Clock
from veriloop.verifiers.verdict import Verdict


@pytest.fixture
def some(graded):
    bad = Verdict(score=None, status="error", detail="no \x00 worker", queue_s=0.1)
    parts = Verdict(score=0.3, components={"share": 1 / 3}, answer="“7”", exec_s=1e-9)
    return CollectedStep(
        graded=[
            graded((1, 5), (7, 0), logp=(-0.1, -1e-30), verdicts={"accuracy": parts}, reward=0.3),
            graded((1,), (3,), logp=(-1 / 3,), verdicts={"accuracy": bad}, reward=None),
            replace(graded(), steps=((3, 1 / 3), (9, 0.0))),
            replace(graded(), steps=()),
            graded(policy_version=3, versions=(3, 5)),
        ],
        asked=5,
        missing=2,
        dropped=[{"accuracy (number)": bad, "format": parts}, {}],
    )


def test_what_is_carried_is_what_was_gathered(some, tmp_path):
    state = pack(some)
    assert unpack(state) == some
    saved = checkpoint.save(
        tmp_path, 1, write_model=lambda folder: None, state={"ahead": state}, keep=1
    )
    assert unpack(checkpoint.load_state(saved)["ahead"]) == some


def test_a_checkpoint_of_an_earlier_version_is_read(some):
    state = pack(some)
    records = [{k: v for k, v in r.items() if k != "steps"} for r in json.loads(state["told"])]
    for record in records:
        del record["rollout"]["versions"]
    del state["dropped"]
    read = unpack(state | {"told": json.dumps(records)})
    assert list(read.dropped) == []
    plain = [replace(g.rollout, versions=None) for g in some.graded]
    pairs = zip(some.graded, plain, strict=True)
    assert read.graded == [replace(g, steps=None, rollout=rollout) for g, rollout in pairs]


def test_nothing_gathered_is_carried_as_nothing():
    prefetcher = RolloutPrefetcher(lambda *_: None)
    assert prefetcher.state() is None and prefetcher.take() is None
    prefetcher.load(None)
    assert prefetcher.take() is None


class Collector:
    """Collects when it is told to; counts its questions as a RolloutCollector does."""

    open = ()

    def __init__(self, some):
        self.some, self.next_question, self.began, self.go = (
            some,
            0,
            threading.Event(),
            threading.Event(),
        )

    def __call__(self, step, random, clock):
        with clock("sample"):
            self.began.set()
            assert self.go.wait(10) and random.random() == Random(step).random()
        self.next_question += 5
        if step == 13:
            raise LookupError("no sampler")
        return self.some


@pytest.fixture
def collector(some):
    return Collector(some)


def test_the_next_step_is_gathered_concurrently_and_given_once(collector, some):
    prefetcher, clock = RolloutPrefetcher(collector), Clock()
    prefetcher.begin(4, Random(4))
    assert collector.began.wait(10) and prefetcher.take() is None
    prefetcher.begin(5, Random(5))  # one is on its way: none is begun
    collector.go.set()
    prefetcher.finish(clock)
    assert "wait" in clock.seconds
    state = prefetcher.state()
    gathered, beside = prefetcher.take()
    assert gathered is some and set(beside.seconds) == {"sample"} and prefetcher.take() is None
    prefetcher.finish(clock)  # of nothing
    prefetcher.load(state)
    assert prefetcher.take()[0] == some


def test_what_is_on_its_way_is_no_part_of_a_checkpoint_and_will_be_asked_again(collector, some):
    prefetcher = RolloutPrefetcher(collector)
    collector.go.set()
    prefetcher.begin(1, Random(1))
    prefetcher.finish(Clock())
    collector.go.clear()
    prefetcher.begin(2, Random(2))
    assert prefetcher.next_question == 5 and unpack(prefetcher.state()) == some
    collector.open = ("what the turn that is on its way has begun",)
    assert prefetcher.open == ()
    collector.go.set()
    prefetcher.close()
    assert (
        collector.next_question == 10
        and prefetcher.next_question == 5
        and unpack(prefetcher.state()) == some
    )


def test_nothing_that_was_gathered_is_lost_to_what_comes_after_it(collector):
    prefetcher = RolloutPrefetcher(collector)
    collector.go.set()
    for step in (1, 2):
        prefetcher.begin(step, Random(step))
        if step == 1:
            prefetcher.finish(Clock())
    with pytest.raises(RuntimeError, match="were not taken"):
        prefetcher.finish(Clock())


def test_what_gathering_raises_is_raised_by_who_waits_for_it(collector):
    prefetcher = RolloutPrefetcher(collector)
    prefetcher.begin(13, Random(13))
    collector.go.set()
    with pytest.raises(LookupError, match="no sampler"):
        prefetcher.finish(Clock())
    prefetcher.close()


def test_closing_waits_for_what_is_on_its_way(collector):
    prefetcher = RolloutPrefetcher(collector)
    prefetcher.begin(1, Random(1))
    threading.Timer(0.05, collector.go.set).start()
    prefetcher.close()
    assert collector.next_question == 5


def test_logps_of_any_precision_are_kept(graded):
    value = torch.tensor(0.1, dtype=torch.float32).item()
    gathered = CollectedStep(graded=[graded((1,), (2,), logp=(value,))], asked=1, missing=0)
    assert unpack(pack(gathered)).graded[0].rollout.logp == (value,)
