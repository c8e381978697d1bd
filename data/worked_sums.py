"""Generated rows for supervised fine-tuning: sums worked out step by step, each step checked."""

from collections.abc import Iterator
from random import Random
from typing import Any

from data.arithmetic import Language, draw, question
from data.corpus import worked


def rows(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """`count` rows of the RL split, right by construction, the same in every run."""
    for index in range(count):
        random = Random(f"worked/{seed}/{index}")
        chain = draw(random, "rl")
        language: Language = random.choice(("en", "zh"))
        thinking, value = worked(random, chain, "verify", language, errors=(0.0, 0.0))
        answer = f"<think>{thinking}</think><answer>{value}</answer>"
        yield {
            "prompt": [{"role": "user", "content": question(chain, language, random)}],
            "completion": [{"role": "assistant", "content": answer}],
        }
