"""One optimizer step against the paper's equations, written as a loop over single tokens."""

import copy
import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.sections import OptimizerConfig, TrainerConfig
from veriloop.pipeline.losses.advantages import RunningMean
from veriloop.pipeline.model.policy import logp_entropy
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.rl.estimator import outcome_advantages
from veriloop.pipeline.rl.minibatches import minibatches
from veriloop.pipeline.rl.update import UpdateContext, update
from veriloop.pipeline.training.optimizer import Optimizer

MODES = ("sequence_mean", "token_mean", "constant")
MAX_TOKENS = 9  # those of the minibatches that the fixture `whole` makes
CHUNK = 5


def advantages(rollouts, algorithm):
    return outcome_advantages(rollouts, algorithm, RunningMean())[0]


def scored(model, batch):
    """The model's own log-probs of a batch, [M]."""
    with torch.no_grad():
        return logp_entropy(model, batch, CHUNK)[0]


def flat(tensors):
    return torch.cat([x.flatten() for x in tensors])


def weights(model):
    return flat([p.detach().clone() for p in model.parameters()])


def objective(ratio, advantage, algorithm):
    """One token's clipped objective, in words: never more than the unclipped one."""
    bounded = torch.clamp(ratio, 1 - algorithm.clip_low, 1 + algorithm.clip_high)
    value = min(ratio * advantage, bounded * advantage)
    if algorithm.dual_clip and advantage < 0:
        value = max(value, torch.tensor(algorithm.dual_clip * advantage))
    return value


def by_hand(scores, model, rollouts, advantages_N, algorithm, *, reference=None, old=None):
    """(-J, sums of what is measured), token by token, for `rollouts` as they are."""
    loss, total = 0.0, sum(len(g.rollout.response_ids) for g in rollouts)
    sums = dict.fromkeys(("kl", "entropy", "low", "high", "ratio", "gap"), 0.0) | {"widest": 0.0}
    for g, a in zip(rollouts, advantages_N.tolist(), strict=True):
        r = g.rollout
        asked = (r.prompt_ids, r.response_ids, r.temperature)
        logp, entropy = scores(model, *asked)
        with torch.no_grad():
            ref = None if reference is None else scores(reference, *asked)[0]
            before = torch.tensor(r.logp) if old is None else scores(old, *asked)[0]
        values = []
        for t in range(len(logp)):
            ratio = (logp[t] - before[t]).exp()
            value = objective(ratio, a, algorithm)
            if algorithm.old_logp == "trainer":
                value = value * min(math.exp(before[t] - r.logp[t]), algorithm.mismatch_cap)
            if ref is not None:
                kl = (ref[t] - logp[t]).exp() - (ref[t] - logp[t]) - 1
                value = value - algorithm.kl_coefficient * kl
                sums["kl"] += kl.item()
            values.append(value)
            gap = abs(logp[t].item() - r.logp[t])
            sums["widest"] = max(sums["widest"], gap)
            sums["gap"] += gap
            sums["entropy"] += entropy[t].item()
            sums["ratio"] += ratio.item()
            dual = algorithm.dual_clip or math.inf
            sums["low"] += a < 0 and not 1 - algorithm.clip_low <= ratio.item() <= dual
            sums["high"] += a > 0 and ratio.item() > 1 + algorithm.clip_high
        share = {
            "sequence_mean": 1 / len(values) / len(rollouts),
            "token_mean": 1 / total,
            "constant": 1 / (len(rollouts) * MAX_TOKENS),
        }[algorithm.aggregation]
        loss = loss - share * sum(values)
    means = {name: x / total for name, x in sums.items() if name != "widest"}
    return loss, means | {"widest": sums["widest"], "tokens": total}


def nearby(model, size):
    """The model as it may have been some steps ago."""
    other = copy.deepcopy(model)
    torch.manual_seed(5)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(size * torch.randn_like(p))
    return other


CASES = {
    "plain": ({"kl_coefficient": 0.0}, 1.0),
    "kl": ({"kl_coefficient": 0.3}, 1.0),
    "temperature": ({"kl_coefficient": 0.1}, 0.7),
    "asymmetric clip": ({"kl_coefficient": 0.0, "clip_low": 0.1, "clip_high": 0.35}, 1.0),
    "dual clip": ({"kl_coefficient": 0.0, "dual_clip": 1.1}, 1.0),
    "trainer's old": ({"kl_coefficient": 0.2, "old_logp": "trainer", "mismatch_cap": 1.2}, 0.8),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("aggregation", MODES)
def test_gradient_and_numbers_are_those_of_the_equations(
    tiny_llama, sampled, plain_scores, whole, stepped, aggregation, case
):
    settings, temperature = CASES[case]
    algorithm = AlgorithmConfig(aggregation=aggregation, **settings)
    model = tiny_llama(layers=2, spread=0.2)
    rollouts = sampled(model, 8, noise=0.6, temperature=temperature)
    advantages_N = advantages(rollouts, algorithm)
    policies = {
        "reference": nearby(model, 0.05) if algorithm.kl_coefficient else None,
        "old": nearby(model, 0.02) if algorithm.old_logp == "trainer" else None,
    }
    part = whole(rollouts, advantages_N, row=12, rows=2)
    got, done = stepped(model, part, algorithm, **policies)
    loss, means = by_hand(plain_scores, model, rollouts, advantages_N, algorithm, **policies)
    want = flat(torch.autograd.grad(loss, list(model.parameters())))
    assert len(part.batches) > 1
    assert (got - want).norm() / want.norm() < 1e-5
    assert done.loss == pytest.approx(loss.item(), abs=1e-5)
    found = {
        "kl": done.kl,
        "entropy": done.entropy,
        "low": done.clipped_low,
        "high": done.clipped_high,
        "ratio": done.ratio_mean,
        "gap": done.mismatch_mean,
        "widest": done.mismatch_max,
        "tokens": done.tokens,
    }
    assert found == pytest.approx(means, abs=1e-5)
    assert done.clipped_low > 0 or done.clipped_high > 0 or algorithm.old_logp == "trainer"


def test_the_means_of_a_single_token_are_its_own_numbers(tiny_llama, sampled, whole, stepped):
    model = tiny_llama(spread=0.2)
    one = sampled(model, 1, longest=1)
    _, done = stepped(model, whole(one, torch.ones(1)), AlgorithmConfig())
    assert done.tokens == 1 and done.ratio_mean == pytest.approx(1.0, abs=1e-5)
    assert 1.0 < done.entropy < math.log(40)


@pytest.mark.slow
@pytest.mark.parametrize("kl", [0.0, 0.5])
@pytest.mark.parametrize("aggregation", MODES)
def test_any_split_of_a_minibatch_gives_the_same_gradient(
    tiny_llama, sampled, whole, stepped, aggregation, kl
):
    algorithm = AlgorithmConfig(aggregation=aggregation, kl_coefficient=kl)
    model = tiny_llama(spread=0.2)
    reference = nearby(model, 0.05) if kl else None
    rollouts = sampled(model, 16, noise=0.3)
    advantages_N = advantages(rollouts, algorithm)
    gradients, numbers, pieces = [], [], set()
    for row, rows in itertools.product((1, 16, 256), (1, 3, 32)):
        part = whole(rollouts, advantages_N, row, rows)
        pieces.add(len(part.batches))
        gradient, done = stepped(model, part, algorithm, reference=reference)
        gradients.append(gradient)
        numbers.append([done.loss, done.kl, done.entropy, done.mismatch_max, done.ratio_mean])
    assert len(pieces) > 3 and gradients[0].norm() > 0.1
    for gradient, own in zip(gradients, numbers, strict=True):
        assert_close(gradient, gradients[0], atol=1e-6, rtol=1e-5)
        assert own == pytest.approx(numbers[0], abs=1e-6)


def test_the_order_of_the_rollouts_does_not_matter(tiny_llama, sampled, whole, stepped):
    model, algorithm = tiny_llama(spread=0.2), AlgorithmConfig()
    rollouts = sampled(model, 8, noise=0.3)
    one, _ = stepped(model, whole(rollouts, advantages(rollouts, algorithm)), algorithm)
    back = rollouts[::-1]
    other, _ = stepped(model, whole(back, advantages(back, algorithm)), algorithm)
    assert_close(one, other, atol=1e-6, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_prompts_that_stand_once_change_no_number_of_a_step(
    tiny_llama, plain_scores, graded, weighed, unshuffled, stepped, mode
):
    model, reference = (prepare(tiny_llama(spread=s), TrainerConfig()) for s in (0.2, 0.1))
    algorithm = AlgorithmConfig(minibatches=1, aggregation=mode, kl_coefficient=0.1)
    asked = [(5, 6, 7, 8), (9, 3), (5, 6, 7, 8)]
    answers = [tuple(range(3 + n, 4 + 2 * n)) for n in range(9)]
    rollouts = [
        graded(asked[n % 3], answer, logp=[-1.0 - n / 9] * len(answer), reward=float(n % 4))
        for n, answer in enumerate(answers)
    ]
    made = []
    for share in (False, True):
        parts = minibatches(
            rollouts, algorithm, TrainerConfig(row=16, rows=2), max_tokens=MAX_TOKENS,
            shuffle=unshuffled, share_prompts=share,
        )  # fmt: skip
        (part,) = weighed(parts, advantages(rollouts, algorithm))
        made.append(stepped(model, part, algorithm, reference=reference))
    (gradient, plain), (other, shared) = made
    assert_close(other, gradient, atol=1e-6, rtol=1e-4)
    for field in ("loss", "kl", "entropy", "clipped_low", "clipped_high", "ratio_mean", "tokens"):
        assert getattr(shared, field) == pytest.approx(getattr(plain, field), rel=1e-5, abs=1e-7)


@pytest.mark.slow
def test_the_first_minibatch_clips_nothing_and_later_ones_do(
    tiny_llama, sampled, unshuffled, weighed
):
    """Every minibatch keeps the log-probs of the policy that sampled all sixteen."""
    model, algorithm = tiny_llama(spread=0.2), AlgorithmConfig(minibatches=16, kl_coefficient=0.0)
    rollouts = sampled(model, 64)
    parts = minibatches(
        rollouts, algorithm, TrainerConfig(row=64, rows=4),
        max_tokens=MAX_TOKENS, shuffle=unshuffled,
    )  # fmt: skip
    parts = weighed(parts, advantages(rollouts, algorithm))
    optimizer = Optimizer(model, OptimizerConfig(learning_rate=0.01))
    learner = UpdateContext(policy=model, optimizer=optimizer, algorithm=algorithm, chunk=64)
    updates = [update(learner, part, progress=0.0, done=i) for i, part in enumerate(parts)]
    clipped = [u.clipped_low + u.clipped_high for u in updates]
    assert len(updates) == 16
    assert clipped[0] == 0.0 and updates[0].ratio_mean == pytest.approx(1.0, abs=1e-5)
    assert updates[0].mismatch_max < 1e-5
    assert sum(c > 0 for c in clipped[1:]) > 8 and updates[-1].mismatch_mean > 0.05
    assert max(u.clipped_low for u in updates) > 0 and max(u.clipped_high for u in updates) > 0


def test_a_step_makes_praised_answers_likelier_and_blamed_ones_rarer(tiny_llama, sampled, whole):
    model, algorithm = tiny_llama(spread=0.2), AlgorithmConfig(kl_coefficient=0.0)
    part = whole(sampled(model, 2), torch.tensor([1.0, -1.0]))
    (batch,) = part.batches
    before, old = scored(model, batch), weights(model)
    optimizer = Optimizer(model, OptimizerConfig(learning_rate=1e-3))
    learner = UpdateContext(policy=model, optimizer=optimizer, algorithm=algorithm, chunk=9)
    done = update(learner, part, progress=0.0, done=0)
    moved = scored(model, batch) - before
    praised = part.signals[0].advantages_M > 0
    assert moved[praised].sum() > 0.01 and moved[~praised].sum() < -0.01
    assert done.learning_rate == 1e-3 and done.grad_norm > 0
    assert not torch.equal(weights(model), old)
    assert all(p.grad is None for p in model.parameters())


def test_the_optimizer_receives_the_progress_and_reports_what_it_did(
    tiny_llama, sampled, whole, stepped
):
    """`stepped` checks what its optimizer was told."""
    model = tiny_llama()
    part = whole(sampled(model, 4), torch.ones(4))
    _, done = stepped(model, part, AlgorithmConfig(), progress=0.75, done=41)
    assert (done.grad_norm, done.learning_rate) == (0.25, 0.125)


def test_without_a_reference_there_is_no_kl_whatever_its_coefficient(
    tiny_llama, sampled, whole, stepped
):
    model = tiny_llama(spread=0.2)
    part = whole(sampled(model, 4), torch.tensor([1.0, -1.0, 0.5, 0.0]))
    with_kl, done = stepped(model, part, AlgorithmConfig(kl_coefficient=0.5))
    without, _ = stepped(model, part, AlgorithmConfig(kl_coefficient=0.0))
    assert torch.equal(with_kl, without) and done.kl == 0.0


def test_no_gradient_reaches_the_reference_or_the_old_policy(tiny_llama, sampled, whole, stepped):
    model = tiny_llama(spread=0.2)
    others = {"reference": nearby(model, 0.1), "old": nearby(model, 0.1)}
    algorithm = AlgorithmConfig(kl_coefficient=0.5, old_logp="trainer")
    stepped(model, whole(sampled(model, 4), torch.ones(4)), algorithm, **others)
    assert all(p.grad is None for other in others.values() for p in other.parameters())


def test_zero_advantages_leave_the_kl_alone_to_pull(tiny_llama, sampled, whole, stepped):
    model = tiny_llama(spread=0.2)
    part = whole(sampled(model, 4, noise=0.4), torch.zeros(4))
    still, _ = stepped(model, part, AlgorithmConfig(kl_coefficient=0.0))
    pulled, _ = stepped(
        model, part, AlgorithmConfig(kl_coefficient=0.5), reference=nearby(model, 0.1)
    )
    assert still.count_nonzero() == 0 and pulled.norm() > 0.01


def test_the_trainers_own_old_scores_make_a_ratio_of_one_and_weigh_the_gap(
    tiny_llama, sampled, whole, stepped, shifted
):
    """A sampler off by a factor of e on every token: the weight is 1/e; else it is capped."""
    model, advantages_N = tiny_llama(spread=0.2), torch.tensor([1.0, -1.0])
    exact = sampled(model, 2)
    plain, _ = stepped(model, whole(exact, advantages_N), AlgorithmConfig())
    algorithm = AlgorithmConfig(old_logp="trainer", mismatch_cap=2.0)
    for shift, weight in ((1.0, math.exp(-1.0)), (-1.0, 2.0), (0.0, 1.0)):
        off = [shifted(g, shift) for g in exact]
        got, done = stepped(model, whole(off, advantages_N), algorithm, old=model)
        assert_close(got, weight * plain, atol=1e-6, rtol=1e-4)
        assert done.ratio_mean == pytest.approx(1.0, abs=1e-6)
        assert done.mismatch_mean == pytest.approx(abs(shift), abs=1e-5)


@pytest.mark.parametrize("place", ["loss", "reward"])
def test_the_recorded_kl_is_the_same_measure_whatever_estimator_is_trained_on(
    tiny_llama, sampled, whole, stepped, place
):
    model = tiny_llama(spread=0.2)
    part, reference = whole(sampled(model, 4), torch.ones(4)), nearby(model, 0.1)
    told = {
        estimator: stepped(
            model,
            part,
            AlgorithmConfig(
                kl_coefficient=0.1, kl_estimator=estimator, kl_placement=place, allow_biased=True
            ),
            reference=reference,
        )[1].kl
        for estimator in ("k1", "k2", "k3", "k3_corrected")
        if (estimator, place) != ("k3_corrected", "reward")
    }
    assert len(set(told.values())) == 1 and told["k3"] > 0
