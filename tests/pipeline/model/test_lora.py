"""Adapters: they alone learn, merged they are the same model, and others can read them."""

import json
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.memory_peak import memory_peak
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.config.sections import LoraConfig, OptimizerConfig, TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model import lora
from veriloop.pipeline.model.policy import (
    load_policy,
    load_tokenizer,
    save_policy,
    saved_weights,
    score,
)
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.reference import Reference
from veriloop.pipeline.rl.metrics import reproducible
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.runs.record import read_metrics
from veriloop.pipeline.sampling import sync as sync_module
from veriloop.pipeline.sampling.sync import WeightSync
from veriloop.pipeline.training.optimizer import Optimizer
from veriloop.stages import rl, zero

RANK = 4
TRAINER = TrainerConfig(lora=LoraConfig(rank=RANK, alpha=8.0))


def scored(model):
    ids = torch.tensor([[1, 40, 41, 42, 50, 60, 7, 9]])
    places = torch.arange(8)[None]
    return score(model, ids, places, ids.roll(-1), places < 7, temperature=1.0, chunk=9)[0]


def trained(folder, trainer=TRAINER, size=0.05):
    """A model whose adapters have moved."""
    model = prepare(load_policy(folder), trainer)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(size * torch.randn_like(parameter))
    return model


def test_a_model_begins_as_what_it_was_and_only_adapters_have_a_gradient(tiny_checkpoint):
    plain = load_policy(tiny_checkpoint())
    model = prepare(load_policy(tiny_checkpoint()), TRAINER)
    torch.testing.assert_close(scored(model), scored(plain), atol=1e-5, rtol=0)
    scored(model).sum().backward()
    with_gradient = {name for name, p in model.named_parameters() if p.grad is not None}
    assert with_gradient == {n for n, _ in model.named_parameters() if n[-6:-1] == "lora_"}
    assert len(with_gradient) == 2 * 7 * 2  # A and B, of seven layers in two blocks


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_merged_weights_compute_what_the_adapters_do(tiny_checkpoint, compute):
    model = trained(tiny_checkpoint(), TRAINER.model_copy(update={"compute": compute}))
    plain = load_policy(tiny_checkpoint())
    assert (scored(model) - scored(plain)).abs().mean() > 0.1
    plain.load_state_dict(lora.merged_state(model))
    bound = 1e-5 if compute == "float32" else 0.2
    assert (scored(model) - scored(plain)).abs().max() < bound
    assert [n for n, _ in lora.merged(model)] == [n for n, _ in plain.named_parameters()]
    for (_, one), other in zip(lora.merged(model), plain.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda layer: layer.weight.detach().clone(),
        lambda layer: torch.addmm(layer.weight, layer.lora_B, layer.lora_A),
        lambda layer: lora.LoraLinear.merged(layer).roll(1, 0),
    ],
    ids=["without", "unscaled", "misplaced"],
)
def test_a_merged_weight_that_its_layer_does_not_compute_with_is_not_sent(tiny_checkpoint, wrong):
    model = trained(tiny_checkpoint(), size=3e-4)
    list(lora.merged(model))
    layer = model.model.layers[1].mlp.up_proj
    layer.merged = lambda: wrong(layer)
    with pytest.raises(lora.MergeError, match=r"layers.1.mlp.up_proj.weight merged"):
        list(lora.merged(model))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_merged_weight_at_a_time_is_in_the_senders_memory(dtype):
    size, layers = 512, 6
    model = torch.nn.Sequential(*(torch.nn.Linear(size, size) for _ in range(layers)))
    for layer in model:
        lora._adapt(layer, LoraConfig(rank=2), seed=1)
    model.to(dtype)  # a layer whose frozen weight is narrower has wide adapters
    for name, parameter in model.named_parameters():
        if "lora" in name:
            parameter.data = parameter.data.float()
    sync = WeightSync(model, SimpleNamespace(dtype="bfloat16"), temperature=1.0, tolerance=1e-4)
    received = []

    def send():
        for name, weight in sync._outgoing({}, []):
            received.append((name, weight.dtype, weight.numel()))
            del weight

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sync_module, "digest_tensor", lambda weight: torch.zeros(2))
        peak = memory_peak(send)
    assert {dtype for _, dtype, _ in received} == {torch.bfloat16}
    assert sum(n == size**2 for *_, n in received) == layers
    assert peak < 1.1 * (4 + 2) * size**2  # a merged weight, and what is cast of it


def test_an_update_leaves_every_other_weight_and_keeps_moments_for_adapters_alone(
    tiny_checkpoint,
):
    model = prepare(load_policy(tiny_checkpoint()), TRAINER)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = Optimizer(model, OptimizerConfig(learning_rate=0.01))
    for done in range(2):
        scored(model).sum().backward()
        optimizer.step(0.0, done)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) != parameter.requires_grad, name
    adapters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    moments = [
        v for s in optimizer.state() for one in s["state"].values() for v in one.values() if v.ndim
    ]
    assert sum(v.numel() for v in moments) == 2 * adapters
    assert adapters < 0.3 * sum(p.numel() for p in model.parameters())


def test_the_reference_is_the_base_without_a_second_copy_of_it(tiny_checkpoint):
    model = prepare(load_policy(tiny_checkpoint()), TRAINER)
    base = scored(model).detach()
    reference = Reference(model, every=2)
    shared = {p.data_ptr() for p in model.parameters() if not p.requires_grad}
    own = [p for p in reference.model.parameters() if p.data_ptr() not in shared]
    assert len(own) == sum(p.requires_grad for p in model.parameters())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05)
    assert torch.equal(scored(reference.model), base)
    assert (scored(model) - base).abs().max() > 0.01
    assert all("lora_" in name for name in reference.state()["weights"])
    assert reference.replace_when_due(model, 2)
    assert torch.equal(scored(reference.model), scored(model))
    again = Reference(prepare(load_policy(tiny_checkpoint()), TRAINER), every=2)
    again.load(reference.state())
    again.check(3)
    assert torch.equal(scored(again.model), scored(model))


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
def test_a_checkpoint_is_a_whole_model_with_the_adapters_next_to_it(
    tiny_checkpoint, tmp_path, tied
):
    folder = tiny_checkpoint(tied=tied)
    model = trained(folder)
    save_policy(model, load_tokenizer(folder), tmp_path / "saved")
    merged = load_policy(tmp_path / "saved")
    torch.testing.assert_close(scored(merged), scored(model), atol=1e-5, rtol=0)
    assert not any("lora" in name for name, _ in merged.named_parameters())
    fresh = prepare(load_policy(folder), TRAINER)
    fresh.load_state_dict(saved_weights(fresh, tmp_path / "saved"))
    for one, other in zip(model.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
def test_peft_reads_the_adapters_on_the_same_start(tiny_checkpoint, tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = trained(tiny_checkpoint())
    save_policy(model, load_tokenizer(tiny_checkpoint()), tmp_path / "saved")
    base = AutoModelForCausalLM.from_pretrained(tiny_checkpoint(), dtype=torch.float32)
    theirs = PeftModel.from_pretrained(base, tmp_path / "saved" / lora.FOLDER)
    ids = torch.tensor([[1, 40, 41, 42, 50, 60, 7, 9]])
    logp = theirs(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])
    torch.testing.assert_close(logp.squeeze(-1), scored(model), atol=1e-5, rtol=0)
    told = json.loads((tmp_path / "saved" / lora.FOLDER / lora.SETTINGS).read_text())
    assert (told["r"], told["lora_alpha"]) == (RANK, 8.0)


def test_named_layers_alone_are_adapted_and_a_wrong_name_is_answered(tiny_checkpoint):
    one = TrainerConfig(lora=LoraConfig(rank=2, targets=("q_proj",)))
    model = prepare(load_policy(tiny_checkpoint()), one)
    learns = {n for n, p in model.named_parameters() if p.requires_grad}
    assert len(learns) == 4 and all(".q_proj.lora_" in name for name in learns)
    wrong = TrainerConfig(lora=LoraConfig(rank=2, targets=("q_prj",)))
    with pytest.raises(RecipeError, match=r"no linear layer 'q_prj'.*mean 'q_proj'"):
        prepare(load_policy(tiny_checkpoint()), wrong)


def test_a_model_of_which_adapters_would_train_nothing_is_refused():
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 50, "n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    with pytest.raises(RecipeError, match=r"the trunk of GPT2LMHeadModel has no layer of.*rank: 0"):
        prepare(model, TRAINER)


def test_a_classifier_with_a_new_head_is_refused(tiny_checkpoint):
    from veriloop.pipeline.model.scalar_head import load_classifier

    model = load_classifier(tiny_checkpoint(), load_tokenizer(tiny_checkpoint()))
    with pytest.raises(RecipeError, match="the new head of"):
        prepare(model, TRAINER)


def low_ids(rollout, verdicts):
    del verdicts
    return sum(i < 150 for i in rollout.response_ids) / len(rollout.response_ids)


@pytest.fixture
def train(tiny_checkpoint, tmp_path):
    """Function: a loop with adapters in `tmp_path`/name, of as many steps."""

    def run(name, steps, *, resume=False, die=None):
        told = ZeroRecipe.model_validate(
            {
                "name": "test", "start": "given", "steps": steps,
                "rollout": {"prompts": 4, "per_prompt": 8, "max_tokens": 12},
                "algorithm": {"minibatches": 2, "reference_every": 4, "kl_coefficient": 0.001},
                "optimizer": {"learning_rate": 1e-2},
                "trainer": {"lora": {"rank": 8}},
                "sampler": {"engine": "torch"},
                "evaluation": {"problems": 2, "samples": 1},
                "checkpoint": {"every": 1, "keep": 9},
                "tensorboard": False,
            }
        )  # fmt: skip
        folder = tmp_path / name
        found = checkpoint.load_latest(folder) if resume else None
        with ExitStack() as stack:
            place = folder, tiny_checkpoint(), found
            loop = rl.open_loop(stack, told, zero.task(told), *place)
            loop.collector.task = replace(loop.task, reward=low_ids)
            turn = loop.turn

            def turn_or_die():
                if loop.step == die:
                    raise KeyboardInterrupt
                turn()

            loop.turn = turn_or_die
            loop.run(lambda: 0.0)
        return loop

    return run


def metrics(loop):
    rows = read_metrics(loop.deps.directory / "metrics.jsonl")
    return [reproducible(row) for row in rows]


@pytest.mark.slow
@pytest.mark.usefixtures("one_pool")
def test_a_loop_with_adapters_learns_and_continues_to_the_bit_after_a_stop(train):
    whole = train("whole", 8)
    rows = metrics(whole)
    assert rows[-1]["reward"] > rows[0]["reward"] + 0.1
    assert all(row["sync/max"] <= 1e-4 and row["sync/moved"] > 1e-4 for row in rows)
    with pytest.raises(KeyboardInterrupt):
        train("broken", 8, die=3)
    resumed = train("broken", 8, resume=True)
    assert metrics(resumed) == rows
    for one, other in zip(whole.policy.parameters(), resumed.policy.parameters(), strict=True):
        assert torch.equal(one, other)
