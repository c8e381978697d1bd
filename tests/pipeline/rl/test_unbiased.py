"""The policy gradient of the presets, by enumeration of a policy with five responses.

Axes: N rollouts of one step, R and T as packed, M masked-in tokens.
"""

from itertools import product

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.losses.advantages import RunningMean
from veriloop.pipeline.losses.aggregate import aggregate
from veriloop.pipeline.rl.estimator import AdvantageEstimator, score_parts
from veriloop.pipeline.rl.minibatches import minibatches
from veriloop.pipeline.rl.objective import objective

SHORT = (7,)
RESPONSES = [SHORT, *product((8,), (9, 11), (10, 12))]
MAX_TOKENS = 5
SKEWED = [0.4, -0.3, 0.9]  # logits of the first token of each of the three choices
UNBIASED = ("reinforce", "vpg", "rloo")


def token_logps(logits_3):
    """The log-probs of each response's tokens: a choice between two tokens at each position."""
    first, second, third = (torch.stack([x, -x]).log_softmax(0) for x in logits_3 / 2)
    return [
        first[:1] if ids == SHORT else torch.stack([first[1], second[ids[1] // 10], third[i]])
        for ids in RESPONSES
        for i in [0 if len(ids) == 1 else (ids[2] - 10) // 2]
    ]


@pytest.fixture
def expected_gradient(graded, unshuffled):
    """Function: the mean over all pairs of responses, by their probability, of the gradient of J.

    Two responses to one prompt are a step; J is computed as the training loop does.
    """

    def enumerate_pairs(algorithm, logits, rewards, past=0.0):
        logits_3 = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
        logps = token_logps(logits_3)
        total = torch.zeros(3, dtype=torch.float64)
        for pair in product(range(len(RESPONSES)), repeat=2):
            rollouts = [graded((1, 5), RESPONSES[i], reward=rewards[i]) for i in pair]
            parts = minibatches(
                rollouts, algorithm, TrainerConfig(row=32), max_tokens=MAX_TOKENS,
                shuffle=unshuffled,
            )  # fmt: skip
            parts = score_parts(None, None, None, parts, algorithm, 8)
            known = RunningMean(mean=past, count=4)
            (part,), _ = AdvantageEstimator(algorithm, known)(rollouts, parts)
            (batch,), (signals,) = part.batches, part.signals
            order = batch.rollout_B[batch.sequence_RT[batch.mask_RT]].unique_consecutive().tolist()
            logp_M = torch.cat([logps[pair[n]] for n in order])
            values_M = objective(algorithm, logp_M, signals, batch, old_kl_coefficient=0).values_M
            values_RT = torch.zeros(batch.mask_RT.shape, dtype=torch.float64)
            value = aggregate(
                values_RT.masked_scatter(batch.mask_RT, values_M), batch.mask_RT, batch.sequence_RT,
                batch.lengths_B, part.counts, algorithm.aggregation,
            )  # fmt: skip
            (gradient_3,) = torch.autograd.grad(value, logits_3, retain_graph=True)
            total += sum(logps[i].detach().sum() for i in pair).exp() * gradient_3
        return total

    return enumerate_pairs


def true_gradient(logits, rewards):
    """The gradient of the expected reward."""
    logits_3 = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    shares = torch.stack([logp.sum().exp() for logp in token_logps(logits_3)])
    assert_close(shares.sum(), torch.ones((), dtype=torch.float64))
    (gradient_3,) = torch.autograd.grad(shares @ torch.tensor(rewards).double(), logits_3)
    return gradient_3


@pytest.mark.slow
@pytest.mark.parametrize("preset", UNBIASED)
@pytest.mark.parametrize("rewards", [[1, 0, 0, 0, 0], [0, 1, 0, 1, 2], [0.5, -1, 3, 0.25, 0.75]])
def test_the_expected_gradient_is_that_of_the_expected_reward(expected_gradient, preset, rewards):
    rewards = [float(reward) for reward in rewards]
    want = true_gradient(SKEWED, rewards)
    got = MAX_TOKENS * expected_gradient(AlgorithmConfig(preset=preset), SKEWED, rewards, past=0.5)
    assert want.norm() > 0.05
    assert_close(got, want, atol=1e-6, rtol=0)


@pytest.mark.parametrize("preset", ["reinforce", "vpg"])
def test_equal_rewards_of_a_short_and_a_long_answer_pull_nowhere(expected_gradient, preset):
    """Answers of 1 and of 3 tokens, as likely as each other; each earns 1."""
    even, rewards = [0.0, 0.0, 0.0], [1.0] * 5
    plain = AlgorithmConfig(preset=preset)
    assert expected_gradient(plain, even, rewards).abs().max() < 1e-9
    by_length = AlgorithmConfig(preset=preset, aggregation="sequence_mean")
    assert expected_gradient(by_length, even, rewards)[0].item() == pytest.approx(1 / 6)


def test_a_baseline_does_not_mend_a_mean_over_each_response(expected_gradient):
    rewards = [0.0, 1.0, 0.0, 1.0, 2.0]
    by_length = AlgorithmConfig(preset="rloo", aggregation="sequence_mean")
    got, want = expected_gradient(by_length, SKEWED, rewards), true_gradient(SKEWED, rewards)
    third = want / 3  # what tokens of the long responses weigh; the first is of the short one too
    assert_close(got[1:], third[1:], atol=1e-6, rtol=0)
    assert got[0] / want[0] == pytest.approx(0.6, abs=0.05)
