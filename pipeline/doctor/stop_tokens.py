"""Checks of the tokens that end an answer, and of the pad token."""

from collections.abc import Iterable, Iterator
from typing import Any

from veriloop.data.chat import chat_text
from veriloop.pipeline.doctor.checkpoint_under_test import CheckpointUnderTest
from veriloop.pipeline.doctor.finding import Finding, fail, ok, skipped, warn
from veriloop.pipeline.model.policy import eos_ids

_ANSWER = "XYZZY"  # a marker to locate the end of the turn in the rendered template


def end_ids(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Whether there are end ids, they are in the vocabulary, and config.json lists no others."""
    name, tokenizer = "end ids", checkpoint.tokenizer
    ends = eos_ids(checkpoint.generation, tokenizer)
    measured = describe_ids(ends, tokenizer)
    fix = 'set "eos_token_id" in generation_config.json'
    if not ends:
        yield fail(name, "none: nothing ends a response", f"{fix}, and eos_token", 0)
        return
    config = checkpoint.config.get_text_config()
    if beyond := [i for i in ends if i >= config.vocab_size]:
        measured = f"{beyond} exceed the model's {config.vocab_size} tokens"
        yield fail(name, measured, fix, len(ends))
        return
    unlisted = sorted(set(_as_list(config.eos_token_id)) - set(ends))
    if unlisted:
        measured += f"; config.json also has {describe_ids(unlisted, tokenizer)}"
        yield warn(name, measured, f"{fix} to {[*ends, *unlisted]}", len(ends))
        return
    yield ok(name, measured, len(ends))


def end_of_turn(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Whether the first special token that the template writes after an answer ends a response."""
    name, tokenizer = "end of turn", checkpoint.tokenizer
    if not tokenizer.chat_template:
        fix = "use prompt template r1_zero, or set chat_template"
        yield skipped(name, "no chat template", fix)
        return
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _ANSWER}]
    text = chat_text(turns, tokenizer)
    _, answer, tail = text.rpartition(_ANSWER)
    if not answer:
        yield fail(name, "the template leaves the answer out", "fix chat_template")
        return
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    ids = tokenizer(tail, add_special_tokens=False).input_ids
    end = next((i for i in ids if i in special), None)
    if end is None:
        fix = "end the assistant's turn with eos_token in chat_template"
        yield warn(name, f"no special token after an answer, but {tail!r}", fix)
        return
    listed = {*_as_list(checkpoint.generation.eos_token_id), *_as_list(tokenizer.eos_token_id)}
    token = describe_ids([end], tokenizer)
    if end in listed:
        yield ok(name, f"{token}, which ends a response", end)
        return
    fix = f'set "eos_token_id": {sorted({*listed, end})} in generation_config.json'
    measured = f"{token} ends a turn in the template, but is not listed: an engine that stops only "
    measured += f"at {describe_ids(sorted(listed), tokenizer)} continues after it"
    yield warn(name, measured, fix, end)


def padding(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Trainers that mask answers by the pad id exclude a final EOS with the same id."""
    name, tokenizer = "pad", checkpoint.tokenizer
    pad = tokenizer.pad_token_id
    if pad is None:
        yield ok(name, "none, and none is needed: rows are packed, and lengths mark padding")
        return
    rows = checkpoint.config.get_text_config().vocab_size
    measured = describe_ids([pad], tokenizer)
    if pad >= rows:
        fix = "choose another pad_token"
        yield fail(name, f"{measured} exceeds the model's {rows} tokens", fix, pad)
    elif pad in eos_ids(checkpoint.generation, tokenizer):
        fix = "add a separate pad_token before using a trainer that masks answers by its id"
        yield warn(name, f"{measured} also ends a response; veriloop masks by length", fix, pad)
    else:
        yield ok(name, f"{measured}, which is no end id", pad)


def describe_ids(ids: Iterable[int], tokenizer: Any) -> str:
    """The ids with their tokens, such as `2 '<eos>'`."""
    return ", ".join(f"{i} {tokenizer.convert_ids_to_tokens(i)!r}" for i in ids)


def _as_list(ids: Any) -> list[int]:
    return [] if ids is None else list(ids) if isinstance(ids, list | tuple) else [ids]
