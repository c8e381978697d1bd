"""What is taken down of each token is what that token's own update saw, and stands in its row."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.model.sharded import Ranks
from veriloop.pipeline.rl.update import TokenTrace, UpdateContext, update


class Still:
    """An optimizer that takes no step."""

    def forget(self):
        pass

    def step(self, progress, done):
        return 0.0, 0.0


@pytest.fixture
def traced(whole):
    def run(model, rollouts, advantages_N):
        trace = TokenTrace()
        learner = UpdateContext(
            policy=model, optimizer=Still(), algorithm=AlgorithmConfig(), chunk=5, trace=trace
        )
        update(learner, whole(rollouts, advantages_N), progress=0.0, done=0)
        return trace

    return run


def test_every_token_has_its_own_numbers(traced, tiny_llama, sampled, plain_scores):
    model = tiny_llama()
    rollouts = sampled(model, 7, noise=0.6)
    advantages_N = torch.tensor([-1.0, 2.0, 0.5, -0.25, 1.5, -2.0, 0.0])
    seen = traced(model, rollouts, advantages_N).seen
    assert sorted(seen) == list(range(7))
    clips = set()
    for place, graded in enumerate(rollouts):
        one, rollout = seen[place], graded.rollout
        logp, entropy = plain_scores(model, rollout.prompt_ids, rollout.response_ids)
        assert_close(one.logp_T, logp.detach(), atol=1e-5, rtol=1e-5)
        assert_close(one.entropy_T, entropy.detach(), atol=1e-5, rtol=1e-5)
        assert not one.logp_T.requires_grad and not one.entropy_T.requires_grad
        assert one.advantage_T.tolist() == [advantages_N[place]] * len(logp)
        ratio = (logp.detach() - torch.tensor(rollout.logp)).exp()
        low = (ratio < 0.8) & (advantages_N[place] < 0)
        high = (ratio > 1.2) & (advantages_N[place] > 0)
        assert one.clipped_T.tolist() == (high.int() - low.int()).tolist()
        clips |= set(one.clipped_T.tolist())
    assert clips == {-1, 0, 1}


def test_who_is_not_trained_on_is_not_in_it(traced, tiny_llama, sampled, graded):
    model = tiny_llama()
    rollouts = [*sampled(model, 3), graded(reward=None)]
    assert sorted(traced(model, rollouts, torch.zeros(4)).seen) == [0, 1, 2]


def test_a_new_step_begins_empty(traced, tiny_llama, sampled):
    model = tiny_llama()
    trace = traced(model, sampled(model, 2), torch.ones(2))
    trace.clear()
    assert not trace.seen


def test_what_is_forgotten_leaves_the_rest(tiny_llama, sampled, whole):
    model, trace = tiny_llama(), TokenTrace()
    part = whole(sampled(model, 6), torch.ones(6), row=12, rows=1)
    learner = UpdateContext(
        policy=model, optimizer=Still(), algorithm=AlgorithmConfig(), chunk=5, trace=trace
    )
    update(learner, part, progress=0.0, done=0)
    trace.forget(part.batches[:1])
    gone = set(part.batches[0].rollout_B.tolist())
    assert 0 < len(gone) < 6 and trace.seen.keys() == set(range(6)) - gone


class Half(Ranks):
    """The first of two ranks, whose micro-batches are every second one; the other sees as much."""

    count = 2

    def deal(self, items, empty):
        return items[::2]

    def summed(self, values):
        return 2 * values

    def stacked(self, values_K):
        return torch.stack([values_K, values_K])


@pytest.mark.parametrize("recorded", [True, False])
def test_a_rank_records_its_own_tokens_alone_and_adds_up_those_of_all(
    tiny_llama, sampled, whole, recorded
):
    model = tiny_llama()
    part = whole(sampled(model, 6), torch.tensor([1.0, -1.0, 0.5, 2.0, -2.0, 0.0]), row=12, rows=1)
    trace = TokenTrace() if recorded else None
    alone = UpdateContext(
        policy=model, optimizer=Still(), algorithm=AlgorithmConfig(), chunk=5, trace=trace
    )
    update(alone, part, progress=0.0, done=0)
    mine = replace(part, batches=part.batches[::2], signals=part.signals[::2])
    own = update(alone, mine, progress=0.0, done=0)
    shared = update(replace(alone, ranks=Half()), part, progress=0.0, done=0)
    assert len(part.batches) > len(mine.batches) > 0
    assert shared.loss == pytest.approx(2 * own.loss)
    assert shared.mismatch_max == pytest.approx(own.mismatch_max)
    if recorded:
        numbers = {n for batch in mine.batches for n in batch.rollout_B.tolist()}
        assert trace.seen.keys() == numbers
