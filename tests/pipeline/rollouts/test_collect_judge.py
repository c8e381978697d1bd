"""Verdicts while others are sampled: the same as all at once, and nothing is lost or hidden."""

import threading
from dataclasses import replace

import pytest

from veriloop.pipeline.rollouts.collect import ConcurrentJudge
from veriloop.pipeline.rollouts.grade import rule_verdicts
from veriloop.verifiers.verdict import Verdict

VERIFIERS = {"accuracy": None, "format": "think_format"}


class Pool:
    """Judges by the length of the text, once it is let."""

    def __init__(self, *, held=False):
        self.asked, self.go = [], threading.Event()
        if not held:
            self.go.set()

    def judge_all(self, tasks):
        assert self.go.wait(10)
        self.asked.append([text for _, text in tasks])
        return [Verdict(score=len(text) / 10, detail=p.verifier) for p, text in tasks]


@pytest.fixture
def groups(graded):
    one = graded().rollout
    return [
        [replace(one, group=group, response=text) for text in texts]
        for group, texts in [("1/0", ("a", "bb", "a")), ("1/1", ("a",)), ("1/2", ("ccc", "dd"))]
    ]


def test_the_verdicts_are_those_of_all_at_once(groups):
    with ConcurrentJudge(VERIFIERS, Pool()) as judge:
        for group in groups:
            judge.submit(group)
        found = judge.verdicts()
    assert found == rule_verdicts([r for group in groups for r in group], VERIFIERS, Pool())


def test_a_group_is_judged_before_the_last_one_comes(groups):
    pool = Pool()
    with ConcurrentJudge(VERIFIERS, pool) as judge:
        judge.submit(groups[0])
        for _ in range(1000):
            if pool.asked:
                break
            threading.Event().wait(0.01)
        assert pool.asked == [["a", "a", "bb", "bb"]]
        judge.submit(groups[1])
        assert ("1/1", "a", 2) in judge.verdicts()


def test_what_waits_is_judged_together(groups):
    pool = Pool(held=True)
    with ConcurrentJudge(VERIFIERS, pool) as judge:
        for group in groups:
            judge.submit(group)
        pool.go.set()
        assert len(judge.verdicts()) == 5
    assert sum(map(len, pool.asked)) == 10 and len(pool.asked) <= 2


def test_what_judging_raises_is_raised_where_the_verdicts_are_asked_for(groups):
    class Closed:
        def judge_all(self, tasks):
            raise RuntimeError("this VerifierPool is closed")

    with ConcurrentJudge(VERIFIERS, Closed()) as judge:
        judge.submit(groups[0])
        with pytest.raises(RuntimeError, match="is closed"):
            judge.verdicts()


def test_the_thread_ends_when_sampling_fails(groups):
    before = threading.active_count()
    judge = ConcurrentJudge(VERIFIERS, Pool())

    def fail():
        judge.submit(groups[0])
        raise KeyError

    with pytest.raises(KeyError), judge:
        fail()
    assert threading.active_count() == before


def test_nothing_taken_is_nothing_judged():
    with ConcurrentJudge(VERIFIERS, Pool()) as judge:
        assert judge.verdicts() == {}
