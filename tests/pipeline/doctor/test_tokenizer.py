"""Tokens after a save and against the model's rows."""

import pytest
import torch

from veriloop.pipeline.doctor import tokenizer as module
from veriloop.pipeline.doctor.tokenizer import reloading, vocabulary
from veriloop.pipeline.model.policy import load_tokenizer


def test_a_sound_tokenizer_passes(checkpoint, finding):
    one = checkpoint()
    assert finding(reloading, one).verdict == "ok"
    found = finding(vocabulary, one)
    assert found.verdict == "ok" and found.measured.startswith("400 tokens, 400 rows; 0 rows")
    assert found.number == 0.0


@pytest.mark.parametrize("kind", ["LlamaTokenizer", "Qwen2Tokenizer"])
def test_a_class_that_rewrites_the_tokenizer_is_found_out(checkpoint, altered, finding, kind):
    found = finding(reloading, checkpoint(altered("tokenizer_config.json", tokenizer_class=kind)))
    assert found.verdict == "fail" and f"{kind} encodes '<think>First" in found.measured
    assert "TokenizersBackend" in found.fix


@pytest.fixture
def reloaded(monkeypatch):
    """Function: the second time a tokenizer is read it comes back changed."""

    def change(how):
        def load(folder):
            again = load_tokenizer(folder)
            how(again)
            return again

        monkeypatch.setattr(module, "load_tokenizer", load)

    return change


def drop_pad(tokenizer):
    tokenizer.pad_token = None


def forget_beginning(tokenizer):
    from tokenizers import processors

    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (drop_pad, "<pad> special before saving, but not after"),
        (forget_beginning, "7 texts have other ids"),
        (lambda tokenizer: setattr(tokenizer, "chat_template", "x"), "the chat template changes"),
    ],
)
def test_what_a_save_loses_fails(checkpoint, finding, reloaded, how, said):
    reloaded(how)
    found = finding(reloading, checkpoint())
    assert found.verdict == "fail" and said in found.measured


@pytest.mark.parametrize("more", [1, 2])
def test_tokens_without_a_row_fail(checkpoint, finding, more):
    one = checkpoint()
    one.tokenizer.add_tokens([f"<more {n}>" for n in range(more)])
    found = finding(vocabulary, one)
    assert (found.verdict, found.number) == ("fail", more)
    assert f"ids up to {399 + more} have no row" in found.measured


def test_a_mark_without_a_row_that_no_template_writes_is_warned_of(checkpoint, finding):
    one = checkpoint()
    one.tokenizer.add_special_tokens({"extra_special_tokens": ["<image>"]})
    found = finding(vocabulary, one)
    assert (found.verdict, found.number) == ("warn", 1)
    assert "ids up to 400 have no row; only a text that contains '<image>'" in found.measured
    one.tokenizer.chat_template += "<image>"
    assert finding(vocabulary, one).verdict == "fail"


@pytest.mark.parametrize(("logit", "verdict"), [(-60.0, "ok"), (60.0, "warn")])
def test_rows_without_a_token_must_not_be_likely(checkpoint, finding, logit, verdict):
    one = checkpoint()
    one.policy.resize_token_embeddings(408)
    head = one.policy.get_output_embeddings()
    head.bias = torch.nn.Parameter(torch.zeros(408))
    with torch.no_grad():
        head.weight[400:] = 0.0
        head.bias[400:] = logit
    found = finding(vocabulary, one)
    assert found.verdict == verdict and "8 rows without a token" in found.measured
    assert (found.number > 0.5) == (verdict == "warn")
