"""How a model computes changes none of its numbers beyond rounding, and nothing of what it is."""

import copy

import pytest
import torch
from torch import nn

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.sections import OptimizerConfig, SamplerConfig, TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model import device, sharded
from veriloop.pipeline.model.fused_layers import FastLinear, FastNorm, in_float32
from veriloop.pipeline.model.packing import lay_out
from veriloop.pipeline.model.policy import hidden_states, load_policy, score
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.sharded import Ranks
from veriloop.pipeline.rl.update import MismatchError, UpdateContext, update
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.sampling.sync import batch_tolerance
from veriloop.pipeline.training.optimizer import Optimizer

PLAIN = TrainerConfig(fused=False, packed_attention=False)
SEQUENCES = [[1, 5, 9, 3, 30], [1, 6, 2], [4, 0, 0, 17, 8, 11, 2, 39], [1, 7], [22, 23, 24, 25]]
ROWS = [[0, 1, 2], [3, 4]]  # the second is padded


def scored(model, temperature=0.8):
    packed = lay_out(SEQUENCES, ROWS)
    return score(
        model, packed.ids_RT, packed.positions_RT, packed.targets_RT, packed.sequence_RT >= 0,
        temperature=temperature, chunk=4,
    )  # fmt: skip


def passed(model):
    """Log-probs and entropies, [2M], and the gradient of a sum of both, [parameters]."""
    logp_M, entropy_M = scored(model)
    model.zero_grad()
    (logp_M.sum() + 0.3 * entropy_M.sum()).backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    return torch.cat([logp_M, entropy_M]).detach(), gradient


@pytest.fixture(params=["llama", "qwen2 with biases, tied", "qwen3"])
def model(request, tiny_llama):
    if request.param == "llama":
        return tiny_llama(layers=2, spread=0.2)
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

    settings = {
        "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2,
        "max_position_embeddings": 64, "head_dim": 8,
    }  # fmt: skip
    torch.manual_seed(0)
    if request.param == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**settings)).train()
    return Qwen2ForCausalLM(Qwen2Config(**settings, tie_word_embeddings=True)).train()


def far(one, other):
    return ((one - other).norm() / other.norm()).item()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"packed_attention": False},
        {"fused": False},
        {},
        {"gradient_checkpointing": True},
        {"fused": False, "packed_attention": False, "gradient_checkpointing": True},
    ],
    ids=["fused", "attention", "both", "checkpointed", "only checkpointed"],
)
def test_every_way_of_computing_in_float32_gives_the_same_numbers_and_gradient(model, settings):
    want = passed(model)
    got = passed(prepare(model, TrainerConfig(**settings)))
    assert far(got[0], want[0]) < 1e-6 and far(got[1], want[1]) < 3e-6


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
def test_bfloat16_moves_log_probs_and_gradient_by_its_rounding(model, checkpointing):
    want = passed(model)
    trainer = TrainerConfig(compute="bfloat16", gradient_checkpointing=checkpointing)
    got = passed(prepare(model, trainer))
    gap = (got[0] - want[0]).abs()
    assert 1e-4 < gap.mean() < 0.03 and gap.max() < 0.2
    assert 1e-4 < far(got[1], want[1]) < 0.05
    assert got[0].dtype == torch.float32
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in model.parameters())


def test_checkpointing_computes_blocks_again_in_the_same_precision(tiny_llama):
    model = tiny_llama(layers=2)
    kept = copy.deepcopy(prepare(model, TrainerConfig(compute="bfloat16")))
    again = prepare(model, TrainerConfig(compute="bfloat16", gradient_checkpointing=True))
    calls = []
    for block in again.model.layers:
        block.mlp.register_forward_pre_hook(lambda _, given: calls.append(given[0].dtype))
    assert torch.equal(passed(again)[1], passed(kept)[1])
    assert calls == [torch.bfloat16] * 4


def test_the_trunk_is_in_bfloat16_from_the_embedding_to_its_end(model):
    packed = lay_out(SEQUENCES, ROWS)
    prepare(model, TrainerConfig(compute="bfloat16"))
    found = hidden_states(model.base_model, packed.ids_RT, packed.positions_RT)
    assert found.dtype == torch.bfloat16


def test_a_prepared_model_is_saved_as_the_plain_one_is(tiny_llama, tmp_path):
    model = tiny_llama()
    model.save_pretrained(tmp_path / "plain")
    names = [name for name, _ in model.named_parameters()]
    prepare(model, TrainerConfig(compute="bfloat16", gradient_checkpointing=True))
    model.save_pretrained(tmp_path / "prepared")
    files = sorted(p.name for p in (tmp_path / "plain").iterdir())
    assert files == sorted(p.name for p in (tmp_path / "prepared").iterdir())
    for file in files:
        one, other = (tmp_path / which / file for which in ("plain", "prepared"))
        assert one.read_bytes() == other.read_bytes(), file
    assert [name for name, _ in model.named_parameters()] == names


def test_a_copy_of_a_prepared_model_computes_with_its_own_weights(tiny_llama):
    model = prepare(tiny_llama(), TrainerConfig(compute="bfloat16"))
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)
    assert not torch.equal(scored(model)[0], scored(copied)[0])
    assert isinstance(copied.model.layers[0].mlp.up_proj, FastLinear)
    assert isinstance(copied.model.norm, FastNorm)


def test_float32_for_a_while_is_exact_and_ends_even_by_an_exception(tiny_llama):
    model = tiny_llama(spread=0.2)
    exact = scored(model)[0]
    prepare(model, TrainerConfig(compute="bfloat16"))
    with in_float32(model):
        assert far(scored(model)[0], exact) < 1e-6
    assert far(scored(model)[0], exact) > 1e-5
    with pytest.raises(KeyError), in_float32(model):
        raise KeyError
    assert far(scored(model)[0], exact) > 1e-5


def test_a_layer_that_cannot_follow_bfloat16_is_named(tiny_llama):
    model = tiny_llama()
    model.model.norm = nn.LayerNorm(32)
    with pytest.raises(RecipeError, match=r"bfloat16: the weights of model\.norm, a LayerNorm"):
        prepare(model, TrainerConfig(compute="bfloat16"))


def test_plain_settings_change_nothing_at_all(tiny_llama):
    model = tiny_llama()
    kinds = [type(m) for m in model.modules()]
    prepare(model, PLAIN)
    assert [type(m) for m in model.modules()] == kinds
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("change", ["sliding", "family"])
def test_a_model_of_other_attention_keeps_it(tiny_llama, change):
    model = tiny_llama()
    if change == "sliding":
        model.config.layer_types = ["sliding_attention"]
    else:
        model.config.model_type = "cohere"
    prepare(model, TrainerConfig())
    assert model.config._attn_implementation == "sdpa"


def test_padding_by_a_mask_is_refused(tiny_llama):
    model = prepare(tiny_llama(), TrainerConfig())
    ids = torch.tensor([[1, 2, 3]])
    assert model(ids, attention_mask=torch.ones_like(ids), use_cache=False).logits.isfinite().all()
    with pytest.raises(ValueError, match="padding by a mask"):
        model(ids, attention_mask=torch.tensor([[0, 1, 1]]), use_cache=False)


@pytest.mark.slow
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_a_run_resumed_from_a_checkpoint_continues_bit_for_bit(
    tiny_llama, sampled, whole, tmp_path, compute
):
    trainer = TrainerConfig(compute=compute)
    start = tiny_llama(spread=0.2)
    part = whole(sampled(start, 8), torch.linspace(-1, 1, 8))
    algorithm = AlgorithmConfig(kl_coefficient=0.0)

    def learner(model):
        optimizer = Optimizer(model, OptimizerConfig(learning_rate=0.01))
        return UpdateContext(policy=model, optimizer=optimizer, algorithm=algorithm, chunk=9)

    straight = learner(prepare(start, trainer))
    update(straight, part, progress=0.0, done=0)
    saved = checkpoint.save(
        tmp_path, 1, write_model=straight.policy.save_pretrained, keep=1,
        state={"optimizer": straight.optimizer.state()},
    )  # fmt: skip
    resumed = learner(prepare(load_policy(saved), trainer))
    resumed.optimizer.load(checkpoint.load_state(saved)["optimizer"])
    one, other = (update(who, part, progress=0.0, done=1) for who in (straight, resumed))
    assert one == other
    for own, again in zip(straight.policy.parameters(), resumed.policy.parameters(), strict=True):
        assert torch.equal(own, again)


def test_the_wider_tolerance_lets_rounding_pass_and_stops_another_policy(
    tiny_llama, sampled, whole, stepped
):
    """A sampler that missed an update of 5 % is off by several times what bfloat16 is off by."""
    model = tiny_llama(layers=2, spread=0.2)
    part = whole(sampled(model, 8), torch.ones(8))
    half = TrainerConfig(compute="bfloat16")
    tolerance, algorithm = batch_tolerance(half, SamplerConfig(), [], 0), AlgorithmConfig()
    prepare(model, half)
    _, done = stepped(model, part, algorithm, tolerance=tolerance)
    assert 1e-4 < done.mismatch_mean < tolerance / 2
    torch.manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * p.std() * torch.randn_like(p)) if p.ndim > 1 else None
    with pytest.raises(MismatchError):
        stepped(model, part, algorithm, tolerance=tolerance)


@pytest.mark.parametrize(("count", "at"), [(1, "meta"), (2, "cpu")])
def test_on_several_ranks_the_model_stays_on_the_cpu_until_it_is_divided(
    tiny_llama, monkeypatch, count, at
):
    places, ranks = [], Ranks()
    ranks.count = count
    monkeypatch.setattr(sharded, "_joined", ranks)
    monkeypatch.setattr(device, "choose_device", lambda _: torch.device("meta"))  # as a GPU
    monkeypatch.setattr(
        "veriloop.pipeline.model.prepare._measure", lambda m: places.append(m.device)
    )
    policy = prepare(tiny_llama(), TrainerConfig(fused=False, packed_attention=False))
    assert {p.device.type for p in policy.parameters()} == {at}
    assert [place.type for place in places] == [at]
