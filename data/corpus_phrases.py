"""The wording of corpus documents in each language, and the layouts of an answer."""

from dataclasses import dataclass
from random import Random
from typing import Literal

from veriloop.data.arithmetic import Language

Layout = Literal["tagged", "plain", "broken"]


@dataclass(frozen=True, slots=True)
class Phrases:
    """The words around each part of a worked solution, in one language."""

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


def render_answer(random: Random, thinking: str, answer: str, so: str, layout: Layout) -> str:
    """A response with the required tags, without tags, or with broken ones."""
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
