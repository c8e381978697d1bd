"""The prompt of a conversation, as verifiers read it."""

from collections.abc import Mapping
from typing import Any


def user_text(conversation: Any) -> str:
    """The text of the last user message; of a plain text, all of it.

    Messages have a role and a content: a text, or parts of which those with a text count, as in
    OpenAI's chat completions and responses. "" where there is no such message.
    """
    if isinstance(conversation, str):
        return conversation
    for message in reversed(conversation if isinstance(conversation, list) else []):
        if isinstance(message, Mapping) and message.get("role") == "user":
            return _text(message.get("content"))
    return ""


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "".join(text for text in texts if isinstance(text, str))
