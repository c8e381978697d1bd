"""From a problem to prompt ids: the R1-Zero template, or the model's own chat template."""

from typing import Any, Literal

from jinja2 import TemplateError

from data.problem import Problem
from data.template import R1_ZERO

Template = Literal["r1_zero", "chat"]


def prompt_ids(
    problem: Problem, tokenizer: Any, template: Template = "r1_zero", system: str = ""
) -> tuple[int, ...]:
    """The ids a response is sampled after; exactly one beginning-of-sequence id where the model
    has one. `system` is a chat's first message, if it has words. Raises ValueError when the
    result starts with none or two, and for a chat template that will not have these messages."""
    if template == "chat":
        text = _chat(problem.prompt, tokenizer, system)
    else:
        text = R1_ZERO.format(prompt=problem.prompt)
        if begins_with_bos(tokenizer):
            text = tokenizer.bos_token + text
    ids = tuple(tokenizer(text, add_special_tokens=False).input_ids)
    _check_beginning(ids, tokenizer)
    return ids


def _chat(question: str, tokenizer: Any, system: str) -> str:
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": question})
    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except TemplateError as refusal:
        raise ValueError(f"the chat template refuses these messages: {refusal}") from refusal
    if system.strip() not in text:
        raise ValueError("the chat template leaves the system message out; set system to ''")
    return text


def response_text(ids: tuple[int, ...], tokenizer: Any, ends: tuple[int, ...]) -> str:
    """What the model wrote: every token but the final end-of-sequence one, tags and all."""
    written = ids[:-1] if ids and ids[-1] in ends else ids
    return tokenizer.decode(
        list(written), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )


def template_writes_bos(tokenizer: Any) -> bool:
    """Whether the chat template writes the beginning-of-sequence token itself."""
    return tokenizer.bos_token is not None and _chat("a", tokenizer, "").startswith(
        tokenizer.bos_token
    )


def begins_with_bos(tokenizer: Any) -> bool:
    """Whether the tokenizer puts a beginning-of-sequence id of its own before a text."""
    ids = tokenizer("a").input_ids
    return tokenizer.bos_token_id is not None and ids[:1] == [tokenizer.bos_token_id]


def _check_beginning(ids: tuple[int, ...], tokenizer: Any) -> None:
    bos = tokenizer.bos_token_id
    wanted = 1 if begins_with_bos(tokenizer) else 0
    found = sum(1 for i in ids[:2] if bos is not None and i == bos)
    if bos is not None and found != wanted and found > 1:
        raise ValueError(f"the prompt begins with {found} BOS tokens ({bos}); expected {wanted}")
    if wanted and not found:
        raise ValueError(f"the prompt lacks the BOS token ({bos}) that the model was trained with")
