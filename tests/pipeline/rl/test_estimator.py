"""Advantages per token, by hand: what is compared, what is credited, what the KL costs."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.sections import OptimizerConfig, TrainerConfig
from veriloop.pipeline.losses.advantages import RunningMean
from veriloop.pipeline.model.policy import logp_entropy
from veriloop.pipeline.rl.critic import Critic
from veriloop.pipeline.rl.estimator import AdvantageEstimator, outcome_advantages, score_parts
from veriloop.pipeline.rl.minibatches import minibatches


@pytest.fixture
def estimated(graded, unshuffled):
    """Function: (advantages by rollout's tokens, targets by them, estimator).

    `lengths` of the responses; `kl` to the reference and `values` by rollout's tokens; `cut` the
    rollouts that the length limit ended.
    """

    def run(algorithm, rewards, lengths, *, groups=None, kl=None, values=None, cut=(), **known):
        groups = groups or ["a"] * len(rewards)
        rollouts = [
            graded(
                (1, 5),
                tuple(range(2, 2 + n)),
                reward=reward,
                group=group,
                finish="length" if i in cut else "stop",
            )
            for i, (reward, n, group) in enumerate(zip(rewards, lengths, groups, strict=True))
        ]
        rollouts = [replace(g, steps=()) for g in rollouts]  # scored, and `steps_N` has the scores
        trainer = TrainerConfig(row=64, rows=8)
        (part,) = minibatches(rollouts, algorithm, trainer, max_tokens=16, shuffle=unshuffled)
        (part,) = score_parts(None, None, None, [part], algorithm, 8)
        (batch,), (one,) = part.batches, part.signals
        owner = batch.rollout_B[batch.sequence_RT[batch.mask_RT]]
        order = owner.unique_consecutive().tolist()

        def laid(rows):
            return torch.cat([torch.tensor(rows[n]) for n in order])

        one = replace(
            one,
            reference_M=None if kl is None else one.old_M - laid(kl),  # so that k1 is `kl`
            values_M=None if values is None else laid(values),
        )
        estimator = AdvantageEstimator(algorithm, known.pop("past", RunningMean()))
        (made,), means_N = estimator(rollouts, [replace(part, signals=(one,))], **known)
        (told,) = made.signals
        found = [told.advantages_M[owner == n].tolist() for n in range(len(rewards))]
        means = torch.tensor([sum(row) / max(len(row), 1) for row in found])
        assert_close(means_N, means, atol=1e-6, rtol=1e-5)
        targets = None
        if told.targets_M is not None:
            targets = [told.targets_M[owner == n].tolist() for n in range(len(rewards))]
        return found, targets, estimator

    return run


def algorithm(**parts):
    return AlgorithmConfig(minibatches=1, **parts)


def close(found, wanted):
    assert [len(row) for row in found] == [len(row) for row in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


def test_a_groups_advantage_is_that_of_every_token_and_the_unscored_have_none(estimated):
    found, _, _ = estimated(algorithm(kl_coefficient=0), [1.0, 0.0, None, 0.0], [2, 1, 3, 1])
    close(found, [[2**0.5] * 2, [-(0.5**0.5)], [], [-(0.5**0.5)]])
    last, _, _ = estimated(algorithm(kl_coefficient=0), [1.0, 0.0, None], [1, 1, 2])
    close(last, [[1.0], [-1.0], []])


def test_without_a_baseline_the_reward_itself_weighs(estimated):
    found, _, _ = estimated(algorithm(preset="reinforce"), [2.0, -1.0], [2, 1])
    close(found, [[2.0, 2.0], [-1.0]])


def test_the_mean_of_the_step_is_a_baseline_across_groups(estimated):
    config = algorithm(advantage="batch", kl_coefficient=0)
    found, _, _ = estimated(config, [2.0, 0.0, 1.0], [1, 1, 1], groups=["a", "b", "c"])
    close(found, [[1.0], [-1.0], [0.0]])


def test_the_running_mean_knows_the_past_and_nothing_of_this_step(estimated):
    config, past = algorithm(preset="vpg"), RunningMean(mean=0.5, count=2)
    found, _, estimator = estimated(config, [1.0, 0.0], [1, 2], past=past)
    close(found, [[0.5], [-0.5, -0.5]])
    assert estimator.past == RunningMean(mean=0.5, count=4)


def test_a_kl_in_the_reward_is_separate_from_the_comparison_and_credited_as_configured(estimated):
    parts = {"kl_coefficient": 0.1, "kl_estimator": "k1", "kl_placement": "reward"}
    kl = [[1.0, 2.0], [3.0, 0.0]]
    compared = [1.0, -1.0]
    whole, _, _ = estimated(algorithm(**parts), [1.0, 0.0], [2, 2], kl=kl)
    close(whole, [[compared[0] - 0.3] * 2, [compared[1] - 0.3] * 2])
    to_go, _, _ = estimated(algorithm(credit="to_go", **parts), [1.0, 0.0], [2, 2], kl=kl)
    close(to_go, [[compared[0] - 0.3, compared[0] - 0.2], [compared[1] - 0.3, compared[1]]])


def test_a_kl_in_the_loss_costs_no_reward(estimated):
    found, _, _ = estimated(algorithm(), [1.0, 0.0], [1, 1], kl=[[5.0], [7.0]])
    close(found, [[1.0], [-1.0]])


def test_a_users_advantage_is_told_which_answers_were_judged(graded, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def judged(inputs):\n    return inputs.scored_N.sum().expand(len(inputs.rewards_N))\n"
    )
    config = algorithm(advantage=f"{tmp_path}/mine.py:judged")
    rollouts = [graded((1,), (2,), reward=reward) for reward in (1.0, None, 0.0)]
    advantages, past = outcome_advantages(rollouts, config, RunningMean(mean=0.5, count=1))
    assert_close(advantages, torch.tensor([2.0, 0.0, 2.0]))
    assert past == RunningMean(mean=0.5, count=1)


def test_a_kl_in_the_reward_without_weight_needs_no_reference(estimated):
    config = algorithm(preset="ppo", kl_coefficient=0.0, kl_placement="reward")
    found, targets, _ = estimated(config, [1.0, 0.0], [1, 1], values=[[0.0], [0.0]])
    close(found, [[1.0], [-1.0]])
    close(targets, [[1.0], [0.0]])


def test_normalising_over_the_batch_whitens_what_each_token_still_earns(estimated):
    config = algorithm(preset="reinforce_pp", kl_coefficient=1.0)
    found, _, _ = estimated(config, [1.0, 0.0], [2, 1], kl=[[0.5, 0.5], [1.0]])
    to_go = torch.tensor([1 - 1.0, 1 - 0.5, -1.0])  # the reward less what the tokens still cost
    wanted = ((to_go - to_go.mean()) / to_go.std(correction=0)).tolist()
    close(found, [wanted[:2], wanted[2:]])


def test_a_kl_in_the_reward_costs_what_gae_sees(estimated):
    parts = {"kl_coefficient": 0.1, "kl_estimator": "k1", "kl_placement": "reward"}
    config = algorithm(preset="ppo", discount=0.5, gae_lambda=0.5, **parts)
    values, kl = [[0.2, 0.4], [0.6]], [[1.0, 2.0], [3.0]]
    _, targets, _ = estimated(config, [1.0, 2.0], [2, 1], kl=kl, values=values)
    last = 1.0 - 0.2 - 0.4
    first = (-0.1 + 0.5 * 0.4 - 0.2) + 0.25 * last
    close(targets, [[first + 0.2, last + 0.4], [2.0 - 0.3]])


def test_what_is_credited_is_discounted(estimated):
    parts = {"kl_coefficient": 0.1, "kl_estimator": "k1", "kl_placement": "reward"}
    config = algorithm(credit="to_go", discount=0.5, **parts)
    found, _, _ = estimated(config, [1.0, 0.0], [2, 1], kl=[[1.0, 2.0], [3.0]])
    close(found, [[1 - 0.1 - 0.5 * 0.2, 1 - 0.2], [-1 - 0.3]])


@pytest.mark.parametrize("cut", [(), {1}])
def test_after_a_response_no_value_follows_whether_it_ended_or_was_cut(estimated, cut):
    config = algorithm(preset="ppo", discount=0.5, gae_lambda=0.5)
    values = [[0.2, 0.4], [0.6]]
    found, targets, _ = estimated(config, [1.0, 2.0], [2, 1], values=values, cut=cut)
    last = 1.0 - 0.4
    first = (0.0 + 0.5 * 0.4 - 0.2) + 0.25 * last
    other = 2.0 - 0.6
    raw = torch.tensor([first, last, other])
    wanted = ((raw - raw.mean()) / raw.std(correction=0)).tolist()
    close(found, [wanted[:2], wanted[2:]])
    close(targets, [[first + 0.2, last + 0.4], [2.0]])


def test_process_supervision_credits_a_token_with_the_steps_from_it_on_and_the_outcome(estimated):
    steps = [[(0, 1.0), (2, 0.0)], [(1, 1.0)]]
    scores, outcomes = torch.tensor([1.0, 0.0, 1.0]), torch.tensor([1.0, 0.0])
    stds = {
        "group": [x.std(correction=0) for x in (scores, outcomes)],
        "sample": [x.std(correction=1) for x in (scores, outcomes)],
        "none": [1.0, 1.0],
    }
    for scale, (of_steps, of_outcomes) in stds.items():
        config = algorithm(preset="grpo_process", advantage_scale=scale, kl_coefficient=0)
        found, _, _ = estimated(config, [1.0, 0.0], [3, 2], steps_N=steps)
        up, down, other = ((scores - scores.mean()) / of_steps).tolist()
        right, wrong = ((outcomes - outcomes.mean()) / of_outcomes).tolist()
        close(found, [[right + up + down, right + down, right + down], [wrong + other] * 2])


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"advantage_scale": "none"}, [0.75, -0.25, -0.25, -0.25]),
        ({"preset": "rloo"}, [1, -1 / 3, -1 / 3, -1 / 3]),
        ({"advantage_scale": "sample"}, [1.5, -0.5, -0.5, -0.5]),
        ({"advantage_scale": "batch"}, [1.7321, -0.57735, -0.57735, -0.57735]),
    ],
)
def test_the_recipe_chooses_the_estimator(graded, parts, expected):
    rollouts = [graded(reward=r) for r in (1.0, 0.0, 0.0, 0.0)]
    found, _ = outcome_advantages(rollouts, AlgorithmConfig(**parts), RunningMean())
    assert_close(found, torch.tensor(expected, dtype=torch.float32), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"advantage": "none"}, [2.0, 0.0, -1.0]),
        ({"advantage": "batch"}, [1.5, 0.0, -1.5]),
        ({"advantage": "running"}, [1.25, 0.0, -1.75]),
    ],
)
def test_whom_no_verifier_could_judge_has_no_advantage_and_is_in_no_mean(graded, parts, expected):
    rollouts = [graded(reward=r) for r in (2.0, None, -1.0)]
    config, past = AlgorithmConfig(kl_coefficient=0, **parts), RunningMean(mean=0.75, count=2)
    found, past = outcome_advantages(rollouts, config, past)
    assert found.tolist() == expected
    if parts["advantage"] == "running":
        assert past == RunningMean(mean=(1.5 + 1.0) / 4, count=4)


def test_an_estimator_begins_without_a_past():
    assert AdvantageEstimator(algorithm()).past == RunningMean()


def test_models_are_asked_about_every_token_before_the_first_update(tiny_llama, sampled, whole):
    policy, reference = tiny_llama(spread=0.2), tiny_llama(9)
    critic = Critic(policy, own_trunk=True, optimizer=OptimizerConfig(learning_rate=0.1))
    torch.nn.init.normal_(critic.head.weight)
    part = whole(sampled(policy, 4, noise=0.1), torch.ones(4), row=12, rows=1)
    assert len(part.batches) > 1
    sampler = score_parts(policy, None, None, [part], algorithm(), 8)[0].signals
    trainer = algorithm(old_logp="trainer", mismatch="truncate")
    everything = score_parts(policy, reference, critic, [part], trainer, 8)[0].signals
    for batch, plain, full in zip(part.batches, sampler, everything, strict=True):
        sampled_M = batch.sampler_logp_RT[batch.mask_RT]
        assert torch.equal(plain.old_M, sampled_M)
        assert plain.reference_M is None and plain.values_M is None
        with torch.no_grad():
            assert_close(full.old_M, logp_entropy(policy, batch, 8)[0])
            assert_close(full.reference_M, logp_entropy(reference, batch, 8)[0])
            assert_close(full.values_M, critic.values(policy, batch))
        assert not torch.allclose(full.old_M, sampled_M, atol=1e-3)
        assert not full.values_M.requires_grad and not full.advantages_M.any()


def test_an_advantage_of_tokens_is_not_asked_of_whole_rollouts(estimated):
    with pytest.raises(ValueError, match="advantage 'gae' is not of whole rollouts"):
        outcome_advantages([], algorithm(preset="ppo"), RunningMean())
