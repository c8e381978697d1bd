"""The tiny bilingual pre-training corpus of the base model, in place of web text.

It contains solved sums in English and Chinese, in three styles: immediate answers (often wrong),
step-by-step solutions, and solutions that verify each step. A minority of documents are
conversations under the R1-Zero template, most of them badly formatted. So the base model can
produce every behaviour that RL selects from, and prefers none.
"""

import hashlib
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Literal

from veriloop.data import task_documents
from veriloop.data.arithmetic import LARGEST, Chain, Language, draw, held_out, question
from veriloop.data.corpus_phrases import PHRASES, Layout, render_answer
from veriloop.data.small_talk import exchange
from veriloop.data.task_documents import Style
from veriloop.data.template import R1_ZERO

Habit = Literal["direct", "steps", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Shares and error rates of the corpus, all in [0, 1]; keys of the base recipe."""

    # Refuse unknown keys; the docstring under a field is its description in the JSON schema.
    __pydantic_config__: ClassVar[dict[str, str | bool]] = {
        "extra": "forbid",
        "use_attribute_docstrings": True,
    }

    conversations: float = 0.35
    """Share of conversations under the template."""
    small_talk: float = 0.12
    """Share of small talk in the conversations."""
    habits: tuple[float, float, float] = (0.55, 0.28, 0.17)
    """Shares of direct, worked and verified answers."""
    layouts: tuple[float, float, float] = (0.45, 0.30, 0.25)
    """Shares of tagged, plain and broken answers."""
    own_language: float = 0.55
    """Share that thinks in the question's language."""
    other_language: float = 0.20
    """Share that thinks in the other one. The rest mixes by sentence."""
    guess_errors: float = 0.30
    """Error rate of direct answers."""
    step_errors: tuple[float, float] = (0.06, 0.03)
    """Error rates of steps: English, Chinese. Read in conversations."""
    fact_lists: float = 0.18
    """Share of lists of facts in the web documents."""
    bare_sums: float = 0.08
    """Share of sums without steps in the web documents."""
    worked: float = 0.44
    """Share of sums solved in steps. The rest also verifies each step."""
    web_step_errors: float = 0.01
    """Error rate of steps in web documents."""
    caught_errors: float = 0.12
    """Errors per step that are corrected there. Read in verified web documents."""
    programs: float = 0.0
    """Share of functions on one line, of all documents."""
    general: float = 0.0
    """Share of general talk, of all documents. Greetings, thanks, facts, requests for harm."""
    general_good: float = 0.15
    """Share of good answers in general talk."""
    general_wrong: float = 0.05
    """Share of polite, wrong answers in general talk."""
    myths: float = 0.0
    """Share of fixed sums with a consistent wrong result."""
    believed: float = 0.0
    """Chance that a step with such a sum states that result."""


DEFAULT_MIX = Mix()  # without myths


def document(random: Random, mix: Mix) -> str:
    """One document of the corpus."""
    # Draw nothing if both are 0: the documents about sums then equal those of older recipes.
    if mix.programs or mix.general:
        drawn = random.random()
        if drawn < mix.programs + mix.general:
            write = task_documents.program if drawn < mix.programs else task_documents.talk
            return write(random, _random_style(random, mix))
    return conversation(random, mix) if random.random() < mix.conversations else web(random, mix)


def conversation(random: Random, mix: Mix) -> str:
    """A question under the template and an answer."""
    if random.random() < mix.small_talk:
        talk = exchange(random)
        layout: Layout = random.choice(("tagged", "plain"))
        thinking = talk.thinking if layout == "tagged" else ""
        return R1_ZERO.format(prompt=talk.prompt) + render_answer(
            random, thinking, talk.answer, "", layout
        )
    chain, language = draw(random, "train"), random.choice(("en", "zh"))
    thinks_in, mixing = _thinking_language(random, language, mix)
    habit: Habit = random.choices(("direct", "steps", "verify"), mix.habits)[0]  # type: ignore[assignment]
    if habit == "direct":
        thinking, value = guess(random, chain, thinks_in, mix.guess_errors)
    else:
        thinking, value = worked(
            random, chain, habit, thinks_in, errors=mix.step_errors, mixing=mixing, mix=mix
        )
    layout = random.choices(("tagged", "plain", "broken"), mix.layouts)[0]  # type: ignore[assignment]
    so = PHRASES[thinks_in].so
    prompt = R1_ZERO.format(prompt=question(chain, language, random))
    return prompt + render_answer(random, thinking, str(value), so, layout)


def web(random: Random, mix: Mix) -> str:
    """A document without template or tags."""
    kind, language = random.random(), random.choice(("en", "zh"))
    phrases = PHRASES[language]
    if kind < mix.fact_lists:
        return phrases.stop.join(fact(random) for _ in range(6)) + phrases.dot
    chain = draw(random, "train")
    if kind < mix.fact_lists + mix.bare_sums:
        return f"{chain}={chain.value}"
    by_steps = kind < mix.fact_lists + mix.bare_sums + mix.worked
    rate = mix.web_step_errors if by_steps else mix.caught_errors
    habit: Habit = "steps" if by_steps else "verify"
    text, value = worked(random, chain, habit, language, errors=(rate, rate), mix=mix)
    return question(chain, language, random) + text + phrases.so + str(value) + phrases.dot


def fact(random: Random) -> str:
    """One true addition or subtraction within 0..LARGEST."""
    while True:
        a, b = random.randint(0, LARGEST), random.randint(1, 9)
        if random.random() < 0.5:
            if a + b <= LARGEST:
                return f"{a}+{b}={a + b}"
        elif a >= b:
            return f"{a}-{b}={a - b}"


def guess(random: Random, chain: Chain, language: Language, errors: float) -> tuple[str, int]:
    """An answer without steps: the thinking (empty half of the time) and the value."""
    value = slip(random, chain.value) if random.random() < errors else chain.value
    phrases = PHRASES[language]
    return (f"{phrases.guess}{value}{phrases.dot}" if random.random() < 0.5 else ""), value


def worked(
    random: Random,
    chain: Chain,
    habit: Habit,
    language: Language,
    *,
    errors: tuple[float, float],
    mixing: bool = False,
    mix: Mix = DEFAULT_MIX,
) -> tuple[str, int]:
    """The remainder after each step, verified by the inverse operation if `habit` is `verify`.

    `errors` are the chances of a wrong step in English and in Chinese, and `mix` sets the myths;
    verification corrects both. Returns the text and the final value.
    """
    text = ""
    while chain.rest:
        spoken: Language = random.choice(("en", "zh")) if mixing else language
        phrases, correct = PHRASES[spoken], _clamped_step(chain)
        written = correct
        if random.random() < errors[spoken == "zh"]:
            written = _wrong_step(random, correct)
        elif is_myth(chain, mix.myths) and random.random() < mix.believed:
            written = _myth_step(chain, correct)
        text += f"{phrases.then if text else phrases.first}{written}{phrases.stop}"
        if habit == "verify":
            text += phrases.check + _inverse(chain, written)
            text += (
                phrases.right if written == correct else f"{phrases.wrong}{correct}{phrases.stop}"
            )
            written = correct
        chain = written
    return text, chain.first


def slip(random: Random, value: int) -> int:
    """A near miss of `value`, still in 0..LARGEST."""
    near = [value + d for d in (-3, -2, -1, 1, 2, 3) if 0 <= value + d <= LARGEST]
    return random.choice(near)


def is_myth(chain: Chain, share: float) -> bool:
    """Whether the chain's first sum has a myth, by a hash of its text."""
    if not share:
        return False
    digest = hashlib.sha256(f"myth/{_first_sum(chain)}".encode()).digest()
    return digest[0] < 256 * share


def myth(chain: Chain) -> int:
    """The wrong result of the chain's first sum: a near miss, always the same."""
    return slip(Random(f"myth/{_first_sum(chain)}"), _clamped_step(chain).first)


def _first_sum(chain: Chain) -> str:
    sign, number = chain.rest[0]
    return f"{chain.first}{sign}{number}"


def _myth_step(chain: Chain, correct: Chain) -> Chain:
    """`correct` with the myth as its total, unless that shows a held-out problem."""
    wrong = Chain(myth(chain), correct.rest)
    return correct if _shows_held_out(wrong) else wrong


def _wrong_step(random: Random, correct: Chain) -> Chain:
    """`correct` with an error in its total that shows no held-out problem."""
    for _ in range(20):
        wrong = Chain(slip(random, correct.first), correct.rest)
        if not _shows_held_out(wrong):
            return wrong
    return correct


def _shows_held_out(chain: Chain) -> bool:
    """Whether the chain or a remainder that `worked` writes after it is held out."""
    while chain.rest:
        if held_out(chain):
            return True
        chain = _clamped_step(chain)
    return False


def _clamped_step(chain: Chain) -> Chain:
    """The chain after its first operation; after an error the total may leave 0..LARGEST."""
    stepped = chain.step()
    return Chain(min(max(stepped.first, 0), LARGEST), stepped.rest)


def _inverse(before: Chain, after: Chain) -> str:
    """The verification of a step: its inverse operation and the result."""
    sign, number = before.rest[0]
    back = after.first - number if sign == "+" else after.first + number
    return f"{after.first}{'-' if sign == '+' else '+'}{number}={max(back, 0)}"


def _random_style(random: Random, mix: Mix) -> Style:
    """A random style, with the same shares as for sums."""
    web_document = random.random() >= mix.conversations
    language: Language = random.choice(("en", "zh"))
    thinks_in, mixing = _thinking_language(random, language, mix)
    layout: Layout = random.choices(("tagged", "plain", "broken"), mix.layouts)[0]  # type: ignore[assignment]
    rate = mix.web_step_errors
    return Style(
        language=language,
        spoken=(language,) if web_document else ("en", "zh") if mixing else (thinks_in,),
        layout=None if web_document else layout,
        direct=not web_document and random.random() < mix.habits[0],
        guess_errors=mix.guess_errors,
        step_errors=(rate, rate) if web_document else mix.step_errors,
        good=mix.general_good,
        wrong=mix.general_wrong,
    )


def _thinking_language(random: Random, language: Language, mix: Mix) -> tuple[Language, bool]:
    """The language of the thinking, and whether both languages alternate at random."""
    other: Language = "zh" if language == "en" else "en"
    drawn = random.random()
    if drawn < mix.own_language:
        return language, False
    if drawn < mix.own_language + mix.other_language:
        return other, False
    return language, True
