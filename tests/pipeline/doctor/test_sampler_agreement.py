"""Sampler against trainer: engines that err are found out, sound ones pass."""

import copy
from dataclasses import replace

import pytest
import torch

from veriloop.pipeline.doctor.precision import in_bfloat16
from veriloop.pipeline.doctor.sampler_agreement import (
    TOLERANCE,
    log_probs,
    temperature,
    weight_sync,
)
from veriloop.pipeline.model.policy import load_policy, load_tokenizer, save_policy

CHECKS = (log_probs, temperature, weight_sync)
ENGINES = ["torch", pytest.param("vllm", marks=[pytest.mark.vllm, pytest.mark.slow])]


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param == "vllm":
        pytest.importorskip("vllm")
    return request.param


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
def test_a_sound_engine_passes_and_each_mistake_would_have_shown(
    engine, tied, checkpoint, finding, tiny_checkpoint
):
    one = checkpoint(tiny_checkpoint(tied=tied), engine=engine, dtype="bfloat16")
    before = copy.deepcopy(one.policy.state_dict())
    for look in CHECKS:
        found = finding(look, one)
        assert found.verdict == "ok" and 0 < found.number <= TOLERANCE, found.measured
        assert found.measured.split(" ")[0].isdigit() or "tokens differ" in found.measured
    assert engine in finding(log_probs, one).measured
    after = one.policy.state_dict()
    assert all(torch.equal(weight, after[name]) for name, weight in before.items())
    found = finding(in_bfloat16, one)  # an engine of its own where vLLM samples
    assert found.verdict == "ok" and found.number > 1e-4
    assert f"{engine} in {'float32' if engine == 'torch' else 'bfloat16'}" in found.measured


@pytest.fixture
def with_engine(checkpoint):
    """Function: a checkpoint whose engine samples or loads as the test says."""

    def plant(*, sample=None, load=None):
        one = checkpoint()
        engine = one.sampler
        original = engine.sample
        if sample is not None:
            engine.sample = lambda prompts, how: sample(original, prompts, how)
        if load is not None:
            engine.load_weights = lambda weights, version: load(engine, weights, version)
        return one

    return plant


def verdicts(checkpoint, finding):
    return [finding(look, checkpoint).verdict for look in CHECKS]


def test_an_engine_that_ignores_new_weights_fails_the_sync_alone(with_engine, finding):
    def ignore(engine, weights, version):
        engine.version = version

    one = with_engine(load=ignore)
    assert verdicts(one, finding) == ["ok", "ok", "fail"]
    found = finding(weight_sync, one)
    assert "holds other weights than were sent" in found.measured


def test_an_engine_that_never_takes_the_old_weights_back_fails(with_engine, finding):
    load = type(with_engine().sampler).load_weights

    def once(engine, weights, version):
        if version == 1:
            load(engine, weights, version)
        engine.version = version

    found = finding(weight_sync, with_engine(load=once))
    assert found.verdict == "fail" and "after 2 optimizer steps" in found.measured


def test_an_engine_that_says_the_wrong_version_fails(with_engine, finding):
    load = type(with_engine().sampler).load_weights
    found = finding(
        weight_sync, with_engine(load=lambda engine, weights, _: load(engine, weights, 0))
    )
    assert found.verdict == "fail" and "holds version 0 of the policy, not 1" in found.measured


def test_an_engine_at_another_temperature_fails_both(with_engine, finding):
    def cooler(sample, prompts, how):
        return sample(prompts, replace(how, temperature=0.9 * how.temperature))

    assert verdicts(with_engine(sample=cooler), finding)[:2] == ["fail", "fail"]


@pytest.mark.slow
def test_log_probs_from_before_the_temperature_fail_at_temperatures_alone(with_engine, finding):
    """Tokens are drawn at the temperature asked for; their log-probs are those at 1."""
    one = with_engine()
    sample = one.sampler.sample

    def unscaled(prompts, how):
        groups = sample(prompts, how)
        model = one.sampler._model
        return [
            [replace(c, logp=at_one(model, prompt, c.ids)) for c in group]
            for prompt, group in zip(prompts, groups, strict=True)
        ]

    one.sampler.sample = unscaled
    assert verdicts(one, finding)[:2] == ["ok", "fail"]


@torch.no_grad()
def at_one(model, prompt, ids):
    logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    return tuple(logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None]).flatten().tolist())


def test_log_probs_that_are_no_numbers_fail(with_engine, finding):
    def broken(sample, prompts, how):
        groups = sample(prompts, how)
        return [[replace(c, logp=(float("nan"),) * len(c.logp)) for c in g] for g in groups]

    assert set(verdicts(with_engine(sample=broken), finding)) == {"fail"}


@pytest.mark.slow
def test_an_even_model_leaves_the_checks_without_power_and_they_say_so(
    tiny_checkpoint, checkpoint, finding, tmp_path
):
    model = load_policy(tiny_checkpoint())
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()
    save_policy(model, load_tokenizer(tiny_checkpoint()), tmp_path)
    one = checkpoint(tmp_path)
    assert verdicts(one, finding) == ["ok", "warn", "warn"]


def test_an_engine_that_does_not_start_fails_once_and_is_missed_after_that(
    checkpoint, finding, monkeypatch
):
    one = checkpoint()

    def refuse(dtype):
        raise RuntimeError("head size 24 is not known")

    monkeypatch.setattr(one, "open_sampler", refuse)
    assert verdicts(one, finding) == ["fail", "skipped", "skipped"]
    assert "head size 24" in finding(temperature, one).measured
