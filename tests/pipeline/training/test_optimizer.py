"""The optimizer: who gets Muon, how fast it goes, what it refuses, and that it can be resumed."""

import copy
import math

import pytest
import torch
from torch import nn
from transformers import get_cosine_schedule_with_warmup

from veriloop.pipeline.config.sections import OptimizerConfig, TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.training.optimizer import Optimizer, schedule


class Scalar(nn.Module):
    """One parameter with a gradient that a test chooses."""

    def __init__(self, value=1.0):
        super().__init__()
        self.x = nn.Parameter(torch.tensor([value]))

    def pulled(self, gradient):
        self.x.grad = torch.tensor([gradient])
        return self


def learn(model, optimizer, steps, first=0):
    """Steps on a loss that differs from step to step."""
    told = []
    for done in range(first, first + steps):
        ids = torch.tensor([[1, 5 + done, 9, 3, 30 - done]])
        model(input_ids=ids, labels=ids).loss.backward()
        told.append(optimizer.step(done / 10, done))
    return told


def parameters(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


BOTH = OptimizerConfig(
    learning_rate=0.01,
    muon_learning_rate=0.02,
    warmup_steps=3,
    schedule="cosine",
    weight_decay=0.1,
)


def test_muon_gets_exactly_the_matrices_of_the_blocks(tiny_llama):
    model = tiny_llama(layers=2)
    adam, muon = Optimizer(model, BOTH)._parts
    assert isinstance(adam, torch.optim.AdamW) and isinstance(muon, torch.optim.Muon)
    names = {id(p): name for name, p in model.named_parameters()}
    given = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    inside = [f"self_attn.{x}_proj" for x in "qkvo"] + [
        f"mlp.{x}_proj" for x in ("gate", "up", "down")
    ]
    assert given == {f"model.layers.{i}.{part}.weight" for i in (0, 1) for part in inside}
    rest = {names[id(p)] for group in adam.param_groups for p in group["params"]}
    assert rest == set(names.values()) - given
    assert {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"} <= rest


def test_muon_alone_trains_adapters_and_is_refused_where_it_would_train_nothing(tiny_llama):
    adapted = prepare(tiny_llama(), TrainerConfig(lora={"rank": 2}))
    optimizer = Optimizer(adapted, BOTH)
    (muon,) = optimizer._parts
    assert isinstance(muon, torch.optim.Muon)
    sum(p.square().sum() for p in optimizer.parameters).backward()
    assert optimizer.step(0.0, BOTH.warmup_steps)[1] == pytest.approx(BOTH.muon_learning_rate)
    with pytest.raises(RecipeError, match=r"muon_learning_rate=.* of Linear is trained; set 0"):
        Optimizer(torch.nn.Linear(4, 4), BOTH)


def test_the_blocks_of_other_families_are_found():
    blocks = torch.nn.ModuleDict({"h": torch.nn.ModuleList([torch.nn.Linear(4, 4)])})
    model = torch.nn.ModuleDict({"transformer": blocks, "lm_head": torch.nn.Linear(4, 9)})
    adam, muon = Optimizer(model, BOTH)._parts
    assert [p.shape for p in muon.param_groups[0]["params"]] == [(4, 4)]
    assert len(adam.param_groups[0]["params"]) == 3


def test_without_muon_adamw_has_every_parameter_once(tiny_llama):
    model = tiny_llama(layers=2)
    optimizer = Optimizer(model, OptimizerConfig(learning_rate=0.1))
    assert len(optimizer._parts) == 1
    held = [id(p) for p in optimizer.parameters]
    assert sorted(held) == sorted(id(p) for p in model.parameters())


def test_every_weight_of_adamw_decays(tiny_llama):
    model = tiny_llama()
    optimizer = Optimizer(model, OptimizerConfig(learning_rate=0.01, weight_decay=0.5))
    before = parameters(model)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step(0.0, 0)
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.detach(), before[name] * (1 - 0.01 * 0.5))


@pytest.mark.slow
def test_each_part_has_its_own_peak_rate_and_both_follow_one_schedule(tiny_llama):
    model = tiny_llama()
    optimizer = Optimizer(model, BOTH)
    (_, rate), = learn(model, optimizer, 1, first=1)  # fmt: skip
    factor = 2 / 3
    rates = [part.param_groups[0]["lr"] for part in optimizer._parts]
    assert rates == pytest.approx([0.01 * factor, 0.02 * factor])
    assert rate == pytest.approx(0.01 * factor)
    learn(model, optimizer, 1, first=5)
    factor = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (5 - 3) / (10 - 3)))
    rates = [part.param_groups[0]["lr"] for part in optimizer._parts]
    assert rates == pytest.approx([0.01 * factor, 0.02 * factor])


@pytest.mark.parametrize(
    ("done", "factor"), [(0, 0.25), (1, 0.5), (2, 0.75), (3, 1.0), (4, 1.0), (100, 1.0)]
)
def test_the_warm_up_is_linear_and_starts_above_zero(done, factor):
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=4)
    assert schedule(config, 0.5, done) == factor
    assert schedule(OptimizerConfig(learning_rate=1.0), 0.5, done) == 1.0


@pytest.mark.parametrize(
    ("progress", "factor"),
    [(0.0, 1.0), (0.25, 0.2 + 0.8 * 0.853553), (0.5, 0.6), (1.0, 0.2), (1.5, 0.2), (-0.5, 1.0)],
)
def test_the_cosine_falls_from_the_peak_to_the_floor(progress, factor):
    config = OptimizerConfig(learning_rate=1.0, schedule="cosine", floor=0.2)
    assert schedule(config, progress, 0) == pytest.approx(factor, abs=1e-6)


def test_the_cosine_begins_at_the_peak_where_the_warm_up_ends():
    """40 steps, 8 of warm-up: half of the 32 others is step 24. In transformers it is the same."""
    config = OptimizerConfig(learning_rate=1.0, schedule="cosine", floor=0.2, warmup_steps=8)
    factors = [schedule(config, done / 40, done) for done in range(41)]
    assert factors[:8] == [pytest.approx((done + 1) / 8) for done in range(8)]
    assert factors[8] == 1.0 and factors[24] == pytest.approx(0.6)
    assert factors[40] == pytest.approx(0.2)
    no_floor = config.model_copy(update={"floor": 0.0})
    weight = torch.nn.Parameter(torch.zeros(1))
    peer = get_cosine_schedule_with_warmup(torch.optim.SGD([weight], lr=1.0), 8, 40)
    for done in range(9, 41):
        expected = peer.lr_lambdas[0](done)
        assert schedule(no_floor, done / 40, done) == pytest.approx(expected, abs=1e-9)


def test_a_warm_up_that_fills_the_run_never_decays():
    config = OptimizerConfig(learning_rate=1.0, schedule="cosine", warmup_steps=8)
    assert [schedule(config, done / 8, done) for done in (0, 7, 8)] == [0.125, 1.0, 1.0]
    assert schedule(config, 1.0, 4) == 0.625


def test_two_steps_of_adamw_by_hand():
    """m and v with betas 0.5 and 0.75, both corrected for their start at zero; decay first."""
    config = OptimizerConfig(
        learning_rate=0.1, betas=(0.5, 0.75), weight_decay=0.2, max_grad_norm=100.0
    )
    model = Scalar(1.0).pulled(2.0)
    optimizer = Optimizer(model, config)
    optimizer.step(0.0, 0)
    first = 1.0 * (1 - 0.1 * 0.2) - 0.1 * 2.0 / 2.0
    assert model.x.item() == pytest.approx(first, abs=1e-6)
    model.pulled(-1.0)
    optimizer.step(0.0, 1)
    m, v = (0.5 * 1.0 + 0.5 * -1.0) / 0.75, (0.75 * 1.0 + 0.25 * 1.0) / 0.4375
    assert model.x.item() == pytest.approx(first * 0.98 - 0.1 * m / math.sqrt(v), abs=1e-6)


def test_a_long_gradient_is_cut_to_its_bound_and_its_length_reported():
    model = Scalar().pulled(8.0)
    optimizer = Optimizer(
        model, OptimizerConfig(learning_rate=0.1, betas=(0.5, 0.5), max_grad_norm=2.0)
    )
    norm, rate = optimizer.step(0.0, 0)
    state = optimizer._parts[0].state[model.x]
    assert (norm, rate) == (8.0, 0.1)
    assert state["exp_avg"].item() == pytest.approx(1.0, abs=1e-5)  # half of the 2 that is left
    model.pulled(-1.0)
    assert optimizer.step(0.0, 1)[0] == 1.0
    assert state["exp_avg"].item() == pytest.approx(0.0, abs=1e-5)  # a short one is not stretched


def test_the_norm_is_taken_over_both_parts_together(tiny_llama):
    model = tiny_llama()
    ids = torch.tensor([[1, 5, 9, 3]])
    model(input_ids=ids, labels=ids).loss.backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()
    norm, _ = Optimizer(model, BOTH).step(0.0, 0)
    assert norm == pytest.approx(expected, rel=1e-5)


def test_a_step_clears_the_gradients_and_moves_every_parameter(tiny_llama):
    model = tiny_llama()
    before, optimizer = parameters(model), Optimizer(model, BOTH)
    learn(model, optimizer, 1)
    assert all(p.grad is None for p in model.parameters())
    assert not [n for n, p in model.named_parameters() if torch.equal(p, before[n])]


def test_what_is_forgotten_moves_nothing(tiny_llama):
    model = tiny_llama()
    optimizer = Optimizer(model, BOTH)
    ids = torch.tensor([[1, 5, 9, 3]])
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.forget()
    assert all(p.grad is None for p in model.parameters())


def test_each_part_has_its_own_decay_and_keeps_it_and_its_betas_over_a_state(tiny_llama):
    model = tiny_llama()
    mine = BOTH.model_copy(update={"muon_weight_decay": 0.3, "betas": (0.5, 0.6)})
    other, optimizer = Optimizer(model, BOTH), Optimizer(model, mine)
    learn(model, other, 1)
    optimizer.load(other.state())
    adam, muon = (part.param_groups[0] for part in optimizer._parts)
    assert (adam["weight_decay"], muon["weight_decay"]) == (0.1, 0.3)
    assert adam["betas"] == (0.5, 0.6) and adam["lr"] == 0.01


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_is_refused_before_any_weight_moves(tiny_llama, bad):
    model = tiny_llama()
    optimizer = Optimizer(model, BOTH)
    learn(model, optimizer, 1)
    before, state = parameters(model), copy.deepcopy(optimizer.state())
    ids = torch.tensor([[1, 5, 9, 3]])
    model(input_ids=ids, labels=ids).loss.backward()
    model.lm_head.weight.grad[3, 3] = bad
    with pytest.raises(FloatingPointError, match=r"norm is (nan|inf) at optimizer step 12"):
        optimizer.step(0.0, 12)
    assert same(parameters(model), before)
    moments = [part.state_dict()["state"] for part in optimizer._parts]
    for kept, now in zip(state, moments, strict=True):
        for index, values in kept["state"].items():
            assert all(torch.equal(v, now[index][k]) for k, v in values.items())


@pytest.mark.parametrize("muon", [0.0, 0.02])
def test_a_state_from_a_file_continues_bit_for_bit(tiny_llama, tmp_path, muon):
    config = BOTH.model_copy(update={"muon_learning_rate": muon})
    straight, halfway = tiny_llama(), tiny_llama()
    told = learn(straight, Optimizer(straight, config), 6)
    optimizer = Optimizer(halfway, config)
    learn(halfway, optimizer, 3)
    torch.save((optimizer.state(), halfway.state_dict()), tmp_path / "state.pt")
    states, weights = torch.load(tmp_path / "state.pt", weights_only=True)
    resumed = tiny_llama(seed=9)
    resumed.load_state_dict(weights)
    fresh = Optimizer(resumed, config)
    fresh.load(states)
    assert learn(resumed, fresh, 3, first=3) == told[3:]
    assert same(parameters(resumed), parameters(straight))
    forgetful = Optimizer(halfway, config)
    learn(halfway, forgetful, 3, first=3)
    assert not same(parameters(halfway), parameters(straight))


def test_a_state_of_another_composition_is_refused(tiny_llama):
    model = tiny_llama()
    both, alone = Optimizer(model, BOTH), Optimizer(model, OptimizerConfig(learning_rate=0.1))
    with pytest.raises(ValueError, match="1 optimizer states for 2 optimizers"):
        both.load(alone.state())
