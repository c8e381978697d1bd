"""Adapters over frozen weights in 4 bits: what is trained, sent and saved is the same model."""

import sys

import pytest
import torch

from tests.memory_peak import memory_peak
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.config.sections import LoraConfig, SamplerConfig, TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model import lora, nf4
from veriloop.pipeline.model.policy import (
    load_policy,
    load_tokenizer,
    save_policy,
    saved_weights,
    score,
)
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.reference import Reference
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sync import WeightSync

LORA = LoraConfig(rank=4, alpha=8.0, base="nf4")
TRAINER = TrainerConfig(device="cpu", lora=LORA)
IDS = torch.tensor([[1, 40, 41, 42, 50, 60, 7, 9]])


def scored(model):
    places = torch.arange(8)[None]
    return score(model, IDS, places, IDS.roll(-1), places < 7, temperature=1.0, chunk=9)[0]


@pytest.fixture
def trained(four_bits, tiny_checkpoint):
    """Function: a model over 4 bits whose adapters have moved."""

    def make(trainer=TRAINER):
        model = prepare(load_policy(tiny_checkpoint()), trainer)
        torch.manual_seed(3)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.05 * torch.randn_like(parameter))
        return model

    return make


def test_without_bitsandbytes_it_is_refused_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    refusal = r"trainer.lora.base=nf4 needs bitsandbytes .*: pip install bitsandbytes, or set full"
    with pytest.raises(RecipeError, match=refusal):
        nf4.require_library(TRAINER)
    nf4.require_library(TrainerConfig())


def test_where_nothing_is_frozen_or_weights_are_divided_it_is_refused():
    with pytest.raises(ValueError, match="base='nf4' without adapters"):
        LoraConfig(base="nf4")
    told = {"name": "n", "start": "s", "steps": 1, "optimizer": {"learning_rate": 1.0},
            "rollout": {"prompts": 2, "per_prompt": 2, "max_tokens": 9},
            "trainer": {"lora": {"rank": 2, "base": "nf4"}}}  # fmt: skip
    ZeroRecipe.model_validate(told)
    with pytest.raises(ValueError, match=r"lora.base=nf4 with 2 ranks .*; set full or ranks: 1"):
        ZeroRecipe.model_validate(told | {"cluster": {"trainer": {"ranks": 2}}})


@pytest.mark.parametrize("shape", [(96, 64), (64, 48), (40, 33), (7, 9)])
def test_a_weight_takes_four_and_a_half_bits_and_keeps_its_largest_numbers(four_bits, shape):
    torch.manual_seed(0)
    weight, blocks = torch.randn(shape), -(-shape[0] * shape[1] // 64)
    held = nf4.quantized(weight)
    assert held.dtype == torch.uint8 and held.numel() == blocks * (32 + 4)
    back = nf4.dequantized(held, *shape)
    assert back.dtype == torch.float32 and back.shape == weight.shape
    for before, after in zip(weight.flatten().split(64), back.flatten().split(64), strict=True):
        largest = before.abs().argmax()
        torch.testing.assert_close(after[largest], before[largest])
    assert 0.05 < (back - weight).norm() / weight.norm() < 0.12
    assert torch.equal(nf4.dequantized(nf4.quantized(back), *shape), back)


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_a_layer_computes_with_the_dequantized_weight_in_both_passes(four_bits, compute):
    torch.manual_seed(0)
    dtype = getattr(torch, compute)
    weight, x = torch.randn(24, 64), torch.randn(2, 3, 64).to(dtype).requires_grad_()
    held = nf4.quantized(weight)
    plain = nf4.dequantized(held, 24, 64).to(dtype)
    got, want = nf4._product(x, held, 24, 64, False), x @ plain.t()
    assert got.dtype == dtype
    torch.testing.assert_close(got, want)
    up = torch.randn_like(got)
    torch.testing.assert_close(*(torch.autograd.grad(y, x, up)[0] for y in (got, want)))


@pytest.mark.slow
def test_the_compiler_and_autograd_take_it_for_what_it_says_of_itself(four_bits):
    torch.manual_seed(0)
    held, x = nf4.quantized(torch.randn(24, 64)), torch.randn(2, 3, 64, requires_grad=True)
    torch.library.opcheck(nf4._product, (x, held, 24, 64, False))


@pytest.mark.slow
def test_the_backward_pass_keeps_no_dequantized_weight(four_bits):
    size, layers = 256, 24
    held = [nf4.quantized(torch.randn(size, size)) for _ in range(layers)]
    x = torch.randn(4, size, requires_grad=True)

    def work():
        y = x
        for one in held:
            y = nf4._product(y, one, size, size, False).tanh()
        y.sum().backward()

    assert memory_peak(work) < 0.5 * layers * 4 * size**2


@pytest.mark.slow
def test_what_is_sent_and_saved_is_what_the_trainer_computes_with(
    trained, tiny_checkpoint, tmp_path
):
    folder, model = tiny_checkpoint(), trained()
    plain = load_policy(folder)
    before = scored(plain)
    assert (scored(model) - before).abs().mean() > 0.1
    plain.load_state_dict(lora.merged_state(model))
    torch.testing.assert_close(scored(plain), scored(model), atol=1e-5, rtol=0)
    for (name, one), (same, other) in zip(
        lora.merged(model), plain.named_parameters(), strict=True
    ):
        assert name == same and torch.equal(one, other)
    config = SamplerConfig(engine="torch", device="cpu", max_batch=8)
    sampler = open_sampler(config, str(folder), max_length=64, say=print)
    sync = WeightSync(model, sampler, temperature=1.0, tolerance=1e-4)
    assert sync(1, [(1, 40, 41), (1, 50)]).max < 1e-4
    save_policy(model, load_tokenizer(folder), tmp_path / "saved")
    assert torch.equal(scored(load_policy(tmp_path / "saved")), scored(plain))
    again = prepare(load_policy(folder), TRAINER)
    again.load_state_dict(saved_weights(again, tmp_path / "saved"))
    assert torch.equal(scored(again), scored(model))


def test_only_layers_with_adapters_are_quantized(four_bits, tiny_checkpoint):
    some = LORA.model_copy(update={"targets": ("q_proj",)})
    model = prepare(load_policy(tiny_checkpoint()), TRAINER.model_copy(update={"lora": some}))
    packed = {name for name, p in model.named_parameters() if p.dtype == torch.uint8}
    assert packed == {f"model.layers.{i}.self_attn.q_proj.weight" for i in (0, 1)}


def test_adapters_alone_learn_and_the_reference_shares_the_bytes(trained):
    model = trained()
    reference = Reference(model, every=2)
    own = {name for name, p in model.named_parameters() if p.requires_grad}
    assert own == {name for name, _ in model.named_parameters() if name[-6:-1] == "lora_"}
    shared = {p.data_ptr() for p in model.parameters() if p.dtype == torch.uint8}
    copies = [p for p in reference.model.parameters() if p.dtype == torch.uint8]
    assert len(copies) == 14 and all(p.data_ptr() in shared for p in copies)
    scored(model).sum().backward()
    assert {name for name, p in model.named_parameters() if p.grad is not None} == own
    with torch.no_grad():
        copies[0][0] ^= 1
    with pytest.raises(Exception, match="reference's weights hash to"):
        reference.check(1)
