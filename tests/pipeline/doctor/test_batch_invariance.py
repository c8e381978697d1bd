"""Neighbours must not show: attention that leaks, positions that go on, masks that are ignored."""

import pytest
import torch

from veriloop.pipeline.doctor import batch_invariance as neighbours
from veriloop.pipeline.doctor.batch_invariance import (
    forward_padded,
    forward_separately,
    left_padding,
    logits,
    packing,
    score_packed,
    score_separately,
)
from veriloop.pipeline.doctor.sampler_agreement import TOLERANCE
from veriloop.pipeline.model import probe as ways
from veriloop.pipeline.model.packing import lay_out

PLAIN, TRAINED = "packing, plain", "packing, packed"


def test_a_sound_model_passes_and_a_leak_would_have_shown(checkpoint, findings, finding):
    one = checkpoint()
    found = findings(packing, one)
    assert {name: f.verdict for name, f in found.items()} == {PLAIN: "ok", TRAINED: "ok"}
    assert all(f.number <= TOLERANCE for f in found.values())
    assert finding(left_padding, one).verdict == "ok"
    found = finding(logits, one)
    assert found.verdict == "ok" and 0 < found.number <= TOLERANCE


def test_a_model_that_caps_its_logits_fails_and_packing_is_not_blamed(
    checkpoint, finding, findings
):
    one = checkpoint()
    head = one.policy.lm_head
    head.register_forward_hook(lambda module, given, made: 3 * torch.tanh(made / 3))
    found = finding(logits, one)
    assert found.verdict == "fail" and found.number > 100 * TOLERANCE
    assert {f.verdict for f in findings(packing, one).values()} == {"ok"}


def test_a_model_that_carries_a_state_across_has_no_setting_that_helps(
    checkpoint, findings, monkeypatch
):
    monkeypatch.setattr(neighbours, "score_packed", seeing_what_came_before(score_packed))
    found = findings(packing, checkpoint())
    assert {f.verdict for f in found.values()} == {"fail"}
    assert all("another architecture" in f.fix for f in found.values())


def seeing_what_came_before(score):
    def drifting(model, sequences):
        made = score(model, sequences)
        return made + 0.01 * torch.arange(len(made)) if len(sequences) > 1 else made

    return drifting


def test_attention_that_leaks_between_sequences_gives_each_a_row(checkpoint, findings, monkeypatch):
    laid = ways.attention_layout

    def one_segment(positions_RT, dtype, _ids_RT):
        return laid(torch.arange(positions_RT.shape[1]).expand_as(positions_RT), dtype)

    monkeypatch.setattr(ways, "attention_layout", one_segment)
    found = findings(packing, checkpoint())
    assert found[PLAIN].verdict == "ok"
    assert found[TRAINED].verdict == "warn" and found[TRAINED].number < TOLERANCE
    assert "each one gets its own row" in found[TRAINED].measured


def test_positions_that_do_not_start_again_fail_everywhere(checkpoint, findings, monkeypatch):
    from dataclasses import replace

    def running_on(sequences, rows):
        made = lay_out(sequences, rows)
        going = torch.arange(made.positions_RT.shape[1]).expand_as(made.positions_RT)
        return replace(made, positions_RT=going)

    monkeypatch.setattr(neighbours, "lay_out", running_on)
    assert {f.verdict for f in findings(packing, checkpoint()).values()} == {"fail"}


def test_a_model_that_ignores_its_mask_fails(checkpoint, finding):
    one = checkpoint()
    forward = one.policy.forward

    def unmasked(*args, attention_mask=None, position_ids=None, **rest):
        return forward(*args, **rest)

    one.policy.forward = unmasked
    found = finding(left_padding, one)
    assert found.verdict == "fail" and found.number > 100 * TOLERANCE


def test_a_model_that_sees_no_neighbours_leaves_the_check_without_power(checkpoint, findings):
    one = checkpoint()
    with torch.no_grad():
        for layer in one.policy.model.layers:
            layer.self_attn.o_proj.weight.zero_()
    assert findings(packing, one)[PLAIN].verdict == "warn"


def test_no_number_passes_nothing(checkpoint, findings, finding):
    one = checkpoint()
    with torch.no_grad():
        one.policy.model.norm.weight.fill_(float("nan"))
    assert findings(packing, one)[PLAIN].verdict == "fail"
    assert finding(left_padding, one).verdict == "fail"


def test_each_way_scores_the_tokens_in_the_order_of_the_sequences(tiny_llama, plain_scores):
    model, sequences = tiny_llama(), [(1, 5, 9), (1, 7, 3, 8, 2), (4, 6)]
    with torch.no_grad():
        right = torch.cat([plain_scores(model, s[:1], s[1:])[0] for s in sequences])
    for way in (forward_separately, score_separately, score_packed, forward_padded):
        torch.testing.assert_close(way(model, sequences), right, atol=1e-5, rtol=0)


@pytest.mark.parametrize("sequences", [[(1, 2, 3), (4, 5)], [(1, 2), (3, 4), (5, 6, 7)]])
def test_what_is_kept_of_one_long_sequence_are_the_tokens_that_begin_none(sequences):
    joined = [token for sequence in sequences for token in sequence]
    kept = neighbours._predicted_within(sequences)
    predicted = torch.tensor(joined[1:])
    assert predicted[kept].tolist() == [t for s in sequences for t in s[1:]]
