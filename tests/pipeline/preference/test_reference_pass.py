"""The reference is scored once, kept under what it depends on, and taken up where it stopped."""

import pickle
import re
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.probe import output_head, supports_packing
from veriloop.pipeline.preference import reference_pass as module
from veriloop.pipeline.preference.logps import segment_logps
from veriloop.pipeline.preference.reference_pass import (
    ReferenceLostError,
    ids_key,
    keep_pass,
    log_probs,
    pass_key,
    read_pass,
    reference_pass,
)

TRAINER = TrainerConfig(row=32, rows=2)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(module, "PART", 4)


class Counting:
    """Stands for a model whose ways are known; counts how often it is asked."""

    def __init__(self, model):
        self.model, self.asked = model, 0
        output_head(model), supports_packing(model.base_model)
        self._head_rule = model._head_rule

    def __getattr__(self, name):
        return getattr(self.model, name)

    @property
    def base_model(self):
        self.asked += 1
        return self.model.base_model


def test_each_example_has_the_log_probs_of_both_answers(tiny_llama, pairs):
    model, examples = tiny_llama(), pairs(5, segments=2)
    found = log_probs(model, examples, TRAINER)
    for example, logps in zip(examples, found, strict=True):
        with torch.no_grad():
            alone = segment_logps(model, example.answers, TrainerConfig(row=64, logits_chunk=9))
        assert_close(logps, alone, atol=1e-5, rtol=1e-5)
        assert not logps.requires_grad


def test_it_is_computed_once_and_then_read(tiny_llama, pairs, tmp_path):
    model, examples, said = Counting(tiny_llama()), pairs(10), []
    first = reference_pass(model, examples, TRAINER, tmp_path, said.append)
    asked = model.asked
    again = reference_pass(model, examples, TRAINER, tmp_path, said.append)
    assert model.asked == asked > 0
    for one, other, plain in zip(first, again, log_probs(model, examples, TRAINER), strict=True):
        assert torch.equal(one, other)
        assert_close(one, plain, atol=1e-5, rtol=1e-5)
    assert said == [
        f"reference: {count} of 10 examples scored now; cached in {tmp_path}" for count in (10, 0)
    ]
    assert all(map(torch.equal, read_pass(examples, tmp_path), first))
    keep_pass(tmp_path, tmp_path / "run/reference")
    assert all(map(torch.equal, read_pass(examples, tmp_path / "run/reference"), first))


def test_an_interrupted_pass_continues(tiny_llama, pairs, tmp_path):
    model, examples, said = Counting(tiny_llama()), pairs(10), []
    whole = reference_pass(model, examples, TRAINER, tmp_path)
    asked = model.asked
    (tmp_path / "part_00002.pt").unlink()
    with pytest.raises(ReferenceLostError, match=r"part_00002\.pt is missing"):
        read_pass(examples, tmp_path)
    model.asked = 0
    again = reference_pass(model, examples, TRAINER, tmp_path, said.append)
    assert all(map(torch.equal, again, whole))
    assert "2 of 10 examples scored now" in said[0] and 0 < model.asked < asked / 2


def test_two_runs_that_score_the_same_examples_do_not_meet(
    tiny_llama, pairs, tmp_path, beside_first_save
):
    model, examples, other = tiny_llama(), pairs(3), []
    beside_first_save(lambda: other.extend(reference_pass(model, examples, TRAINER, tmp_path)))
    found = reference_pass(model, examples, TRAINER, tmp_path)
    assert len(other) == 3 and all(map(torch.equal, found, other))


def test_a_cached_part_that_holds_more_than_tensors_is_refused(pairs, tmp_path):
    torch.save([tmp_path], tmp_path / "part_00000.pt")
    with pytest.raises(pickle.UnpicklingError):
        read_pass(pairs(3), tmp_path)


def in_other_segments(example):
    """The same ids, with the last token's log-prob in another sum."""
    first, *others = example.answers
    segments = (*first.segments[:-1], first.segments[-1] + 1)
    return replace(example, answers=(replace(first, segments=segments), *others))


def test_the_key_is_of_the_model_the_ids_and_the_tokenizer(tiny_llama, pairs, tokenizer):
    examples = pairs(3)
    key = pass_key(tiny_llama(), tokenizer, examples)
    assert ids_key(examples) == ids_key(pairs(3)) != ids_key(examples[:2])
    assert re.fullmatch("[0-9a-f]{16}", ids_key(examples)) and ids_key([]) == "e3b0c44298fc1c14"
    assert pass_key(tiny_llama(), tokenizer, pairs(3)) == key and re.fullmatch("[0-9a-f]{16}", key)
    moved = tiny_llama()
    with torch.no_grad():
        next(iter(moved.parameters()))[0, 0] += 1e-3
    read_otherwise = tiny_llama()
    read_otherwise.config.rms_norm_eps = 0.1
    others = [
        pass_key(moved, tokenizer, examples),
        pass_key(read_otherwise, tokenizer, examples),
        pass_key(tiny_llama(), tokenizer, examples[:2]),
        pass_key(tiny_llama(), tokenizer, examples[::-1]),
        pass_key(tiny_llama(), tokenizer, pairs(3, seed=1)),
        pass_key(
            tiny_llama(), tokenizer, [examples[0], examples[1], in_other_segments(examples[2])]
        ),
    ]
    assert len({key, *others}) == 7


def test_another_precision_is_another_key(tiny_llama, pairs, tokenizer):
    keys = {
        pass_key(prepare(tiny_llama(), TrainerConfig(compute=compute)), tokenizer, pairs(3))
        for compute in ("float32", "bfloat16")
    }
    assert len(keys) == 2


def test_another_tokenizer_is_another_key(tiny_llama, pairs, tokenizer):
    import copy

    key = pass_key(tiny_llama(), tokenizer, pairs(3))
    other = copy.deepcopy(tokenizer)
    other.add_tokens(["another"])
    assert pass_key(tiny_llama(), other, pairs(3)) != key
