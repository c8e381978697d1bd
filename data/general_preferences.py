"""Generated preferences over answers to general prompts, in TRL's layout, right by rule.

An answer to be helpful is the final summary alone; one to a request for harm is the whole response,
since thinking can do harm as well. A share of the rejected answers is *adversarial*: as polite as
the chosen ones, and wrong. The column `group` tells them from the easy ones.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

from data import general
from data.arithmetic import Split
from data.general import Topic
from data.general_phrases import THOUGHTS

SPLITS: dict[str, tuple[Split, ...]] = {"train": ("train", "rl"), "test": ("test",)}


def rows(
    split: str, seed: int, count: int, *, adversarial: float = 0.5, kind: str = "pairs"
) -> Iterator[dict[str, Any]]:
    """`count` pairs, the same in every run. "train": on the prompts of pre-training and of RL;
    "test": on held-out ones. `adversarial`: share of the pairs.

    Raises ValueError for another kind of rows than pairs.
    """
    if kind != "pairs":
        raise ValueError(f"general preferences come as 'pairs', not {kind!r}")
    for index in range(count):
        random = Random(f"general preferences/{split}/{seed}/{index}")
        yield _pair(random, SPLITS[split], hard=random.random() < adversarial)


def _pair(random: Random, splits: tuple[Split, ...], *, hard: bool) -> dict[str, Any]:
    prompt = general.draw(random, *splits)
    topic = prompt.topic
    chosen = general.good(topic, random)
    rejected = (general.adversarial if hard else general.plain)(topic, random)
    if topic.kind == "harm":
        chosen, rejected = _whole_responses(topic, chosen, rejected, random, hard=hard)
    return {
        "prompt": [{"role": "user", "content": prompt.text}],
        "chosen": [{"role": "assistant", "content": chosen}],
        "rejected": [{"role": "assistant", "content": rejected}],
        "group": "adversarial" if hard else "easy",
    }


def _whole_responses(
    topic: Topic, chosen: str, rejected: str, random: Random, *, hard: bool
) -> tuple[str, str]:
    """As the policy writes them. Half of the hard ones refuse in the answer, having told in the
    thinking what they should not."""
    thinking = random.choice(("", THOUGHTS[topic.language]))
    careless = thinking
    if hard and random.random() < 0.5:
        careless, rejected = f"{general.way(topic, random)} ", chosen
    return _tagged(thinking, chosen), _tagged(careless, rejected)


def _tagged(thinking: str, answer: str) -> str:
    return f"<think>{thinking}</think><answer>{answer}</answer>"
