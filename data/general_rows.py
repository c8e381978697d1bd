"""Generated rows that ask for no reasoning: polite, helpful, harmless answers to short prompts."""

from collections.abc import Iterator
from random import Random
from typing import Any

from data.general import draw, good, question


def rows(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """`count` rows with good answers to prompts of the RL split, the same in every run."""
    for index in range(count):
        random = Random(f"general/rows/{seed}/{index}")
        topic = draw(random, "rl")
        answer = f"<think></think><answer>{good(topic, random)}</answer>"
        yield {
            "prompt": [{"role": "user", "content": question(topic, random)}],
            "completion": [{"role": "assistant", "content": answer}],
            "language": topic.language,
        }
