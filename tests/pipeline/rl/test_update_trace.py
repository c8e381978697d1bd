"""What is taken down of each token is what that token's own update saw, and stands in its row."""

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.algorithm import AlgorithmConfig
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
