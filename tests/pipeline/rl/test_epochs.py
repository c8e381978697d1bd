"""Several passes over a rollout: dealt anew each time, judged by what held before the first."""

from dataclasses import replace
from random import Random

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.losses.trust_region import adapted_beta
from veriloop.pipeline.rl import estimator
from veriloop.pipeline.rl import learner as learning
from veriloop.pipeline.rl.learner import PolicyLearner
from veriloop.pipeline.rl.minibatches import minibatches, with_signals_of
from veriloop.pipeline.types import Signals


@pytest.fixture
def learned(tiny_llama, sampled, monkeypatch):
    """Function: what a learner did with 24 rollouts, its mini-batches in order, and the learner."""

    def run(*, skip=False, tied=False, **algorithm):
        recipe = ZeroRecipe.model_validate(
            {
                "name": "test", "start": "given", "steps": 4,
                "rollout": {"prompts": 6, "per_prompt": 4, "max_tokens": 9},
                "algorithm": algorithm,
                "optimizer": {"learning_rate": 1e-2},
                "trainer": {"row": 32, "rows": 2, "skip_zero_advantages": skip},
            }
        )  # fmt: skip
        model, parts = tiny_llama(spread=0.2), []
        torch.manual_seed(0)
        learner = PolicyLearner(recipe, model, None)
        rollouts = sampled(model, 24)
        if tied:  # every other group
            rollouts = [replace(g, reward=1.0) if i // 4 % 2 else g for i, g in enumerate(rollouts)]
        plain = learning.update

        def watched(context, part, **rest):
            parts.append((part, rest["progress"]))
            return plain(context, part, **rest)

        monkeypatch.setattr(learning, "update", watched)
        updates, advantages_N = learner.learn(1, rollouts, Random(7))
        monkeypatch.setattr(learning, "update", plain)
        return updates, parts, learner, advantages_N

    return run


def rollouts_of(part):
    return sorted(n for batch in part.batches for n in batch.rollout_B.tolist())


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def by_rollout(parts, name):
    """Each rollout's values of one signal."""
    found = {}
    for part in parts:
        for batch, signals in zip(part.batches, part.signals, strict=True):
            owner_M = batch.rollout_B[batch.sequence_RT[batch.mask_RT]]
            for n in owner_M.unique().tolist():
                found[n] = getattr(signals, name)[owner_M == n].tolist()
    return found


@pytest.mark.slow
def test_each_epoch_deals_all_rollouts_anew_and_the_first_is_that_of_a_single_one(learned):
    once, first, *_ = learned(minibatches=3)
    thrice, parts, learner, _ = learned(minibatches=3, epochs=3)
    assert len(once) == 3 and len(thrice) == learner.done == 9
    assert thrice[:3] != thrice[3:6]
    one, two, three = ([rollouts_of(part) for part, _ in parts[i : i + 3]] for i in (0, 3, 6))
    assert [rollouts_of(part) for part, _ in first] == one
    assert one != two != three != one
    for epoch in (one, two, three):
        assert sorted(n for part in epoch for n in part) == list(range(24))
    for ours, theirs in zip(thrice[:3], once, strict=True):
        assert (ours.loss, ours.grad_norm, ours.ratio_mean) == (
            theirs.loss, theirs.grad_norm, theirs.ratio_mean,
        )  # fmt: skip
    assert [progress for _, progress in parts] == [(1 + i / 9) / 4 for i in range(9)]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [{"preset": "ppo"}, {"kl_coefficient": 0.1}], ids=str)
def test_later_epochs_keep_what_was_measured_before_the_first_update(learned, algorithm):
    _, parts, learner, _ = learned(minibatches=3, epochs=2, **algorithm)
    before, after = ([part for part, _ in parts[i : i + 3]] for i in (0, 3))
    kept = ["advantages_M", "old_M"]
    kept += ["values_M", "targets_M"] if learner.critic else ["reference_M"]
    for name in kept:
        values = by_rollout(before, name)
        assert values == by_rollout(after, name)
        # an untrained critic says 0 of every state
        assert name == "values_M" or len({x for row in values.values() for x in row}) > 2
    others = {field for field in Signals.__slots__ if field not in kept}
    assert all(getattr(s, name) is None for part in after for s in part.signals for name in others)


@pytest.mark.slow
def test_updates_of_the_second_epoch_start_from_where_the_first_ended(learned):
    updates, *_ = learned(minibatches=2, epochs=2)
    assert updates[0].ratio_mean == pytest.approx(1.0, abs=1e-5)
    assert updates[0].old_kl < 1e-6 < 1e-4 < updates[2].old_kl


@pytest.mark.slow
def test_the_same_rng_gives_the_same_bits(learned):
    _, _, one, _ = learned(minibatches=3, epochs=2)
    _, _, other, _ = learned(minibatches=3, epochs=2)
    assert torch.equal(weights(one.policy), weights(other.policy))


@pytest.mark.slow
def test_answers_without_a_gradient_stay_out_of_every_epoch(learned, monkeypatch):
    monkeypatch.setattr(estimator, "MIN_FORWARD_TOKENS", 1)
    parts = {"minibatches": 2, "epochs": 2, "kl_coefficient": 0.0, "old_logp": "trainer"}
    all_updates, _, full, wanted_N = learned(tied=True, **parts)
    updates, _, short, advantages_N = learned(tied=True, skip=True, **parts)
    assert torch.equal(advantages_N, wanted_N)
    # Adam divides by the gradient's size, which magnifies rounding where it is near 0
    assert_close(weights(short.policy), weights(full.policy), atol=5e-4, rtol=1e-4)
    assert [u.tokens for u in updates] == [u.tokens for u in all_updates]
    assert all(u.scored < u.tokens for u in updates)


@pytest.mark.slow
def test_the_weight_of_the_kl_penalty_follows_the_distance_after_the_last_epoch(
    learned, monkeypatch
):
    measured = []
    plain = learning.distance

    def distance(policy, part, chunk, *ranks):
        measured.append((weights(policy), plain(policy, part, chunk, *ranks)))
        return measured[-1][1]

    monkeypatch.setattr(learning, "distance", distance)
    parts = {"preset": "ppo_klpen", "minibatches": 2, "old_kl_target": 1e-5}
    *_, learner, _ = learned(epochs=2, **parts)
    assert len(measured) == 2
    assert all(torch.equal(seen, weights(learner.policy)) for seen, _ in measured)
    kl = sum(value for _, value in measured) / 2
    assert learner.old_kl_coefficient == adapted_beta(1.0, kl, 1e-5) == 2.0


def test_a_rollout_that_was_left_out_has_no_advantage_and_the_samplers_log_probs(
    sampled, tiny_llama, weighed
):
    rollouts, algorithm = sampled(tiny_llama(), 8), AlgorithmConfig(minibatches=2)

    def dealt(seed, select=tuple):
        return minibatches(
            rollouts, algorithm, TrainerConfig(row=16, rows=2), max_tokens=9,
            shuffle=Random(seed), select=select,
        )  # fmt: skip

    scored = weighed(dealt(0, lambda share: [n for n in share if n != 5]), torch.arange(8.0) + 1)
    fresh = with_signals_of(scored, dealt(1))
    advantages = by_rollout(fresh, "advantages_M")
    lengths = [len(g.rollout.response_ids) for g in rollouts]
    assert advantages == {n: [0.0 if n == 5 else n + 1.0] * lengths[n] for n in range(8)}
    old = by_rollout(fresh, "old_M")
    assert old[5] == pytest.approx(list(rollouts[5].rollout.logp))


@pytest.mark.slow
@pytest.mark.parametrize(("warmup", "expected"), [(1, 0.5), (2, 1.0)])
def test_the_weight_of_the_kl_penalty_waits_for_the_policys_first_step(learned, warmup, expected):
    """The turn is the second one, of index 1."""
    parts = {"preset": "ppo_klpen", "minibatches": 1, "old_kl_target": 1e3}
    *_, learner, _ = learned(critic_warmup=warmup, **parts)
    assert learner.old_kl_coefficient == expected


@pytest.mark.slow
def test_a_kl_that_is_no_number_stops_the_run(learned, monkeypatch):
    monkeypatch.setattr(learning, "distance", lambda *_: float("nan"))
    with pytest.raises(NonFiniteError, match=r"KL\(old \|\| policy\) is nan after optimizer"):
        learned(preset="ppo_klpen", minibatches=1, old_kl_target=0.01)
