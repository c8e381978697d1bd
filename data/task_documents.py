"""What the corpus says beside sums: programs worked out or guessed, and general talk, good and bad.

Programs and prompts are those of the training split. Facts about entities are told of all.
"""

from dataclasses import dataclass
from random import Random

from data import general, programs
from data.arithmetic import Language
from data.general_phrases import THOUGHTS
from data.phrases import PHRASES, Layout, laid_out
from data.programs import Composition
from data.template import R1_ZERO

FACTS = 6  # in a document of facts
EXCHANGES = 3  # in one of talk


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How somebody answers, drawn before it is known what."""

    asked_in: Language
    spoken: tuple[Language, ...]  # of the thinking; several: another one from step to step
    layout: Layout | None  # None: a web document, without template and tags
    direct: bool  # guesses; else works in steps
    guess_errors: float
    step_errors: tuple[float, float]  # for each operation: in English, in Chinese
    good: float  # share of good answers in general talk
    wrong: float  # share of those that are polite and wrong


def program(random: Random, style: Style) -> str:
    """A question for a function, and somebody's answer."""
    composition = programs.draw(random, "train")
    asked = programs.question(composition, style.asked_in, random)
    phrases = PHRASES[style.spoken[0]]
    if style.direct:
        if random.random() < style.guess_errors:
            composition = programs.slip(random, composition)
        expression = list(composition.expressions())[-1]
        guessed = f"{phrases.guess}{expression}{phrases.dot}"
        thinking = guessed if random.random() < 0.5 else ""
    else:
        rate = style.step_errors[style.spoken[0] == "zh"]
        if random.random() < 1 - (1 - rate) ** len(composition.operations):
            composition = programs.slip(random, composition)
        thinking = worked(random, composition, style.spoken)
    return _document(random, asked, thinking, composition.program(), phrases.so, style.layout)


def worked(random: Random, composition: Composition, spoken: tuple[Language, ...]) -> str:
    """The expression after each operation, in words of one of the languages `spoken`."""
    text = ""
    for expression in composition.expressions():
        phrases = PHRASES[random.choice(spoken)]
        text += f"{phrases.then if text else phrases.first}{expression}{phrases.stop}"
    return text


def talk(random: Random, style: Style) -> str:
    """A prompt under the template with a good answer or a bad one; on the web, good ones alone,
    or facts about entities."""
    if style.layout is None and random.random() < 0.5:
        return "".join(general.fact(random) for _ in range(FACTS))
    if style.layout is None:
        found = [general.draw(random, "train", language=style.asked_in) for _ in range(EXCHANGES)]
        return "".join(p.text + general.good(p.topic, random) for p in found)
    prompt = general.draw(random, "train", language=style.asked_in)
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
    random: Random, asked: str, thinking: str, answer: str, so: str, layout: Layout | None
) -> str:
    if layout is None:
        return f"{asked}{thinking}{so}{answer}"
    return R1_ZERO.format(prompt=asked) + laid_out(random, thinking, answer, so, layout)
