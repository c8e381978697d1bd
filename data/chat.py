"""Messages as text by the chat template of a tokenizer, the same on every day."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

TODAY = datetime(2024, 7, 26)  # that Llama 3.2's template writes where it is not told the time


def chat_text(
    messages: Sequence[Mapping[str, Any]], tokenizer: Any, *, invites: bool = False
) -> str:
    """The chat template's text for these messages; `invites`: up to the start of an answer.

    Templates that write today's date (`strftime_now`, as those of Llama 3 and SmolLM3) get `TODAY`:
    a prompt would otherwise change at midnight, in the middle of a run or of an evaluation.

    Raises ValueError for messages that the template refuses, such as two turns of one side.
    """
    try:
        return tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            add_generation_prompt=invites,
            tokenize=False,
            strftime_now=TODAY.strftime,
        )
    except Exception as refusal:  # a template is code of the model
        raise ValueError(f"the chat template refuses these messages: {refusal}") from refusal
