"""Corpus documents about other tasks than sums: one-line programs and general prompts.

Programs and prompts are those of the training split. Facts cover all entities.
"""

from dataclasses import dataclass
from random import Random

from veriloop.data import general, programs
from veriloop.data.arithmetic import Language
from veriloop.data.corpus_phrases import PHRASES, Layout, render_answer
from veriloop.data.general_phrases import THOUGHTS
from veriloop.data.template import R1_ZERO

FACTS = 6  # per document of facts
EXCHANGES = 3  # per web document of prompts and answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a document answers, drawn before its question."""

    language: Language  # of the question
    spoken: tuple[Language, ...]  # of the thinking; if several, drawn for each step
    layout: Layout | None  # None: a web document, without template and tags
    direct: bool  # guesses instead of solving in steps
    guess_errors: float
    step_errors: tuple[float, float]  # per operation: in English, in Chinese
    good: float  # share of good answers in general talk
    wrong: float  # share of polite, wrong answers


def program(random: Random, style: Style) -> str:
    """A question for a function, and an answer."""
    composition = programs.draw(random, "train")
    prompt = programs.question(composition, style.language, random)
    phrases = PHRASES[style.spoken[0]]
    if style.direct:
        if random.random() < style.guess_errors:
            composition = programs.slip(random, composition)
        expression = list(composition.expressions())[-1]
        guess = f"{phrases.guess}{expression}{phrases.dot}"
        thinking = guess if random.random() < 0.5 else ""
    else:
        rate = style.step_errors[style.spoken[0] == "zh"]
        if random.random() < 1 - (1 - rate) ** len(composition.operations):
            composition = programs.slip(random, composition)
        thinking = programs.steps(composition, lambda: random.choice(style.spoken))
    return _document(random, prompt, thinking, composition.program(), phrases.so, style.layout)


def talk(random: Random, style: Style) -> str:
    """A prompt under the template with a good or bad answer. As a web document: prompts with good
    answers, or facts about entities."""
    if style.layout is None and random.random() < 0.5:
        return "".join(general.fact(random) for _ in range(FACTS))
    if style.layout is None:
        prompts = [general.draw(random, "train", language=style.language) for _ in range(EXCHANGES)]
        return "".join(p.text + general.good(p.topic, random) for p in prompts)
    prompt = general.draw(random, "train", language=style.language)
    topic = prompt.topic
    drawn = random.random()
    if drawn < style.good:
        answer = general.good(topic, random)
    else:
        bad = general.adversarial if drawn < style.good + style.wrong else general.plain
        answer = bad(topic, random)
    thinking = "" if style.direct else THOUGHTS[random.choice(style.spoken)]
    return _document(random, prompt.text, thinking, answer, "", style.layout)


def _document(
    random: Random, prompt: str, thinking: str, answer: str, so: str, layout: Layout | None
) -> str:
    if layout is None:
        return f"{prompt}{thinking}{so}{answer}"
    return R1_ZERO.format(prompt=prompt) + render_answer(random, thinking, answer, so, layout)
