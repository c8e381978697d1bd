"""Models of many families: each is scored, packed, sampled from and saved as transformers would."""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file

from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.packing import lay_out
from veriloop.pipeline.model.policy import (
    load_policy,
    save_policy,
    saved_weights,
    score,
    without_dropout,
)
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.probe import (
    UnknownHeadError,
    output_head,
    supports_packing,
    supports_shared_prompts,
)
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.sampling.sync import SyncError, WeightSync

SHAPE = {
    "vocab_size": 400, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "initializer_range": 0.2,
    "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
CAPS = {"final_logit_softcapping": 3.0, "attn_logit_softcapping": 2.0}
MULTIPLIERS = {"logits_scaling": 3.0, "embedding_multiplier": 5.0, "residual_multiplier": 0.5}
FAMILIES = {  # (model type, what it has besides SHAPE, its attention when prepared)
    "llama": ("llama", {}, "packed"),
    "llama tied": ("llama", {"tie_word_embeddings": True}, "packed"),
    "qwen2": ("qwen2", {}, "packed"),
    "qwen3": ("qwen3", {}, "packed"),
    "mistral": ("mistral", {"sliding_window": None}, "packed"),
    "mistral windowed": ("mistral", {"sliding_window": 4}, "sdpa"),
    "gemma": ("gemma", {}, "packed"),
    "gemma2 capped": ("gemma2", {"sliding_window": 4, **CAPS}, "eager"),
    "gemma3": ("gemma3_text", {"sliding_window": 4}, "sdpa"),
    "phi3": ("phi3", {}, "packed"),
    "olmo2": ("olmo2", {}, "packed"),
    "granite scaled": ("granite", MULTIPLIERS, "packed"),
    "cohere scaled": ("cohere", {"logit_scale": 0.25}, "sdpa"),
    "qwen3 of experts": ("qwen3_moe", EXPERTS, "packed"),
    "mixtral": ("mixtral", {"num_local_experts": 4, "sliding_window": None}, "packed"),
    "bloom without positions": ("bloom", {}, "eager"),
    "recurrent": ("mamba", {}, "eager"),
}
QUICK = ["llama tied", "qwen2", "gemma2 capped", "qwen3 of experts", "recurrent"]
IN_VLLM = ["llama tied", "qwen2", "qwen3", "mistral", "gemma", "gemma2 capped", "phi3"]
SEQUENCES = [[1, 5, 9, 3, 30, 44, 8, 12, 90], [1, 6, 2], [4, 17, 8, 11, 2, 39, 33, 66], [1, 7]]
ALONE, TOGETHER = [[0], [1], [2], [3]], [[0, 1], [2, 3]]


@pytest.fixture(
    scope="module",
    params=[kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow)
            for kind in FAMILIES],
)  # fmt: skip
def family(request, tiny_checkpoint, tmp_path_factory):
    """(its checkpoint, the attention it gets)"""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    kind, rest, attention = FAMILIES[request.param]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, **SHAPE | rest), dtype=torch.float32
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # norms and biases that are not at rest
                parameter.add_(0.1 * torch.randn_like(parameter))
    folder = tmp_path_factory.mktemp("family")
    save_policy(model, AutoTokenizer.from_pretrained(tiny_checkpoint()), folder)
    return folder, attention


def packed(model, rows, temperature=0.8, borrowed=None):
    """Log-probs and entropies of SEQUENCES in their order, however they lie in rows."""
    laid = lay_out(SEQUENCES, rows, borrowed)
    mask_RT = laid.sequence_RT >= 0
    found = score(
        model, laid.ids_RT, laid.positions_RT, laid.targets_RT, mask_RT,
        temperature=temperature, chunk=4,
    )  # fmt: skip
    order_M = laid.sequence_RT[mask_RT].argsort(stable=True)
    return torch.stack(found)[:, order_M]


def plain(model, temperature=0.8):
    """The same from the logits of transformers, a sequence at a time."""
    found = []
    for sequence in SEQUENCES:
        ids = torch.tensor([sequence])
        logits = model(input_ids=ids, use_cache=False).logits[0, :-1].float() / temperature
        logp = logits.log_softmax(-1)
        said = logp.gather(-1, ids[0, 1:, None]).squeeze(-1)
        found.append(torch.stack([said, -(logp.exp() * logp).sum(-1)]))
    return torch.cat(found, dim=1)


def with_gradient(model, values):
    model.zero_grad()
    (values[0].sum() + 0.3 * values[1].sum()).backward()
    return values.detach(), torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters()]
    )


def agree(one, other):
    torch.testing.assert_close(one[0], other[0], atol=2e-5, rtol=1e-5)
    assert (one[1] - other[1]).norm() / other[1].norm() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("rows", [ALONE, TOGETHER], ids=["alone", "packed"])
@pytest.mark.parametrize(
    "trainer",
    [TrainerConfig(fused=False, packed_attention=False), TrainerConfig()],
    ids=["plain", "prepared"],
)
def test_scores_and_gradient_are_those_of_a_plain_forward(family, trainer, rows):
    folder, attention = family
    model = load_policy(folder)
    want = with_gradient(model, plain(model))
    prepare(model, trainer)
    if trainer.packed_attention:
        assert model.config._attn_implementation == attention
    agree(with_gradient(model, packed(model, rows)), want)


@pytest.mark.slow
def test_a_prompt_that_appears_once_gives_the_scores_and_the_gradient_of_each_answer(
    family, monkeypatch
):
    folder, attention = family
    model = prepare(load_policy(folder), TrainerConfig())
    assert supports_shared_prompts(model) == (attention == "packed")
    if not supports_shared_prompts(model) and supports_packing(model.base_model):
        with pytest.raises(ValueError, match="cannot read rows whose sequences share a prompt"):
            packed(model, [[0, 1]], borrowed=[0, 1])
    if supports_shared_prompts(model):
        prompt = [1, 6, 9, 3]
        answers = [[30, 44, 8], [2], [11, 2, 39, 33, 66]]
        asked = [[1, 7, 7], *([*prompt, *answer] for answer in answers)]
        monkeypatch.setitem(globals(), "SEQUENCES", asked)
        want = [x.detach() for x in answers_of(model, packed(model, ALONE))]
        found = answers_of(model, packed(model, [[0, 1, 2, 3]], borrowed=[0, 0, 3, 3]), first=True)
        agree(found, want)


def answers_of(model, values, first=False):
    """Scores of what is asked of the answers to the prompt, and their gradient. Where the prompt
    stands once, so do the scores of its own tokens."""
    lengths = [2, 6, *([1, 5] if first else [4, 8])]
    own = [values[:, :0]]
    for part, answer in zip(values.split(lengths, 1), (2, 3, 1, 5), strict=True):
        own.append(part[:, -answer:])
    return with_gradient(model, torch.cat(own, 1))


@pytest.mark.slow
def test_saved_and_loaded_by_transformers_it_is_the_same(family, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, _ = family
    model = prepare(load_policy(folder), TrainerConfig())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    save_policy(model, tokenizer, tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    held = again.state_dict()
    assert model.state_dict().keys() == held.keys()
    assert all(torch.equal(weight, held[name]) for name, weight in model.state_dict().items())
    assert AutoTokenizer.from_pretrained(tmp_path)("1+2=").input_ids == tokenizer("1+2=").input_ids


def sampled(engine, folder, **settings):
    """A sampler after a sync of other weights than its own, with the proof's report."""
    from veriloop.pipeline.config.sections import SamplerConfig

    sampler = open_sampler(
        SamplerConfig(engine=engine, cache_gib=0.1, max_batch=32, **settings),
        str(folder),
        max_length=96,
        say=print,
    )
    try:
        policy = prepare(load_policy(folder), TrainerConfig())
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.mul_(1.05)
        sync = WeightSync(policy, sampler, temperature=0.8, tolerance=1e-4)
        report = sync(1, [(1, 40, 41, 42), (1, 50), (1, 60, 61, 62, 63, 64, 65, 66)])
        sampler.sample([(1, 40)], Sampling(per_prompt=2, temperature=1.0, max_tokens=4, seed=1))
    finally:
        sampler.close()
    return report


@pytest.mark.slow
def test_the_torch_sampler_and_the_trainer_agree_after_a_sync(family, request):
    if "recurrent" in request.node.name:
        with pytest.raises(ValueError, match="has a recurrent state"):
            sampled("torch", family[0])
        return
    assert sampled("torch", family[0]).max < 1e-4


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize("family", IN_VLLM, indirect=True)
def test_vllm_and_the_trainer_agree_after_a_sync(family):
    pytest.importorskip("vllm")
    assert sampled("vllm", family[0]).max < 1e-4


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize("family", ["olmo2"], indirect=True)
def test_a_model_that_vllm_takes_from_transformers_needs_an_engine_apart(family):
    pytest.importorskip("vllm")
    with pytest.raises(RecipeError, match=r"Olmo2ForCausalLM .* Set sampler.apart: true"):
        sampled("vllm", family[0])
    assert sampled("vllm", family[0], apart=True).max < 1e-4


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize("family", ["qwen3 of experts"], indirect=True)
def test_experts_that_vllm_cannot_take_up_anew_on_a_cpu_are_found_by_the_proof(family):
    pytest.importorskip("vllm")
    with pytest.raises(SyncError, match="sampler and the trainer disagree"):
        sampled("vllm", family[0])


def build(kind, **rest):
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SHAPE | rest))
    return without_dropout(model).train()


def test_the_head_is_measured_whatever_the_config_calls_its_numbers():
    assert output_head(build("llama"))[2:] == (1.0, 0.0, False)
    assert output_head(build("cohere", logit_scale=0.25)).scale == pytest.approx(0.25)
    assert output_head(build("granite", logits_scaling=3.0)).scale == pytest.approx(1 / 3)
    capped = output_head(build("gemma2", **CAPS))
    assert (capped.scale, capped.cap) == pytest.approx((1.0, 3.0), rel=1e-5)


@pytest.mark.parametrize("how", ["bends logits", "changes the hidden states", "masks a token"])
def test_a_head_that_is_not_understood_is_refused(how):
    model = build("llama")

    def odd(_, __, out):
        out.logits = out.logits.clone()
        if how == "masks a token":
            out.logits[..., 7] = -torch.inf
        else:
            out.logits = out.logits.sign() * out.logits.abs().sqrt()
        return out

    if how == "changes the hidden states":
        model.lm_head.register_forward_pre_hook(lambda _, inputs: (inputs[0] * 2,))
    else:
        model.register_forward_hook(odd)
    with pytest.raises(UnknownHeadError, match="LlamaForCausalLM computes its logits"):
        output_head(model)


@pytest.mark.slow
def test_a_model_that_mixes_a_row_is_found_out_and_told_of(caplog):
    assert supports_packing(build("llama").base_model) and not supports_packing(
        build("mamba").base_model
    )
    prepare(build("mamba"), TrainerConfig())
    assert "MambaModel mixes the sequences of a packed row" in caplog.text


def test_measuring_leaves_the_model_and_the_dice_as_they_were():
    model, state = build("llama"), torch.get_rng_state()
    kept = copy.deepcopy(model.state_dict())
    prepare(model, TrainerConfig(fused=False, packed_attention=False))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, kept[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_checkpoint_in_bfloat16_is_trained_in_float32_and_saved_as_it_was(
    tiny_checkpoint, tmp_path
):
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    start = tmp_path / "start"
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint(tied=True), dtype=torch.bfloat16)
    model.save_pretrained(start)
    AutoTokenizer.from_pretrained(tiny_checkpoint()).save_pretrained(start)
    policy = load_policy(start)
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1 + 2**-12)  # less than bfloat16 can hold
    save_policy(policy, AutoTokenizer.from_pretrained(start), tmp_path / "saved")
    assert AutoConfig.from_pretrained(tmp_path / "saved").dtype == torch.bfloat16
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["dtype"] == "bfloat16"
    names = load_file(tmp_path / "saved" / "model.safetensors").keys()
    assert names == load_file(start / "model.safetensors").keys()  # the tied head is there once
    stored = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype="auto")
    for (name, want), got in zip(policy.named_parameters(), stored.parameters(), strict=True):
        assert got.dtype == torch.bfloat16 and torch.equal(want.bfloat16(), got), name
    fresh = load_policy(start)
    fresh.load_state_dict(saved_weights(fresh, tmp_path / "saved"))
    for one, other in zip(policy.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(one, other)  # a run goes on with what rounding has lost
