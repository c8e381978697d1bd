"""Checks of the tokenizer: it survives saving and loading, and every token has a model row."""

import tempfile
from collections.abc import Iterator
from typing import Any

import torch

from veriloop.pipeline.doctor.chat_template import TEXTS, render_question
from veriloop.pipeline.doctor.checkpoint_under_test import CheckpointUnderTest
from veriloop.pipeline.doctor.finding import Finding, fail, ok, warn
from veriloop.pipeline.model.policy import load_tokenizer

LEAK = 1e-3  # tolerated mean probability of rows without a token


def reloading(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Every save of a checkpoint rewrites the tokenizer, which must not change by it."""
    name, first = "tokenizer, reloaded", checkpoint.tokenizer
    with tempfile.TemporaryDirectory() as folder:
        first.save_pretrained(folder)
        second = load_tokenizer(folder)
    kind = type(first).__name__
    fix = "save it with the class that tokenizer.json was written for, or pin transformers"
    marks = " ".join(first.all_special_tokens)
    texts = [*TEXTS, marks, *([render_question(first)] if first.chat_template else [])]
    misread = _differing_from_file(checkpoint)
    lost = sorted(set(first.all_special_tokens) - set(second.all_special_tokens))
    changed = [text for text in texts if first(text).input_ids != second(text).input_ids]
    if misread:
        measured = f"{kind} encodes {misread[0][:30]!r} differently from tokenizer.json"
        fix = 'set "tokenizer_class": "TokenizersBackend" in tokenizer_config.json'
        yield fail(name, measured, fix, len(misread))
    elif lost:
        measured = f"{', '.join(lost)} special before saving, but not after"
        yield fail(name, measured, fix, len(lost))
    elif changed:
        kinds = " became ".join(dict.fromkeys((kind, type(second).__name__)))
        measured = f"{kinds}: {len(changed)} texts have other ids, such as {changed[0][:30]!r}"
        yield fail(name, measured, fix, len(changed))
    elif first.chat_template != second.chat_template:
        yield fail(name, "the chat template changes by saving", fix)
    else:
        yield ok(name, f"{type(second).__name__}, the same ids for {len(texts)} texts", 0)


def _differing_from_file(checkpoint: CheckpointUnderTest) -> list[str]:
    """Texts that the class chosen by transformers encodes differently from tokenizer.json."""
    from tokenizers import Tokenizer

    file = checkpoint.folder / "tokenizer.json"
    if not file.is_file():
        return []
    raw, loaded = Tokenizer.from_file(str(file)), checkpoint.tokenizer
    return [
        text
        for text in TEXTS
        if raw.encode(text, add_special_tokens=False).ids
        != loaded(text, add_special_tokens=False).input_ids
    ]


def vocabulary(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Every token that a text can have needs a row; rows without a token must have negligible
    probability."""
    name, ids = "vocabulary", set(checkpoint.tokenizer.get_vocab().values())
    rows = checkpoint.policy.get_output_embeddings().weight.shape[0]
    embeddings = checkpoint.policy.get_input_embeddings().weight.shape[0]
    measured = f"{len(ids)} tokens, {rows} rows"
    least = min(rows, embeddings)
    if max(ids) >= least:
        fix = "resize_token_embeddings(len(tokenizer)), and train the new rows first"
        measured += f": ids up to {max(ids)} have no row"
        unused = _unused_marks(checkpoint.tokenizer)
        if {i for i in ids if i >= least} <= unused.keys():  # image marks of text models
            marks = ", ".join(repr(text) for i, text in sorted(unused.items()) if i >= least)
            yield warn(name, f"{measured}; only a text that contains {marks} has such ids",
                       f"keep {marks} out of prompts", max(ids) + 1 - least)  # fmt: skip
            return
        yield fail(name, measured, fix, max(ids) + 1 - least)
        return
    empty = sorted(set(range(rows)) - ids)
    probability = _mean_probability(checkpoint, empty)
    measured += f"; {len(empty)} rows without a token have probability {probability:.1e}"
    if probability > LEAK:
        fix = "resize_token_embeddings(len(tokenizer)) and save the model again"
        yield warn(name, measured, fix, probability)
    else:
        yield ok(name, measured, probability)


def _unused_marks(tokenizer: Any) -> dict[int, str]:
    """The special tokens that neither the chat template nor the tokenizer writes, by id."""
    own = {getattr(tokenizer, f"{role}_token", None) for role in ("bos", "eos", "pad", "unk")}
    template = str(tokenizer.chat_template or "")
    marks = {i: str(t) for i, t in tokenizer.added_tokens_decoder.items() if t.special}
    return {i: text for i, text in marks.items() if text not in own and text not in template}


@torch.no_grad()
def _mean_probability(checkpoint: CheckpointUnderTest, rows: list[int]) -> float:
    """Probability that one of these ids follows a prompt, averaged over the prompts."""
    probabilities = [
        checkpoint.policy(torch.tensor([prompt])).logits[0, -1].softmax(-1)[rows].sum().item()
        for prompt in checkpoint.prompts
    ]
    return sum(probabilities) / len(probabilities)
