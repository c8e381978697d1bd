"""The response in a query: text that has its prompt in front and special tokens behind."""

import re

_TAIL_CHARS = 200  # of a prompt, by which a response is found behind a prompt that was cut
_SPECIAL = re.compile(r"(?:<\|[^<>|]{1,40}\|>|</s>|<eos>|<pad>|\[PAD\]|<end_of_turn>|\s)+\Z")


def response_of(query: str, prompt: str) -> str:
    """What the model wrote: without the prompt, of which only the end may be there, and without
    special tokens at the end. Raises ValueError when the prompt is not in front."""
    if query.startswith(prompt):
        rest = query[len(prompt) :]
    else:
        tail = prompt[-_TAIL_CHARS:]
        at = query.find(tail, 0, len(prompt))
        if at < 0:
            raise ValueError("a query does not begin with its prompt, nor with the end of it")
        rest = query[at + len(tail) :]
    return _SPECIAL.sub("", rest)
