"""Generated rows that ask for no reasoning: polite, helpful, harmless answers to short prompts."""

from collections.abc import Iterator
from random import Random
from typing import Any

from data.small_talk import exchange


def rows(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """`count` rows with good answers, the same in every run."""
    for index in range(count):
        random = Random(f"general/{seed}/{index}")
        talk = exchange(random)
        while not talk.good:
            talk = exchange(random)
        answer = f"<think>{talk.thinking}</think><answer>{talk.answer}</answer>"
        yield {
            "prompt": [{"role": "user", "content": talk.prompt}],
            "completion": [{"role": "assistant", "content": answer}],
        }
