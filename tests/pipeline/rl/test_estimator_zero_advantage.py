"""Answers that nothing is learned from stay out of the forward pass; the gradient does not move."""

from dataclasses import replace
from random import Random

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.presets import PRESETS
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.losses.advantages import RunningMean
from veriloop.pipeline.model.probe import output_head, supports_packing
from veriloop.pipeline.rl import estimator
from veriloop.pipeline.rl.estimator import forwarded, rewards_alone, without_gradient
from veriloop.pipeline.rl.learner import PolicyLearner

NO_KL = {"kl_coefficient": 0.0}
LEARNING_RATE = 1e-2


@pytest.fixture(autouse=True)
def checked(monkeypatch):
    """Few tokens for the proof of the sampler's weights."""
    monkeypatch.setattr(estimator, "MIN_FORWARD_TOKENS", 5)


@pytest.fixture(autouse=True)
def one_thread():
    """Sums in one order: Adam's first steps magnify what another order rounds otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def rollouts(tiny_llama, sampled):
    """Six groups of four: the first, third and fifth tied, the others not."""
    found = sampled(tiny_llama(spread=0.2), 24)
    rewards = [[1.0] * 4, [1.0, 0, 0, 2.0], [0.0] * 4, [0, 0, 0, 1.0], [2.0] * 4, [1.0, 0, 1, 0]]
    flat = [reward for group in rewards for reward in group]
    return [replace(one, reward=float(r)) for one, r in zip(found, flat, strict=True)]


@pytest.fixture
def learned(tiny_llama, rollouts):
    """Function: (weights after one rollout, updates, advantages, positions per forward pass)."""

    def run(skip, *, given=None, **algorithm):
        recipe = ZeroRecipe.model_validate(
            {
                "name": "test", "start": "given", "steps": 4,
                "rollout": {"prompts": 6, "per_prompt": 4, "max_tokens": 9},
                "algorithm": algorithm,
                "optimizer": {"learning_rate": LEARNING_RATE},
                "trainer": {"row": 32, "rows": 64, "skip_zero_advantages": skip},
            }
        )  # fmt: skip
        model = tiny_llama(spread=0.2)
        (
            output_head(model),
            supports_packing(model.base_model),
        )  # measured once, and no part of a step
        passes = []
        model.model.embed_tokens.register_forward_hook(
            lambda _, ids, __: passes.append(ids[0].numel())
        )
        updates, advantages_N = PolicyLearner(recipe, model, None).learn(
            0, given or rollouts, Random(7)
        )
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        return weights, updates, advantages_N, passes

    return run


SETTINGS = {
    "grpo": {},
    "dapo's mean": {"aggregation": "token_mean"},
    "dr grpo": {"aggregation": "constant", "advantage_scale": "none"},
    "gspo": {"objective": "gspo", "clip_low": 3e-4, "clip_high": 4e-4},
    "cispo": {"objective": "cispo"},
    "trainer's old": {"old_logp": "trainer"},
    "batch scale": {"advantage_scale": "batch"},
}


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_step_without_them_is_the_step_with_them(learned, setting, parts):
    algorithm = SETTINGS[setting] | NO_KL | {"minibatches": parts}
    want, full, wanted_N, all_positions = learned(False, **algorithm)
    got, short, advantages_N, positions = learned(True, **algorithm)
    # Adam divides by the size of the gradient: near 0 the rounding of sums is 1 % of a step at most
    assert_close(got, want, atol=0.01 * LEARNING_RATE, rtol=1e-5)
    assert torch.equal(advantages_N, wanted_N)
    assert sum(positions) < 0.8 * sum(all_positions)
    for one, other in zip(short, full, strict=True):
        assert one.tokens == other.tokens == other.scored > one.scored > 0
        assert one.loss == pytest.approx(other.loss, abs=1e-6)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-5)
    assert short[0].mismatch_mean < 1e-5 and short[0].ratio_mean == pytest.approx(1.0, abs=1e-5)


def test_means_are_over_what_was_forwarded(learned, rollouts):
    """With one group scored, the step's numbers are those of a step of that group alone."""
    mixed = [replace(g, reward=1.0 if i >= 8 else g.reward) for i, g in enumerate(rollouts)]
    _, (one,), *_ = learned(True, given=mixed, minibatches=1, **NO_KL)
    _, (alone,), *_ = learned(False, given=mixed[4:8], minibatches=1, **NO_KL)
    assert one.scored == alone.tokens < one.tokens
    for name in ("entropy", "ratio_mean", "mismatch_mean", "mismatch_max"):
        assert getattr(one, name) == pytest.approx(getattr(alone, name), abs=1e-6)


def test_a_step_that_teaches_nothing_still_proves_the_samplers_weights(learned, rollouts, shifted):
    tied = [replace(g, reward=1.0) for g in rollouts]
    _, (done,), _, positions = learned(True, given=tied, minibatches=1, **NO_KL)
    assert 5 <= done.scored < 12 and sum(positions) > 0 and done.grad_norm == 0.0
    stale = [shifted(g, 0.01) for g in tied]
    with pytest.raises(Exception, match="before optimizer step 0"):
        learned(True, given=stale, minibatches=1, **NO_KL)


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        {"kl_coefficient": 0.1},
        {"kl_coefficient": 0.1, "kl_placement": "reward", "kl_estimator": "k1"},
        {"entropy_coefficient": 0.01, **NO_KL},
        {"trust_region": 0.01, **NO_KL},
        {"objective": "kl_penalty", "old_kl_coefficient": 0.1, **NO_KL},
        {"preset": "ppo", **NO_KL},
        {"advantage": "global", **NO_KL},
        {"advantage": "process", **NO_KL},
        {"objective": f"{__file__}:of_my_own", **NO_KL},
    ],
    ids=str,
)
def test_nobody_is_left_out_where_anything_else_gives_a_gradient(rollouts, algorithm):
    told = AlgorithmConfig(**algorithm)
    assert not rewards_alone(told)
    assert without_gradient(rollouts, told, RunningMean()) == frozenset()


def of_my_own(inputs):
    return inputs.advantages_M - 0.1 * inputs.logp_M


def test_every_preset_says_whether_rewards_alone_teach():
    alone = {name for name in PRESETS if rewards_alone(AlgorithmConfig(preset=name))}
    assert {"dapo", "dr_grpo"} <= alone and not {"grpo", "ppo"} & alone


def test_ties_are_left_out_and_only_they(rollouts):
    found = without_gradient(rollouts, AlgorithmConfig(**NO_KL), RunningMean())
    assert found == {*range(4), *range(8, 12), *range(16, 20)}


def test_as_many_of_the_first_stay_as_the_proof_needs(graded):
    rows = [graded(response=(7,) * n) for n in (3, 2, 2, 4)]
    assert forwarded([3, 0, 1, 2], rows, {0, 1, 2, 3}) == [3, 0]  # 4 tokens, then 7
    assert forwarded([0, 1, 2, 3], rows, {1, 2}) == [0, 3]  # 7 are there without them
    assert forwarded([0, 1, 2], rows, {0, 1}) == [0, 2]  # 2, then 5
    assert forwarded([], rows, set()) == []


@pytest.mark.parametrize(("coefficient", "passes"), [(0.0, 1), (0.1, 2)])
def test_the_reference_is_asked_only_where_its_coefficient_is_not_0(learned, coefficient, passes):
    """A copy of the policy is counted with it."""
    *_, positions = learned(False, minibatches=1, kl_coefficient=coefficient)
    assert len(positions) == passes
