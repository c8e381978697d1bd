"""Parts of a checkpoint are made once, and what cannot be made is not tried again."""

import pytest

from veriloop.pipeline.doctor import checkpoint_under_test as module
from veriloop.pipeline.doctor.checkpoint_under_test import MAX_LENGTH, MAX_TOKENS
from veriloop.pipeline.doctor.finding import UnavailableError


def test_each_part_is_made_once(checkpoint, monkeypatch):
    one, made = checkpoint(), []
    load = module.load_policy

    def counted(folder):
        made.append(folder)
        return load(folder)

    monkeypatch.setattr(module, "load_policy", counted)
    assert one.policy is one.policy and one.tokenizer is one.tokenizer
    assert made == [one.folder]


def test_a_failure_is_raised_once_and_named_after_that(checkpoint, monkeypatch):
    one = checkpoint()

    def broken(folder):
        raise OSError("file cut short\nmore")

    monkeypatch.setattr(module, "load_policy", broken)
    with pytest.raises(OSError, match="file cut short"):
        _ = one.policy
    told = r"needs the model, which failed to load: OSError: file cut short$"
    with pytest.raises(UnavailableError, match=told) as lack:
        _ = one.policy
    assert lack.value.fix == "fix the model first"


def test_prompts_leave_room_for_a_response(checkpoint):
    one = checkpoint()
    assert one.length == MAX_LENGTH
    one.config.max_position_embeddings = 24
    assert one.length == 24
    lengths = {len(prompt) for prompt in one.prompts}
    assert max(lengths) == 24 - MAX_TOKENS and len(lengths) > 1
    assert all(prompt[0] == one.tokenizer.bos_token_id for prompt in one.prompts)


def test_its_engine_is_closed_once(checkpoint, monkeypatch):
    one, closed = checkpoint(), []
    one.sampler.close = lambda: closed.append(1)
    one.close_sampler()
    one.close()
    assert closed == [1]
