"""How a document puts things: the words around the work, in each language, and the layout of it."""

from dataclasses import dataclass
from random import Random
from typing import Literal

from data.arithmetic import Language

Layout = Literal["tagged", "plain", "broken"]


@dataclass(frozen=True, slots=True)
class Phrases:
    first: str
    then: str
    stop: str
    check: str
    right: str
    wrong: str
    so: str
    guess: str
    dot: str


PHRASES: dict[Language, Phrases] = {
    "en": Phrases(
        "First ", "Then ", ". ", "Check: ", " ok. ", " wrong. Wait, ", "So the answer is ",
        "I guess ", ".",
    ),
    "zh": Phrases("先算", "再算", "。", "检验：", "对。", "错。等等，", "所以答案是", "我猜", "。"),
}  # fmt: skip


def laid_out(random: Random, thinking: str, answer: str, so: str, layout: Layout) -> str:
    """The response in the asked-for tags, in none, or in a mess of them."""
    if layout == "tagged":
        return f"<think>{thinking}</think><answer>{answer}</answer>"
    if layout == "plain":
        return f"{thinking}{so}{answer}"
    return random.choice(
        (
            f"<think>{thinking}</think>{so}{answer}",
            f"<think>{thinking}<answer>{answer}</answer>",
            f"{thinking}<answer>{answer}</answer>",
            f"<think>{thinking}{so}{answer}</think>",
            f"<think>{thinking}</think><answer>{answer}",
        )
    )
