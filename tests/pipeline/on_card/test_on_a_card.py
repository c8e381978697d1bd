"""Updates of every kind on a card: each tensor is where it has to be, and each number as before."""

from dataclasses import asdict, replace
from random import Random
from types import SimpleNamespace

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.distill.on_policy import OnPolicyDistiller
from veriloop.pipeline.dry_run.memory import kept_by_layer, shape_of
from veriloop.pipeline.losses.ptx import pretraining_loss
from veriloop.pipeline.model.device import device_of
from veriloop.pipeline.model.lora import adapters, merged
from veriloop.pipeline.model.packing import lay_out
from veriloop.pipeline.model.policy import hidden_states, policy_weights, score
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.reference import Reference, fingerprint
from veriloop.pipeline.rl.learner import PolicyLearner
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.sampling.sync import WeightSync
from veriloop.pipeline.training.optimizer import Optimizer

ROWS = {"row": 24, "rows": 2, "logits_chunk": 7}
RL = {
    "name": "test", "start": "given", "steps": 4,
    "rollout": {"prompts": 2, "per_prompt": 4, "max_tokens": 9},
    "optimizer": {"learning_rate": 1e-3},
}  # fmt: skip


def weights(model):
    return torch.cat([p.detach().cpu().flatten() for p in model.parameters()])


def gradient(model):
    """Where there is one; taken away."""
    found = torch.cat([p.grad.cpu().flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return found


@pytest.fixture
def rollouts(tiny_llama, sampled):
    """Every third is cut, so that a critic is asked what comes after it."""
    found = sampled(tiny_llama(spread=0.2), 8, noise=0.02)
    for i in range(0, 8, 3):
        found[i] = replace(found[i], rollout=replace(found[i].rollout, finish="length"))
    return found


@pytest.fixture
def learned(tiny_llama, rollouts):
    """Function: two turns of reinforcement learning; its numbers and what came of the weights."""

    def run(device, *, optimizer=(), trainer=(), **algorithm):
        told = ZeroRecipe.model_validate(
            RL
            | {
                "algorithm": algorithm,
                "trainer": {**ROWS, "device": device, "compute": "float32", **dict(trainer)},
                "sampler": {"tolerance": 1.0},
                "optimizer": {**RL["optimizer"], **dict(optimizer)},
            }
        )
        policy = prepare(tiny_llama(spread=0.2), told.trainer)
        scribe = SimpleNamespace(tokenizer=None)
        learning = PolicyLearner(told, policy, scribe)
        found = {}
        for step in range(2):
            updates, advantages_N = learning.learn(step, rollouts, Random(step))
            learning.renew_reference()
            seen = learning.token_trace()
            found |= {f"advantages {step}": advantages_N, f"entropy {step}": seen[3].entropy_T}
            for i, one in enumerate(updates):
                values = asdict(one)
                found |= {f"{name} {step} {i}": values[name] for name in values}
        assert device_of(policy).type == device.partition(":")[0]
        return found | {"weights": weights(policy)}

    return run


CHANGES = {
    name: {"preset": name}
    for name in ("grpo", "gspo", "cispo", "reinforce_pp", "ppo", "ppo_klpen", "line_search")
} | {
    "a shared critic": {"preset": "ppo", "critic": "shared"},
    "a new reference each turn": {"kl_coefficient": 0.1, "reference_every": 1},
    "whole sequences dropped": {
        "old_logp": "trainer", "mismatch": "mask_sequences", "mismatch_sequence": 0.01,
        "mismatch_cap": 1.01,
    },
    "an entropy bonus": {"entropy_coefficient": 0.01, "kl_coefficient": 0.0},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_reinforcement_learning(on_both, learned, changes):
    found = on_both(lambda device: learned(device, **changes), ran="_fused_adamw_", close=2e-5)
    assert any(name.startswith("grad_norm") and value > 0 for name, value in found.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trainer", "optimizer", "close"),
    [
        ({"gradient_checkpointing": True}, {}, 2e-5),
        ({"packed_attention": False}, {}, 2e-5),
        ({"lora": {"rank": 2}}, {"learning_rate": 1e-2}, 2e-5),
        ({}, {"muon_learning_rate": 1e-3}, 1e-3),  # which rounds to bfloat16 inside
    ],
    ids=["checkpointing", "under a mask", "adapters", "muon"],
)
def test_other_ways_to_compute(on_both, learned, trainer, optimizer, close):
    on_both(lambda device: learned(device, trainer=trainer, optimizer=optimizer), close=close)


@pytest.mark.slow
def test_half_precision_attends_end_to_end_by_the_flash_kernel(on_both, card, tiny_llama):
    sequences = [[1, 5, 9, 3, 30], [1, 6, 2], [4, 9, 8, 17, 8, 11, 2, 39], [1, 7], [22, 23, 24]]
    packed = lay_out(sequences, [[0, 1, 2], [3, 4]])

    def passed(device):
        trainer = TrainerConfig(device=device, compute="bfloat16", **ROWS)
        model = prepare(tiny_llama(spread=0.1, layers=2), trainer)
        logp_M, _ = score(
            model, packed.ids_RT, packed.positions_RT, packed.targets_RT,
            packed.sequence_RT >= 0, temperature=1.0, chunk=5,
        )  # fmt: skip
        pretraining_loss(logp_M, tokens=len(logp_M), weight=1.0).backward()
        assert all(p.dtype == p.grad.dtype == torch.float32 for p in model.parameters())
        return {"logp": logp_M, "gradient": gradient(model)}

    on_both(passed, ran="_varlen_attn_backward", close=0.02)
    assert not {name for name in card.ran if name.startswith("_scaled_dot_product")}


HALF_WAYS = {
    "shared prompts": {},
    "whole sequences": {"share_prompts": False},
    "cheap recomputed": {"gradient_checkpointing": True, "recompute": "cheap"},
    "adapters": {"lora": {"rank": 2}},
    "adapters over 4 bits": {"lora": {"rank": 2, "base": "nf4"}},
}


@pytest.mark.slow
@pytest.mark.usefixtures("four_bits")
@pytest.mark.parametrize("trainer", HALF_WAYS.values(), ids=HALF_WAYS)
def test_reinforcement_learning_in_half_precision(on_both, card, learned, trainer):
    """Within its rounding; AdamW may move a weight whose gradient is nearly 0 either way."""

    def work(device):
        found = learned(device, trainer={"compute": "bfloat16", **trainer}, kl_coefficient=0.1)
        return {name: found[name] for name in found if name.startswith(("entropy", "kl", "loss"))}

    on_both(work, ran="_varlen_attn_backward", close=0.03)
    assert "mm" in card.ran
    assert ("nf4_product" in card.ran) == ("base" in trainer.get("lora", {}))


@pytest.mark.slow
def test_frozen_weights_are_in_half_precision_and_merged_in_float32(card, tiny_llama):
    trainer = {"device": "cuda", "compute": "bfloat16"}
    model = tiny_llama(spread=0.2)
    want = {name: p.detach().bfloat16().float() for name, p in model.named_parameters()}
    adapted = prepare(model, TrainerConfig(**trainer, lora={"rank": 2}))
    kinds = {p.dtype: p.requires_grad for p in adapted.parameters()}
    assert kinds == {torch.bfloat16: False, torch.float32: True}
    for name, weight in merged(adapted):
        assert torch.equal(weight.detach().cpu().float(), want[name])
    for name, weight in policy_weights(adapted).items():  # what a checkpoint gets
        assert name in adapters(adapted.state_dict()) or torch.equal(weight.float(), want[name])
    policy = prepare(tiny_llama(spread=0.2), TrainerConfig(**trainer))
    reference = Reference(policy, every=1)
    assert {p.dtype for p in reference.model.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    reference.replace_when_due(policy, 1)
    reference.check(1)
    saved = {
        name: {k: v.cpu() for k, v in value.items()} if name == "weights" else value
        for name, value in reference.state().items()
    }
    elsewhere = Reference(tiny_llama(seed=4), every=1)
    elsewhere.load(saved)
    elsewhere.check(1)
    for one, other in zip(elsewhere.model.parameters(), reference.model.parameters(), strict=True):
        assert torch.equal(one, other.cpu().float())


@pytest.mark.slow
@pytest.mark.parametrize("divergence", ["sampled", "jsd"])
def test_a_teacher_of_the_students_own_answers(on_both, tiny_llama, rollouts, divergence):
    def work(device):
        told = DistillRecipe.model_validate(
            RL
            | {"method": "on_policy", "teacher": "t", "divergence": divergence}
            | {"trainer": {**ROWS, "device": device}, "sampler": {"tolerance": 1.0}}
        )
        policy = prepare(tiny_llama(spread=0.2), told.trainer)
        imitation = OnPolicyDistiller(told, policy, tiny_llama(seed=1).to(device_of(policy)))
        (one,), advantages_N = imitation.learn(0, rollouts, Random(0))
        return asdict(one) | {"advantages": advantages_N, "weights": weights(policy)}

    on_both(work, close=2e-5)


@pytest.mark.slow
def test_the_proof_of_a_sync_is_scored_on_the_card_and_compared_outside(on_both, tiny_llama):
    def work(device):
        policy = prepare(tiny_llama(), TrainerConfig(device=device))
        sync = WeightSync(policy, SimpleNamespace(), temperature=0.7, tolerance=1e-4)
        logp_M, entropy_M = sync._score([(1, 4, 5, 6), (7, 8, 9)], [2, 1])
        assert logp_M.device.type == entropy_M.device.type == "cpu"
        return {"logp": logp_M, "entropy": entropy_M}

    on_both(work)


def test_a_checkpoint_of_a_card_continues_elsewhere(card, tiny_llama, tmp_path):
    """Also the other way round, and its hash does not tell where the weights lay."""
    on_card = tiny_llama().to("cuda:0")
    for p in on_card.parameters():
        p.grad = torch.ones_like(p)
    config = ZeroRecipe.model_validate(RL).optimizer
    optimizer = Optimizer(on_card, config)
    optimizer.step(0.0, 0)
    path = checkpoint.save(
        tmp_path, 1, write_model=lambda folder: (folder / "model").write_text("none"),
        state={"optimizer": optimizer.state(), "weights": dict(on_card.state_dict())}, keep=1,
    )  # fmt: skip
    held = checkpoint.load_state(path)
    assert all(type(x) is torch.Tensor for x in held["weights"].values())
    elsewhere = tiny_llama(seed=5)
    elsewhere.load_state_dict(held["weights"])
    assert fingerprint(elsewhere) == fingerprint(on_card)
    again = Optimizer(elsewhere, config)
    again.load(held["optimizer"])
    back = Optimizer(on_card, config)
    back.load(held["optimizer"])
    for model, one in ((elsewhere, again), (on_card, back)):
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        one.step(0.5, 1)
    assert torch.equal(weights(elsewhere), weights(on_card))


def test_what_is_left_behind_is_refused_as_on_a_real_card(card):
    there, here = torch.ones(3).to("cuda:0"), torch.ones(3)
    for mixed in (
        lambda: there + here,
        lambda: here.add_(there.sum()),
        lambda: torch.cat([there, here]),
        lambda: there[there > 0].index_put_((torch.tensor([0]),), here[:1]),
        lambda: here.masked_fill(there > 0, 0.0),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            mixed()
    assert (there * torch.tensor(2.0)).tolist() == [2.0] * 3  # a lone number may come along
    assert there[torch.tensor([True, False, True])].tolist() == [1.0] * 2


@pytest.mark.slow
def test_half_precision_keeps_what_the_memory_plan_says(card, tiny_llama):
    trainer = TrainerConfig(device="cuda", compute="bfloat16")
    model = prepare(tiny_llama(layers=3), trainer)
    own = {p.numbers.untyped_storage().data_ptr() for p in model.parameters()}
    found, held = {}, []

    def pack(tensor):
        storage = tensor.numbers.untyped_storage()
        held.append(storage)  # a place that is freed would be used again
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.arange(120)[None] % 40
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        out = hidden_states(model.base_model, ids, torch.arange(120)[None])
    assert out.dtype == torch.bfloat16
    shape = shape_of(model.config.to_dict(), 0)
    assert sum(found.values()) == pytest.approx(3 * kept_by_layer(shape, trainer, 120), rel=0.1)
