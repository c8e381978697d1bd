"""The texts of a conversation in other frameworks' rows, as verifiers read them.

Messages have a role and a content: a text, or parts of which those with a text count, as in
OpenAI's chat completions and responses.
"""

from collections.abc import Mapping
from typing import Any


def last_text(conversation: Any) -> str:
    """The text of the last message; of a plain text, all of it; "" of an empty conversation."""
    if isinstance(conversation, str):
        return conversation
    return content_text(conversation[-1]["content"]) if conversation else ""


def user_text(conversation: Any) -> str:
    """The text of the last user message; of a plain text, all of it; "" where there is none."""
    if isinstance(conversation, str):
        return conversation
    for message in reversed(conversation if isinstance(conversation, list) else []):
        if isinstance(message, Mapping) and message.get("role") == "user":
            return content_text(message.get("content"))
    return ""


def content_text(content: Any) -> str:
    """The text of a message's content."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "".join(text for text in texts if isinstance(text, str))
