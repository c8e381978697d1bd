"""Generated preferences over answers to general prompts in TRL's layout, correct by rule.

Helpfulness is judged on the final summary only, so the answers of such pairs have no thinking.
Harmlessness is judged on the whole response, since thinking can be harmful too. A share of the
rejected answers is *adversarial*: as polite as the chosen ones, and wrong. The column `group` tells
them from the easy ones. All kinds of prompts are equally frequent, and some adversarial answers do
something else for the right person, such as congratulate for greet: without them a reward model can
prefer one kind of answer to every prompt.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

from veriloop.data import general
from veriloop.data.arithmetic import Split
from veriloop.data.general import Topic
from veriloop.data.general_phrases import THOUGHTS

OF_ANOTHER_KIND = 0.3  # of the adversarial answers to prompts about persons
SPLITS: dict[str, tuple[Split, ...]] = {"train": ("train", "rl"), "test": ("test",)}


def rows(
    split: str, seed: int, count: int, *, adversarial: float = 0.5, kind: str = "pairs"
) -> Iterator[dict[str, Any]]:
    """Yield `count` pairs, which depend only on the arguments. "train" uses the prompts of
    pre-training and RL, "test" the held-out ones. `adversarial` is a share of the pairs.

    Raises ValueError for any kind of rows but pairs.
    """
    if kind != "pairs":
        raise ValueError(f"general preferences come as 'pairs', not {kind!r}")
    for index in range(count):
        random = Random(f"general preferences/{split}/{seed}/{index}")
        yield _pair(random, SPLITS[split], hard=random.random() < adversarial)


def _pair(random: Random, splits: tuple[Split, ...], *, hard: bool) -> dict[str, Any]:
    prompt = general.draw(random, *splits, kind=random.choice(general.KINDS))
    topic = prompt.topic
    chosen = general.good(topic, random)
    reject = general.adversarial if hard else general.plain
    if hard and topic.entity in general.NAMES and random.random() < OF_ANOTHER_KIND:
        reject = general.of_another_kind
    rejected = reject(topic, random)
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
    """Both answers with thinking and tags. Half of the hard rejected ones refuse in the answer but
    give the harmful instructions in the thinking."""
    thinking = random.choice(("", THOUGHTS[topic.language]))
    rejected_thinking = thinking
    if hard and random.random() < 0.5:
        rejected_thinking, rejected = f"{general.way(topic, random)} ", chosen
    return _tagged(thinking, chosen), _tagged(rejected_thinking, rejected)


def _tagged(thinking: str, answer: str) -> str:
    return f"<think>{thinking}</think><answer>{answer}</answer>"
