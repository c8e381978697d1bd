"""Generated rows that ask for no reasoning: polite, helpful, harmless answers to short prompts."""

from collections.abc import Iterator
from random import Random
from typing import Any

from data.general import draw, good


def rows(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """`count` rows with good answers to prompts of the RL split, the same in every run."""
    for index in range(count):
        random = Random(f"general/rows/{seed}/{index}")
        prompt = draw(random, "rl")
        answer = f"<think></think><answer>{good(prompt.topic, random)}</answer>"
        yield {
            "prompt": [{"role": "user", "content": prompt.text}],
            "completion": [{"role": "assistant", "content": answer}],
            "language": prompt.topic.language,
        }
