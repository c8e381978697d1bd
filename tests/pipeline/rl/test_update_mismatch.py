"""No step without the log-probs that the sampler reported; no harm from having nothing to learn."""

import copy

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.sections import OptimizerConfig
from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.rl.update import MismatchError, UpdateContext, update
from veriloop.pipeline.training.optimizer import Optimizer

MODES = ("sequence_mean", "token_mean", "constant")


def weights(model):
    return torch.cat([p.detach().clone().flatten() for p in model.parameters()])


@pytest.mark.parametrize("rows", [1, 8])
def test_a_mismatch_stops_before_the_step_and_leaves_everything_as_it_was(
    tiny_llama, sampled, whole, stepped, shifted, rows
):
    model = tiny_llama(spread=0.2)
    rollouts = [shifted(g, 2e-3) for g in sampled(model, 4)]
    part, before = whole(rollouts, torch.ones(4), row=1, rows=rows), weights(model)
    optimizer = Optimizer(model, OptimizerConfig(learning_rate=0.1))
    state = copy.deepcopy(optimizer.state())
    learner = UpdateContext(policy=model, optimizer=optimizer, algorithm=AlgorithmConfig(), chunk=9)
    with pytest.raises(
        MismatchError,
        match=r"before optimizer step 7 .* 2\.00e-03 nats on average, 2\.00e-03 .* 1e-03 "
        r"\(sampler\.tolerance\): stale",
    ):
        update(learner, part, progress=0.0, done=7, tolerance=1e-3)
    assert torch.equal(weights(model), before)
    assert all(p.grad is None for p in model.parameters())
    assert optimizer.state() == state
    _, done = stepped(model, part, AlgorithmConfig(), tolerance=3e-3)
    assert done.mismatch_max == pytest.approx(2e-3, abs=1e-5)


def test_no_tolerance_asks_for_no_proof(tiny_llama, sampled, whole, stepped, shifted):
    model = tiny_llama()
    part = whole([shifted(g, 0.1) for g in sampled(model, 2)], torch.ones(2))
    _, done = stepped(model, part, AlgorithmConfig(), tolerance=None)
    assert done.mismatch_max == pytest.approx(0.1, abs=1e-4)


@pytest.mark.parametrize("broken", range(3))
def test_a_log_prob_that_is_no_number_is_a_mismatch_anywhere(
    tiny_llama, sampled, whole, stepped, shifted, broken
):
    model = tiny_llama()
    rollouts = sampled(model, 3)
    rollouts[broken] = shifted(rollouts[broken], float("nan"))
    part = whole(rollouts, torch.ones(3), row=1, rows=1)
    # Whichever check comes first: the step is refused.
    with pytest.raises((MismatchError, NonFiniteError), match=r"\bnan\b"):
        stepped(model, part, AlgorithmConfig(), tolerance=1e9)


def test_a_mismatch_exactly_at_the_tolerance_is_allowed(
    tiny_llama, sampled, whole, stepped, shifted
):
    model = tiny_llama()
    part = whole([shifted(g, 0.01) for g in sampled(model, 1)], torch.ones(1))
    _, done = stepped(model, part, AlgorithmConfig())
    stepped(model, part, AlgorithmConfig(), tolerance=done.mismatch_mean)


def test_the_mean_decides_so_that_one_token_alone_cannot_end_a_run(
    tiny_llama, sampled, whole, stepped, shifted
):
    model = tiny_llama()
    rollouts = sampled(model, 4)
    rollouts[2] = shifted(rollouts[2], 0.01)
    part = whole(rollouts, torch.ones(4))
    share = len(rollouts[2].rollout.response_ids) / part.counts.tokens
    _, done = stepped(model, part, AlgorithmConfig(), tolerance=0.0101 * share)
    assert done.mismatch_max == pytest.approx(0.01, abs=1e-4)
    with pytest.raises(MismatchError):
        stepped(model, part, AlgorithmConfig(), tolerance=0.0099 * share)


@pytest.mark.parametrize("aggregation", MODES)
def test_an_empty_response_adds_nothing_and_divides_nothing(
    tiny_llama, sampled, whole, stepped, graded, aggregation
):
    model, algorithm = tiny_llama(spread=0.2), AlgorithmConfig(aggregation=aggregation)
    rollouts = sampled(model, 4, noise=0.2)
    advantages_N = torch.tensor([1.0, -1.0, 0.5, 2.0, 3.0])
    alone, done = stepped(model, whole(rollouts, advantages_N[:4]), algorithm)
    empty = graded((1, 2, 3), ())
    for rows in (1, 8):
        part = whole([*rollouts, empty], advantages_N, row=1, rows=rows)
        got, too = stepped(model, part, algorithm)
        assert_close(got, alone, atol=1e-6, rtol=1e-5)
        assert too.loss == pytest.approx(done.loss, abs=1e-6) and too.tokens == done.tokens


@pytest.mark.parametrize("aggregation", MODES)
def test_a_step_without_a_token_is_all_zeros(tiny_llama, whole, stepped, graded, aggregation):
    model = tiny_llama()
    part = whole([graded((1, 2, 3), ())], torch.ones(1))
    got, done = stepped(
        model, part, AlgorithmConfig(aggregation=aggregation), reference=model, tolerance=1e-4
    )
    assert got.count_nonzero() == 0 and got.isfinite().all()
    numbers = (done.loss, done.kl, done.entropy, done.clipped_low, done.clipped_high)
    assert numbers == (0.0,) * 5 and done.tokens == 0
    assert (done.mismatch_mean, done.mismatch_max, done.ratio_mean) == (0.0, 0.0, 0.0)
