"""A step that goes too far is shortened until it does not; one that cannot be is taken back."""

import copy

import pytest
import torch

from veriloop.pipeline.rl import trust_region
from veriloop.pipeline.rl.trust_region import distance, step_within

CHUNK = 16


@pytest.fixture
def moved(tiny_llama, sampled, whole):
    """Function: (model, part, step), where the step moves every weight by noise of this size."""

    def build(size, count=4, longest=6):
        model = tiny_llama(spread=0.2)
        part = whole(sampled(model, count, longest=longest), torch.ones(count))

        def step():
            torch.manual_seed(3)
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(size * torch.randn_like(p))
            return 1.5, 0.25

        return model, part, step

    return build


def weights(model):
    return torch.cat([p.detach().clone().flatten() for p in model.parameters()])


def test_a_step_within_the_bound_stands_as_it_is(moved):
    model, part, step = moved(1e-3)
    free = copy.deepcopy(model)
    assert step_within(0.1, model, part, CHUNK, step) == (1.5, 0.25, 1.0)
    assert 0 < distance(model, part, CHUNK) <= 0.1
    assert not torch.equal(weights(model), weights(free))


def test_a_longer_one_is_halved_until_it_is_within(moved):
    model, part, step = moved(0.3)
    before = weights(model)
    *_, share = step_within(0.01, model, part, CHUNK, step)
    assert share in {2.0**-n for n in range(1, 10)} and distance(model, part, CHUNK) <= 0.01
    kept = weights(model) - before
    twice, place = copy.deepcopy(model), 0
    with torch.no_grad():
        for p in twice.parameters():  # as far again would have been too far
            p.add_(kept[place : place + p.numel()].view_as(p))
            place += p.numel()
    assert distance(twice, part, CHUNK) > 0.01


def test_a_step_that_is_too_long_at_every_length_is_taken_back(moved):
    model, part, step = moved(5.0)
    before = weights(model)
    assert step_within(1e-12, model, part, CHUNK, step)[2] == 0.0
    assert torch.equal(weights(model), before)


@pytest.mark.parametrize(("count", "longest"), [(4, 6), (1, 1)])
def test_the_distance_is_the_mean_kl_of_old_to_new_per_token(count, longest, moved):
    model, part, step = moved(0.05, count, longest)
    assert distance(model, part, CHUNK) == pytest.approx(0.0, abs=1e-9)
    step()
    from veriloop.pipeline.model.policy import logp_entropy

    total, count = 0.0, 0
    with torch.no_grad():
        for batch, one in zip(part.batches, part.signals, strict=True):
            gap = logp_entropy(model, batch, CHUNK)[0] - one.old_M
            total += (gap.exp() - 1 - gap).sum().item()
            count += len(gap)
    assert distance(model, part, CHUNK) == pytest.approx(total / count, rel=1e-4)


def test_ten_lengths_are_tried(moved, monkeypatch):
    model, part, step = moved(0.1)
    measured = []
    monkeypatch.setattr(trust_region, "distance", lambda *_: measured.append(1) or 1.0)
    assert step_within(0.5, model, part, CHUNK, step)[2] == 0.0
    assert len(measured) == 10


def test_the_distance_is_summed_in_double_precision(moved, monkeypatch):
    model, part, _ = moved(0.1)
    kl_M = torch.tensor([2.0**24, 1.0])  # their sum is no float32
    monkeypatch.setattr(trust_region, "old_policy_kl", lambda *_: kl_M)
    assert distance(model, part, CHUNK) * part.counts.tokens == pytest.approx(2**24 + 1, rel=1e-12)
