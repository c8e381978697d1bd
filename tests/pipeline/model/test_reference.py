"""The reference: frozen, replaced on time, never stale, and absent where nothing looks at it."""

from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.model import reference
from veriloop.pipeline.model.reference import (
    Reference,
    StaleReferenceError,
    deciding_config,
    fingerprint,
    frozen_copy,
    sharing_copy,
)
from veriloop.pipeline.rl.learner import PolicyLearner

KL = AlgorithmConfig(kl_coefficient=0.5)


def move(model, by=0.01):
    with torch.no_grad():
        for p in model.parameters():
            p.add_(by)


def same(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_reference_is_a_frozen_copy_in_evaluation_mode(tiny_llama):
    policy = tiny_llama()
    reference = Reference(policy, every=5)
    assert policy.training and not reference.model.training
    assert same(policy, reference.model)
    assert not any(p.requires_grad for p in reference.model.parameters())
    assert all(p.requires_grad for p in policy.parameters())
    move(policy)
    assert not same(policy, reference.model)
    reference.check(0)


def test_a_reference_is_divided_among_the_ranks(tiny_llama):
    divided = []
    ranks = SimpleNamespace(shard=divided.append)
    assert divided == [Reference(tiny_llama(), every=5, ranks=ranks).model]


def test_a_config_is_the_same_whatever_its_order_and_where_it_decides_no_number():
    def config(**values):
        return deciding_config(SimpleNamespace(config=SimpleNamespace(to_dict=lambda: values)))

    plain = config(rope_theta=1e4, dtype=torch.float32)
    assert plain == config(dtype=torch.float32, rope_theta=1e4)
    assert plain == config(rope_theta=1e4, dtype=torch.float32, transformers_version="1")
    assert plain != config(rope_theta=1e5, dtype=torch.float32)


def test_the_kl_is_exactly_zero_until_the_policy_moves_and_again_after_a_swap(
    tiny_llama, sampled, whole, stepped
):
    policy = tiny_llama(spread=0.2)
    part = whole(sampled(policy, 4), torch.ones(4), row=12, rows=2)
    reference = Reference(policy, every=2)

    def kl():
        return stepped(policy, part, KL, reference=reference.model)[1].kl

    assert kl() == 0.0
    move(policy)
    assert kl() > 1e-4
    assert not reference.replace_when_due(policy, 1) and kl() > 1e-4
    assert reference.replace_when_due(policy, 2) and kl() == 0.0


def test_it_is_replaced_every_so_many_steps_counted_from_the_last_time(tiny_llama):
    policy = tiny_llama()
    reference = Reference(policy, every=3)
    replaced = [done for done in range(1, 14) if reference.replace_when_due(policy, done)]
    assert replaced == [3, 6, 9, 12]
    assert reference.replace_when_due(policy, 17)  # late by two: the next one is three on
    assert not reference.replace_when_due(policy, 19) and reference.replace_when_due(policy, 20)


def test_after_a_swap_it_is_the_policy_of_that_moment_and_still_frozen(tiny_llama):
    policy = tiny_llama()
    reference = Reference(policy, every=1)
    move(policy)
    reference.replace_when_due(policy, 1)
    assert same(policy, reference.model)
    assert reference.fingerprint == fingerprint(policy)
    assert not any(p.requires_grad for p in reference.model.parameters())
    reference.check(1)
    move(policy)
    assert not same(policy, reference.model)


def test_zero_means_never_replaced_and_never_overdue(tiny_llama):
    policy = tiny_llama()
    reference = Reference(policy, every=0)
    assert not any(reference.replace_when_due(policy, done) for done in (1, 100, 10_000))
    reference.check(10_000)


def test_an_overdue_reference_is_refused(tiny_llama):
    reference = Reference(tiny_llama(), every=4)
    reference.check(3)
    message = "is 4 optimizer steps old; it must be replaced every 4"
    with pytest.raises(StaleReferenceError, match=message):
        reference.check(4)


def one_bit(model):
    model.lm_head.weight.view(torch.int32)[3, 7] ^= 1


def two_swapped(model):
    weight = model.lm_head.weight
    weight[[0, 1]] = weight[[1, 0]]


def every_norm_doubled(model):
    model.model.norm.weight.mul_(2)


def trained_on(model):
    for p in model.parameters():
        p.mul_(1.0001)


@pytest.mark.parametrize("tamper", [one_bit, two_swapped, every_norm_doubled, trained_on])
def test_weights_that_are_not_those_recorded_are_refused(tiny_llama, tamper):
    policy = tiny_llama()
    reference = Reference(policy, every=0)
    recorded = reference.fingerprint
    with torch.no_grad():
        tamper(reference.model)
    with pytest.raises(StaleReferenceError, match=f"but {recorded} was copied at optimizer step 0"):
        reference.check(0)


def test_a_fingerprint_depends_on_weights_alone(tiny_llama):
    policy = tiny_llama()
    assert fingerprint(policy) == fingerprint(tiny_llama()) != fingerprint(tiny_llama(seed=1))
    assert fingerprint(policy.eval().requires_grad_(False)) == fingerprint(tiny_llama())
    assert fingerprint(policy.bfloat16()) != fingerprint(tiny_llama())


def test_a_fingerprint_is_the_one_that_earlier_checkpoints_hold():
    """Computed here with Python's integers: a change would refuse the references of old runs."""
    values = [0.5, -2.0, 3.0]
    bits = np.array(values, dtype=np.float32).view(np.int32).tolist()
    total = sum(b * (i * 0x9E3779B97F4A7C1 | 1) for i, b in enumerate(bits)) % 2**64
    digest = sha256(b"weight;" + total.to_bytes(8, "little")).hexdigest()
    assert of_weights(values) == digest[:16]


def of_weights(values, dtype=torch.float32):
    layer = torch.nn.Linear(len(values), 1, bias=False, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([values]))
    return fingerprint(layer)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_one_weight_at_any_place_changes_a_fingerprint(dtype, monkeypatch):
    weights = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    changed = [[*weights[:i], -0.5, *weights[i + 1 :]] for i in range(7)]
    swapped = [2.0, 1.0, *weights[2:]]
    whole = [of_weights(values, dtype) for values in (weights, swapped, *changed)]
    assert len(set(whole)) == 9
    monkeypatch.setattr(reference, "_CHUNK", 3)  # weights hashed at a time
    assert [of_weights(values, dtype) for values in (weights, swapped, *changed)] == whole


def test_weights_of_one_byte_have_a_fingerprint_too():
    """As the frozen weights of a quantised model."""

    def of_bytes(*values):
        model = torch.nn.Module()
        packed = torch.tensor(values, dtype=torch.uint8)
        model.packed = torch.nn.Parameter(packed, requires_grad=False)
        return fingerprint(model)

    assert len({of_bytes(1, 2, 200), of_bytes(1, 2, 201), of_bytes(2, 1, 200)}) == 3


def test_a_fingerprint_rounded_like_a_copy_is_that_of_the_copy(tiny_llama):
    policy, copied = tiny_llama(), tiny_llama().bfloat16()
    assert fingerprint(policy, rounded_like=copied) == fingerprint(copied) != fingerprint(policy)


@pytest.fixture
def on_a_card(monkeypatch):
    """Every model counts as one on a GPU that computes in bfloat16."""
    monkeypatch.setattr(reference, "device_of", lambda model: SimpleNamespace(type="cuda"))
    monkeypatch.setattr(reference, "compute_dtype", lambda model: torch.bfloat16)


def test_on_the_cpu_a_copy_keeps_its_type_whatever_the_policy_computes_in(tiny_llama, monkeypatch):
    monkeypatch.setattr(reference, "compute_dtype", lambda model: torch.bfloat16)
    copied = frozen_copy(tiny_llama())
    assert {p.dtype for p in copied.parameters()} == {torch.float32}


@pytest.mark.usefixtures("on_a_card")
def test_on_a_card_a_copy_has_the_type_that_the_policy_computes_in(tiny_llama):
    policy = tiny_llama()
    held = Reference(policy, every=1)
    assert {p.dtype for p in held.model.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    move(policy)
    held.replace_when_due(policy, 1)
    held.check(1)


def test_frozen_parameters_are_shared_and_trained_ones_are_not(tiny_llama):
    policy = tiny_llama()
    policy.lm_head.weight.requires_grad_(False)
    for copied in (frozen_copy(policy), sharing_copy(policy)):
        assert copied.lm_head.weight is policy.lm_head.weight
        assert copied.model.norm.weight is not policy.model.norm.weight
    assert sharing_copy(policy).model.norm.weight.requires_grad


def test_a_state_of_another_type_is_hashed_anew(tiny_llama):
    held = Reference(tiny_llama(), every=0)
    saved = Reference(tiny_llama(seed=1).bfloat16(), every=0)
    held.load(saved.state())
    assert held.fingerprint == fingerprint(held.model) != saved.fingerprint
    held.check(0)


def test_a_resumed_reference_is_the_old_one_and_not_the_policy(tiny_llama, tmp_path):
    policy = tiny_llama()
    reference = Reference(policy, every=5)
    move(policy)
    reference.replace_when_due(policy, 5)
    move(policy)
    torch.save(reference.state(), tmp_path / "reference.pt")
    resumed = Reference(policy, every=5)
    assert not same(resumed.model, reference.model)
    resumed.load(torch.load(tmp_path / "reference.pt", weights_only=True))
    assert same(resumed.model, reference.model)
    assert (resumed.replaced_at, resumed.fingerprint) == (5, reference.fingerprint)
    resumed.check(9)
    with pytest.raises(StaleReferenceError, match="5 optimizer steps old"):
        resumed.check(10)


def test_a_saved_state_that_was_changed_is_noticed_on_resume(tiny_llama):
    reference = Reference(tiny_llama(), every=0)
    state = reference.state()
    other = Reference(tiny_llama(seed=1), every=0)
    other.load(state | {"weights": tiny_llama(seed=2).state_dict()})
    with pytest.raises(StaleReferenceError, match="weights hash to"):
        other.check(0)


@pytest.mark.parametrize(("coefficient", "held"), [(0.0, False), (0.001, True)])
def test_a_kl_coefficient_of_zero_holds_no_reference(tiny_llama, coefficient, held):
    recipe = ZeroRecipe.model_validate(
        {
            "name": "t",
            "start": "given",
            "steps": 1,
            "rollout": {"prompts": 1, "per_prompt": 2, "max_tokens": 8},
            "algorithm": {"kl_coefficient": coefficient},
            "optimizer": {"learning_rate": 0.1},
        }
    )
    scribe = SimpleNamespace(tokenizer=None)
    learning = PolicyLearner(recipe, tiny_llama(), scribe)
    assert (learning.reference is not None) is held
