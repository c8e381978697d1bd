"""Statistics in float32, whatever the pass is computed in."""

from dataclasses import replace

import torch

from veriloop.pipeline.doctor import precision
from veriloop.pipeline.doctor.precision import in_bfloat16, norm_and_softmax
from veriloop.pipeline.model import blocks
from veriloop.pipeline.model.fused_layers import FastNorm
from veriloop.pipeline.model.prepare import RecipeError


def test_norms_and_softmaxes_stay_in_float32(checkpoint, finding):
    found = finding(norm_and_softmax, checkpoint())
    assert (found.verdict, found.number) == ("ok", 0)
    assert found.measured.startswith("stored as float32; in a bfloat16 pass ")
    assert "rsqrt" in found.measured and "exp" in found.measured  # the head's softmax was seen


def test_a_norm_in_half_precision_fails(checkpoint, finding, monkeypatch):
    def rounded(self, hidden_states):
        scale = hidden_states.square().mean(-1, keepdim=True).add(1e-6).rsqrt()
        return hidden_states * scale * self.weight.to(hidden_states.dtype)

    monkeypatch.setattr(FastNorm, "forward", rounded)
    found = finding(norm_and_softmax, checkpoint())
    assert found.verdict == "fail" and "rsqrt run in bfloat16" in found.measured


def test_layers_that_a_gpu_compiles_are_checked_too(checkpoint, finding, monkeypatch):
    def compiled(model, trainer):
        blocks.set_up(prepare(model, trainer), recomputed="", compiles=True)
        return model

    prepare = precision.prepare
    monkeypatch.setattr(precision, "prepare", compiled)
    result = finding(norm_and_softmax, checkpoint())
    assert (result.verdict, result.number) == ("ok", 0) and "rsqrt" in result.measured


def test_a_softmax_in_half_precision_fails(checkpoint, finding, monkeypatch):
    def rounded(model, sequences):
        hidden = model.base_model(torch.tensor([sequences[0]]), use_cache=False).last_hidden_state
        return model.lm_head(hidden).bfloat16().log_softmax(-1)

    monkeypatch.setattr(precision, "score_packed", rounded)
    found = finding(norm_and_softmax, checkpoint())
    assert found.verdict == "fail" and "_log_softmax run in bfloat16" in found.measured


def test_layers_that_cannot_follow_are_reported(checkpoint, finding, monkeypatch):
    def refuse(model, trainer):
        raise RecipeError("trainer.compute=bfloat16: h.0 is a Conv1D")

    monkeypatch.setattr(precision, "prepare", refuse)
    found = finding(norm_and_softmax, checkpoint())
    assert found.verdict == "skipped" and "Conv1D" in found.measured


def test_bfloat16_is_compared_where_it_is_asked_for(checkpoint, finding):
    assert finding(in_bfloat16, checkpoint()).verdict == "skipped"
    found = finding(in_bfloat16, checkpoint(dtype="bfloat16"))
    assert found.verdict == "ok" and 1e-4 < found.number < 0.03


def test_a_trainer_in_bfloat16_against_another_temperature_fails(checkpoint, finding):
    one = checkpoint(dtype="bfloat16")
    sample = one.sampler.sample
    one.sampler.sample = lambda prompts, how: sample(prompts, replace(how, temperature=0.8))
    found = finding(in_bfloat16, one)
    assert found.verdict == "fail" and found.number > 0.03 and "allowed 0.03" in found.measured
