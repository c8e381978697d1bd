"""Generated rows for supervised fine-tuning in TRL's layout: worked sums and general answers.

Every row is correct by construction, and the rows of a seed are the same in every run.
"""

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from veriloop.data import general
from veriloop.data.arithmetic import Language, draw, question
from veriloop.data.corpus import worked


def worked_sums(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield `count` sums of the RL split, solved step by step with every step checked."""
    for index in range(count):
        random = Random(f"worked/{seed}/{index}")
        chain = draw(random, "rl")
        language: Language = random.choice(("en", "zh"))
        thinking, value = worked(random, chain, "verify", language, errors=(0.0, 0.0))
        answer = f"<think>{thinking}</think><answer>{value}</answer>"
        yield _row(question(chain, language, random), answer)


def general_answers(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield `count` prompts of the RL split that need no reasoning, each with a good answer."""
    for index in range(count):
        random = Random(f"general/rows/{seed}/{index}")
        prompt = general.draw(random, "rl")
        answer = f"<think></think><answer>{general.good(prompt.topic, random)}</answer>"
        yield {**_row(prompt.text, answer), "language": prompt.topic.language}


GENERATED: Mapping[str, Callable[[int, int], Iterator[dict[str, Any]]]] = {  # by (seed, count)
    "arithmetic": worked_sums,
    "general": general_answers,
}


def _row(prompt: str, completion: str) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": prompt}],
        "completion": [{"role": "assistant", "content": completion}],
    }
