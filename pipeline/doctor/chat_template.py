"""Checks of tokenization: BOS tokens, round trips, and what a chat template leaves out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from veriloop.data.bos import bos_count, bos_fault
from veriloop.data.chat import TODAY, chat_text
from veriloop.data.template import R1_ZERO
from veriloop.pipeline.doctor.checkpoint_under_test import CheckpointUnderTest
from veriloop.pipeline.doctor.finding import Finding, fail, ok, skipped, warn

_THOUGHT = "twelve and seven"
_CONVERSATION = [
    {"role": "user", "content": "What is 12+7?"},
    {"role": "assistant", "content": f"<think>{_THOUGHT}</think> <answer>19</answer>"},
]
TEXTS = (  # typical contents of answers
    "<think>First, 12+7=19; then 19-5=14.</think> <answer>14</answer>",
    "  two  spaces, a\ttab\nand a line . And ' s , quoted ?",
    "计算:8-3+21=26。因此答案是 26。",
    r"\boxed{\frac{1}{2}} ≤ √2, naïve, Ünïcode",
    "def f(x):\n    return {'a': x ** 2}  # 1_000",
)
NO_TEMPLATE = "use prompt template r1_zero, or set chat_template"


def beginnings(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """A prompt begins with one BOS id if the tokenizer adds one, and never with two."""
    tokenizer = checkpoint.tokenizer
    text = R1_ZERO.format(prompt="What is 12+7?")
    yield _beginning("BOS, plain prompt", tokenizer(text).input_ids, tokenizer)
    name = "BOS, chat prompt"
    if not tokenizer.chat_template:
        yield skipped(name, "no chat template", NO_TEMPLATE)
        return
    ids = tokenizer(render_question(tokenizer), add_special_tokens=False).input_ids
    yield _beginning(name, ids, tokenizer, _CONVERSATION[:1])


def _beginning(
    name: str, ids: list[int], tokenizer: Any, messages: Sequence[Mapping[str, Any]] = ()
) -> Finding:
    if tokenizer.bos_token_id is None:
        return ok(name, "the tokenizer has none", 0)
    count = bos_count(ids, tokenizer)
    measured = f"{count} of {tokenizer.bos_token!r}"
    match bos_fault(ids, tokenizer, messages):
        case "doubled" | "misplaced":
            return fail(name, measured, "remove bos_token from chat_template, or from the "
                        "tokenizer's post-processor", count)  # fmt: skip
        case "missing":
            fix = "begin chat_template with bos_token: the model was trained with it"
            return fail(name, f"{measured}, though the tokenizer adds one to a text", fix, 0)
        case _:
            turns = ", one per turn of the chat template" if count > 1 else ""
            return ok(name, measured + turns, count)


def round_trip(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Verifiers read decoded ids, so encoding and decoding must not change a text."""
    name, tokenizer = "round trip", checkpoint.tokenizer
    texts = [*TEXTS, *([render_question(tokenizer)] if tokenizer.chat_template else [])]
    changed = [(text, back) for text in texts if (back := _round_trip(text, tokenizer)) != text]
    if not changed:
        yield ok(name, f"{len(texts)} of {len(texts)} texts are unchanged", len(texts))
        return
    text, back = changed[0]
    at = next((i for i, (a, b) in enumerate(zip(text, back, strict=False)) if a != b), len(back))
    measured = f"{len(changed)} of {len(texts)} texts change; {text[at : at + 20]!r} becomes "
    fix = "remove the normalizer from tokenizer.json, and add tokens for missing characters"
    yield fail(name, f"{measured}{back[at : at + 20]!r}", fix, len(changed))


def _round_trip(text: str, tokenizer: Any) -> str:
    ids = tokenizer(text, add_special_tokens=False).input_ids
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def template_ids(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Ids of a rendered template are equal to the ids of its text without added tokens."""
    name, tokenizer = "template ids", checkpoint.tokenizer
    if not tokenizer.chat_template:
        yield skipped(name, "no chat template", NO_TEMPLATE)
        return
    encoding = tokenizer.apply_chat_template(
        _CONVERSATION[:1],
        add_generation_prompt=True,
        return_dict=True,
        strftime_now=TODAY.strftime,
    )
    ids = encoding["input_ids"]
    text_ids = tokenizer(render_question(tokenizer), add_special_tokens=False).input_ids
    if ids != text_ids:
        measured = f"{len(ids)} ids from apply_chat_template, {len(text_ids)} from its text"
        fix = "write special tokens in chat_template exactly as in the tokenizer"
        yield fail(name, measured, fix, len(ids) - len(text_ids))
        return
    yield ok(name, f"{len(ids)} ids, both from apply_chat_template and from its text", len(ids))


def reasoning(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Whether the template keeps reasoning in answers, and where a response begins."""
    name, tokenizer = "template, reasoning", checkpoint.tokenizer
    if not tokenizer.chat_template:
        yield skipped(name, "no chat template", NO_TEMPLATE)
        return
    prompt = render_question(tokenizer)
    effects, fixes = [], []
    if _THOUGHT not in chat_text(_CONVERSATION, tokenizer):
        effects.append("strips the reasoning of the last answer")
        fixes.append("stages put answers in whole; elsewhere fine-tune on texts, not on messages")
    longer = [*_CONVERSATION, {"role": "user", "content": "And 5 more?"}]
    if _THOUGHT not in chat_text(longer, tokenizer):
        effects.append("strips the reasoning of earlier answers")
        fixes.append("build multi-turn conversations from ids, not from messages")
    if prompt.rstrip().endswith("<think>"):
        effects.append("prefills <think>")
        fixes.append('stages see it; elsewhere give problems the fact "prefilled_think": true')
    if effects:
        yield warn(name, f"the template {' and '.join(effects)}", "; ".join(fixes), len(effects))
    else:
        yield ok(name, "kept in all answers; a response begins before <think>", 0)


def think_tags(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Tags that are special tokens vanish when decoding with skip_special_tokens=True."""
    name, tokenizer = "think tags", checkpoint.tokenizer
    tags = ("<think>", "</think>", "<answer>", "</answer>")
    ids = {tag: tokenizer(tag, add_special_tokens=False).input_ids for tag in tags}
    special = [tag for tag in tags if set(ids[tag]) & set(tokenizer.all_special_ids)]
    if special:
        fix = "veriloop keeps them; decode with skip_special_tokens=False elsewhere"
        yield warn(name, f"{', '.join(special)} are special tokens", fix, len(special))
        return
    count = sum(map(len, ids.values()))
    yield ok(name, f"ordinary text, {count} tokens for all four", count)


def render_question(tokenizer: Any) -> str:
    """One question rendered by the chat template, up to the start of the response."""
    return chat_text(_CONVERSATION[:1], tokenizer, invites=True)
