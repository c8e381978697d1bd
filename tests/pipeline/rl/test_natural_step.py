"""TRPO's step on a small policy, against the explicit Fisher matrix of its tokens."""

import math
from dataclasses import replace

import pytest
import torch

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.sections import OptimizerConfig
from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.model.policy import logp_entropy
from veriloop.pipeline.rl import natural_step as natural
from veriloop.pipeline.rl import update as update_of
from veriloop.pipeline.rl.natural_step import (
    Fisher,
    gradient_of,
    natural_step,
    trained,
)
from veriloop.pipeline.rl.trust_region import ATTEMPTS, distance
from veriloop.pipeline.rl.update import TokenTrace, UpdateContext, update
from veriloop.pipeline.training.optimizer import Optimizer

CHUNK, DAMPING = 16, 0.1
TRPO = AlgorithmConfig(
    objective="natural_gradient", trust_region=0.01, minibatches=1, aggregation="token_mean",
    kl_coefficient=0.0,
)  # fmt: skip


@pytest.fixture
def small(tiny_llama, sampled, whole):
    """(model, part): a policy of which 96 weights are trained, those of its norms."""
    model = tiny_llama(spread=0.2)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("norm" in name)
    advantages = torch.tensor([1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 0.25, -0.25])
    return model, whole(sampled(model, 8, temperature=0.8), advantages, row=16, rows=2)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def jacobian(model, part):
    """The gradient of each token's log-prob, [M, P]."""
    rows = []
    for batch in part.batches:
        logp_M, _ = logp_entropy(model, batch, CHUNK)
        for logp in logp_M:
            gradients = torch.autograd.grad(logp, trained(model), retain_graph=True)
            rows.append(torch.cat([g.flatten() for g in gradients]))
    return torch.stack(rows).double()


def explicit(model, part, damping=DAMPING):
    tokens = jacobian(model, part)
    identity = torch.eye(tokens.shape[1], dtype=torch.float64)
    return tokens.T @ tokens / len(tokens) + damping * identity


def fisher(model, part, damping=DAMPING):
    return Fisher(policy=model, minibatch=part, chunk=CHUNK, damping=damping)


@pytest.mark.parametrize("damping", [0.0, 0.7])
def test_products_are_those_of_the_explicit_matrix_and_leave_the_policy_alone(small, damping):
    model, part = small
    assert len(part.batches) > 1
    matrix, before = explicit(model, part, damping), weights(model)
    product = fisher(model, part, damping)
    generator = torch.Generator().manual_seed(1)
    for size in (1.0, 1e-4, 1e3):
        vector = size * torch.randn(matrix.shape[0], generator=generator)
        want = matrix @ vector.double()
        assert (product(vector).double() - want).norm() < 2e-3 * want.norm()
    assert not product(torch.zeros(matrix.shape[0])).any()
    assert torch.equal(weights(model), before)
    assert all(p.grad is None for p in model.parameters())


def test_a_gradient_that_was_there_before_is_no_part_of_a_product(small):
    model, part = small
    vector = torch.ones_like(gradient_of(model))
    want = fisher(model, part)(vector)
    for parameter in trained(model):
        parameter.grad = torch.ones_like(parameter)
    assert torch.equal(fisher(model, part)(vector), want)


def test_a_product_over_a_single_token_is_that_of_its_gradient(tiny_llama, graded, whole):
    model = tiny_llama(spread=0.2)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("norm" in name)
    part = whole([graded((1, 2), (3,))], torch.ones(1))
    matrix = explicit(model, part, damping=0.0)
    vector = torch.randn(len(matrix), generator=torch.Generator().manual_seed(1))
    want = matrix @ vector.double()
    assert (fisher(model, part, damping=0.0)(vector) - want).norm() < 2e-3 * want.norm()


@pytest.mark.parametrize(
    ("weight", "slope", "reaches"),
    [
        (5.0, 2.0, [0.005]),  # a thousandth of the weights' norm, which moves log-probs by 0.01
        (5.0, 0.41, [0.005]),
        (5.0, 0.39, [0.005, 0.01 / 0.39]),
        (5.0, 9.9, [0.005]),
        (5.0, 10.1, [0.005, 0.01 / 10.1]),
        (5.0, 0.0, [0.005, 0.5, 50.0, 5000.0]),
        (5.0, 0.001, [0.005, 0.5, 10.0]),
        (0.0, 1e4, [1e-6]),
        (5.0, math.nan, [0.005, 5e-4, 5e-5, 5e-6]),
        (5.0, math.inf, [0.005, 5e-4, 5e-5, 5e-6]),
    ],
)
def test_a_difference_is_taken_again_until_it_moves_log_probs_by_about_a_hundredth(
    small, monkeypatch, weight, slope, reaches
):
    """A log-prob that is linear in the one weight."""
    policy, asked = torch.nn.Linear(1, 1, bias=False), []
    torch.nn.init.constant_(policy.weight, weight)

    def logp_entropy(policy, batch, chunk):
        asked.append(policy.weight.item())
        return slope * (policy.weight.flatten() - weight), None

    monkeypatch.setattr(natural, "logp_entropy", logp_entropy)
    _, part = small
    part = replace(part, batches=part.batches[:1], signals=part.signals[:1])
    product = fisher(policy, part, damping=0.0)(torch.tensor([3.0]))
    *places, last = asked
    assert places[::2] == pytest.approx([weight + reach for reach in reaches])
    assert places[1::2] == pytest.approx([weight - reach for reach in reaches])
    assert last == weight
    if math.isfinite(slope):
        want = slope**2 * 3.0 / part.counts.tokens
        assert product.item() == pytest.approx(want, rel=0.02)


def test_the_next_product_begins_with_the_reach_that_suited_the_last(small, monkeypatch):
    policy, asked = torch.nn.Linear(1, 1, bias=False), []
    torch.nn.init.constant_(policy.weight, 5.0)

    def logp_entropy(policy, batch, chunk):
        asked.append(policy.weight.item())
        return 0.2 * (policy.weight.flatten() - 5.0), None

    monkeypatch.setattr(natural, "logp_entropy", logp_entropy)
    _, part = small
    part = replace(part, batches=part.batches[:1], signals=part.signals[:1])
    product = fisher(policy, part)
    product(torch.ones(1))
    asked.clear()
    product(torch.ones(1))
    assert asked == pytest.approx([5.05, 4.95, 5.0])


def test_a_step_makes_ten_products_with_a_tenth_of_the_identity_unless_told_otherwise(small):
    model, part = small
    products = []

    class Counted(Fisher):
        def __call__(self, vector_P):
            products.append((vector_P.clone(), Fisher.__call__(self, vector_P)))
            return products[-1][1].clone()

    surrogate(model, part)[1].backward()
    own = Counted(policy=model, minibatch=part, chunk=CHUNK)
    matrix = explicit(model, part, damping=0.1)
    surrogate(model, part)[1].backward()
    natural_step(own, 0.1, loss=0.0, measure=lambda: (0.0, -1.0), done=0)
    assert len(products) == 10
    for vector, product in products:
        want = matrix @ vector.double()
        assert (product.double() - want).norm() < 2e-3 * want.norm()


def surrogate(model, part):
    """(KL(old || policy), -mean over tokens of ratio * advantage)."""
    total, tokens = 0.0, 0
    for batch, signals in zip(part.batches, part.signals, strict=True):
        logp_M, _ = logp_entropy(model, batch, CHUNK)
        total = total - ((logp_M - signals.old_M).exp() * signals.advantages_M).sum()
        tokens += len(logp_M)
    return distance(model, part, CHUNK), total / tokens


@pytest.mark.slow
def test_a_step_goes_along_the_natural_gradient_as_far_as_the_bound_allows(small):
    model, part = small
    bound, before = 1e-3, weights(model)
    _, loss = surrogate(model, part)
    loss.backward()
    gradient = gradient_of(model)
    natural = torch.linalg.solve(explicit(model, part), -gradient.double())

    def measure():
        kl, now = surrogate(model, part)
        return kl, now.item()

    norm, factor, share = natural_step(
        fisher(model, part), bound, iterations=40, loss=loss.item(), measure=measure, done=0
    )
    places = torch.cat([torch.full((p.numel(),), p.requires_grad) for p in model.parameters()])
    moved = (weights(model) - before)[places].double()
    assert torch.nn.functional.cosine_similarity(moved, natural, dim=0) > 0.999
    quadratic = (natural @ explicit(model, part) @ natural).item()
    assert norm == pytest.approx(gradient.norm().item())
    assert factor == pytest.approx(share * math.sqrt(2 * bound / quadratic), rel=0.02)
    kl, after = measure()
    assert 0.2 * bound < kl <= bound and after < loss.item()
    assert torch.equal(weights(model)[~places], before[~places])


def test_a_longer_step_than_the_quadratic_model_foresees_is_halved(small):
    model, part = small
    before, taken = weights(model), []
    for measured in ([0.1], [0.3, 0.2, 0.1]):
        surrogate(model, part)[1].backward()
        kls = iter(measured)
        _, factor, share = natural_step(
            fisher(model, part),
            0.1,
            iterations=2,
            loss=0.0,
            measure=lambda kls=kls: (next(kls), -1.0),
            done=0,
        )
        taken.append((weights(model) - before, factor, share))
        torch.nn.utils.vector_to_parameters(before.clone(), model.parameters())
    (whole_P, whole_factor, first), (quarter_P, factor, share) = taken
    assert (first, share) == (1.0, 0.25) and factor == pytest.approx(whole_factor / 4, rel=1e-4)
    assert torch.nn.functional.cosine_similarity(whole_P, quarter_P, dim=0) > 0.9999
    assert quarter_P.norm().item() == pytest.approx(whole_P.norm().item() / 4, rel=1e-3)


def test_a_move_by_nothing_is_exact_whatever_the_direction(small):
    model, _ = small
    before = weights(model)
    start = natural.copied(model)
    for direction in (1.0, math.nan, math.inf):
        natural.move(model, start, torch.full_like(gradient_of(model), direction), 0.0)
        assert torch.equal(weights(model), before)


@pytest.mark.parametrize("measured", [(1.0, -1.0), (0.0, 1.0), (0.0, 0.0), (math.nan, -1.0)])
def test_a_step_that_never_suits_is_taken_back(small, measured):
    """Too far, or no gain of the surrogate, or no number."""
    model, part = small
    before, trials = weights(model), []
    surrogate(model, part)[1].backward()
    norm = gradient_of(model).norm().item()

    def measure():
        trials.append(weights(model))
        return measured

    told = natural_step(fisher(model, part), 0.1, iterations=2, loss=0.0, measure=measure, done=0)
    assert told == (pytest.approx(norm), 0.0, 0.0) and torch.equal(weights(model), before)
    assert len(trials) == ATTEMPTS == 10


def test_a_gradient_that_is_no_number_stops_before_the_step(small):
    model, part = small
    before = weights(model)
    trained(model)[0].grad = torch.full_like(trained(model)[0], math.inf)
    with pytest.raises(NonFiniteError, match="gradient norm is inf at optimizer step 7"):
        natural_step(
            fisher(model, part), 0.1, iterations=2, loss=0.0, measure=lambda: (0.0, 0.0), done=7
        )
    assert torch.equal(weights(model), before)


def test_an_update_of_the_preset_raises_the_surrogate_within_its_bound(small):
    model, part = small
    optimizer = Optimizer(model, OptimizerConfig(learning_rate=1.0))
    context = UpdateContext(policy=model, optimizer=optimizer, algorithm=TRPO, chunk=CHUNK)
    _, before = surrogate(model, part)
    done = update(context, part, progress=0.0, done=0)
    kl, after = surrogate(model, part)
    assert after < before and 0.1 * TRPO.trust_region < kl <= TRPO.trust_region
    assert done.kept in {2.0**-n for n in range(10)} and done.learning_rate > 0
    assert done.grad_norm > 0 and all(p.grad is None for p in model.parameters())
    assert not optimizer.state()[0]["state"]  # the optimizer took no step


def test_without_advantages_there_is_no_direction_and_no_step(small):
    model, part = small
    before = weights(model)
    optimizer = Optimizer(model, OptimizerConfig(learning_rate=1.0))
    context = UpdateContext(policy=model, optimizer=optimizer, algorithm=TRPO, chunk=CHUNK)
    still = tuple(replace(s, advantages_M=torch.zeros_like(s.advantages_M)) for s in part.signals)
    done = update(context, replace(part, signals=still), progress=0.0, done=0)
    assert (done.kept, done.learning_rate, done.grad_norm) == (0.0, 0.0, 0.0)
    assert torch.equal(weights(model), before) and all(p.grad is None for p in trained(model))


def test_what_is_recorded_of_a_natural_step_is_what_it_begins_with(small):
    model, part = small
    before = [logp_entropy(model, batch, CHUNK)[0].detach() for batch in part.batches]
    optimizer, trace = Optimizer(model, OptimizerConfig(learning_rate=1.0)), TokenTrace()
    context = UpdateContext(
        policy=model, optimizer=optimizer, algorithm=TRPO, chunk=CHUNK, trace=trace
    )
    update(context, part, progress=0.0, done=0)
    tokens = {n: one.logp_T for n, one in trace.seen.items()}
    for batch, logp_M in zip(part.batches, before, strict=True):
        owner_M = batch.rollout_B[batch.sequence_RT[batch.mask_RT]]
        for n in owner_M.unique().tolist():
            assert torch.equal(tokens[n], logp_M[owner_M == n])


@pytest.mark.parametrize("tokens", [1, 3])
def test_the_kl_that_bounds_a_natural_step_is_the_mean_over_the_steps_tokens(
    tiny_llama, graded, whole, monkeypatch, tokens
):
    model = tiny_llama()
    part = whole([graded((1, 2), (3,) * tokens)], torch.ones(1))
    logp = logp_entropy(model, part.batches[0], CHUNK)[0].detach()
    part = replace(part, signals=(replace(part.signals[0], old_M=logp + 0.3),))
    found = []

    def noted(fisher, bound, *, loss, measure, done):
        found.append((measure(), loss, done, bound))
        return 0.0, 0.0, 0.0

    monkeypatch.setattr(update_of, "natural_step", noted)
    optimizer = Optimizer(model, OptimizerConfig(learning_rate=1.0))
    context = UpdateContext(policy=model, optimizer=optimizer, algorithm=TRPO, chunk=CHUNK)
    update(context, part, progress=0.0, done=7)
    (((kl, measured), loss, done, bound),) = found
    each = math.exp(-0.3) - 1 + 0.3  # the estimate of KL(old || policy) at one token
    assert kl == pytest.approx(each, rel=1e-4)
    assert measured == pytest.approx(loss) and (done, bound) == (7, TRPO.trust_region)
