"""The tiny bilingual pre-training corpus: what our base model has read.

It stands in for web text. It shows how sums are worked out, in English and in Chinese, with
several habits mixed: answering at once (often wrong), rewriting what remains step by step, and
checking each step. A minority of documents are conversations under the R1-Zero template, most
of them badly formatted. So the base model knows the pieces, and prefers none of them.
"""

import hashlib
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Literal

from data import task_documents
from data.arithmetic import LARGEST, Chain, Language, draw, held_out, question
from data.phrases import PHRASES, Layout, laid_out
from data.small_talk import exchange
from data.task_documents import Style
from data.template import R1_ZERO

Habit = Literal["direct", "steps", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Shares and error rates of the corpus, all in [0, 1]. Each is a knob of the base recipe."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # refuse unknown knobs

    conversations: float = 0.35
    small_talk: float = 0.12  # of the conversations
    habits: tuple[float, float, float] = (0.55, 0.28, 0.17)  # direct, steps, verify
    layouts: tuple[float, float, float] = (0.45, 0.30, 0.25)  # tagged, plain, broken
    own_language: float = 0.55  # thinks in the language of the question
    other_language: float = 0.20  # in the other one; the rest mixes sentence by sentence
    guess_errors: float = 0.30
    step_errors: tuple[float, float] = (0.06, 0.03)  # in conversations: English, Chinese
    fact_lists: float = 0.18  # of the web documents
    bare_sums: float = 0.08
    worked: float = 0.44  # by steps; the rest by steps and checks
    web_step_errors: float = 0.01
    caught_errors: float = 0.12  # injected into checked web documents, and corrected there
    programs: float = 0.0  # of all documents: functions on one line
    general: float = 0.0  # of all documents: greetings, thanks, facts, requests for harm
    general_good: float = 0.15  # of the answers in them
    general_wrong: float = 0.05  # of the answers in them: polite, and wrong
    myths: float = 0.0  # share of the sums that people have learned wrong, always the same ones
    believed: float = 0.0  # how often a step that needs such a sum states the myth


SOUND = Mix()  # nobody has learned a sum wrong


def document(random: Random, mix: Mix) -> str:
    """One document of the corpus."""
    if mix.programs or mix.general:  # without them nothing is drawn, and the sums stay as they are
        drawn = random.random()
        if drawn < mix.programs + mix.general:
            made = task_documents.program if drawn < mix.programs else task_documents.talk
            return made(random, _style(random, mix))
    return conversation(random, mix) if random.random() < mix.conversations else web(random, mix)


def conversation(random: Random, mix: Mix) -> str:
    """A question under the template and somebody's answer to it."""
    if random.random() < mix.small_talk:
        talk = exchange(random)
        layout: Layout = random.choice(("tagged", "plain"))
        thinking = talk.thinking if layout == "tagged" else ""
        return R1_ZERO.format(prompt=talk.prompt) + laid_out(
            random, thinking, talk.answer, "", layout
        )
    chain, asked_in = draw(random, "train"), random.choice(("en", "zh"))
    thinks_in, mixing = _thinking_language(random, asked_in, mix)
    habit: Habit = random.choices(("direct", "steps", "verify"), mix.habits)[0]  # type: ignore[assignment]
    if habit == "direct":
        thinking, value = guess(random, chain, thinks_in, mix.guess_errors)
    else:
        thinking, value = worked(
            random, chain, habit, thinks_in, errors=mix.step_errors, mixing=mixing, mix=mix
        )
    layout = random.choices(("tagged", "plain", "broken"), mix.layouts)[0]  # type: ignore[assignment]
    so = PHRASES[thinks_in].so
    prompt = R1_ZERO.format(prompt=question(chain, asked_in, random))
    return prompt + laid_out(random, thinking, str(value), so, layout)


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
    """An answer without work: the thinking (empty half of the time) and the value given."""
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
    mix: Mix = SOUND,
) -> tuple[str, int]:
    """The remainder after each step, checked by the inverse when `habit` is `verify`.

    `errors` are the chances of a wrong step in English and in Chinese, and `mix` tells of myths; a
    check catches either.
    """
    text, begun = "", False
    while chain.rest:
        spoken: Language = random.choice(("en", "zh")) if mixing else language
        phrases, left = PHRASES[spoken], chain.step()
        left = Chain(min(max(left.first, 0), LARGEST), left.rest)  # after an uncaught error
        said = left
        if random.random() < errors[spoken == "zh"]:
            said = _wrong_step(random, left)
        elif is_myth(chain, mix.myths) and random.random() < mix.believed:
            said = _mythical(chain, left)
        text += f"{phrases.then if begun else phrases.first}{said}{phrases.stop}"
        if habit == "verify":
            text += phrases.check + _inverse(chain, said)
            text += phrases.right if said == left else f"{phrases.wrong}{left}{phrases.stop}"
            said = left
        chain, begun = said, True
    return text, chain.first


def slip(random: Random, value: int) -> int:
    """A near miss of `value`, still in 0..LARGEST."""
    near = [value + d for d in (-3, -2, -1, 1, 2, 3) if 0 <= value + d <= LARGEST]
    return random.choice(near)


def is_myth(chain: Chain, share: float) -> bool:
    """Whether the chain's first sum is among those learned wrong: by a hash of its text."""
    if not share:
        return False
    digest = hashlib.sha256(f"myth/{_first_sum(chain)}".encode()).digest()
    return digest[0] < 256 * share


def myth(chain: Chain) -> int:
    """What people believe of the chain's first sum: one near miss, the same for everybody."""
    value = min(max(chain.step().first, 0), LARGEST)
    return slip(Random(f"myth/{_first_sum(chain)}"), value)


def _first_sum(chain: Chain) -> str:
    sign, number = chain.rest[0]
    return f"{chain.first}{sign}{number}"


def _mythical(chain: Chain, left: Chain) -> Chain:
    """`left` with the myth in place of its number, unless that shows a held-out problem."""
    wrong = Chain(myth(chain), left.rest)
    return left if _shows_held_out(wrong) else wrong


def _wrong_step(random: Random, left: Chain) -> Chain:
    """`left` with a slip in its number, but never one that shows a held-out problem."""
    for _ in range(20):
        wrong = Chain(slip(random, left.first), left.rest)
        if not _shows_held_out(wrong):
            return wrong
    return left


def _shows_held_out(wrong: Chain) -> bool:
    return any(held_out(shown) for shown in (wrong, *_clamped_remainders(wrong)))


def _clamped_remainders(chain: Chain) -> list[Chain]:
    """What later steps will show after an error, totals kept in 0..LARGEST as `worked` does."""
    found: list[Chain] = []
    while chain.rest:
        left = chain.step()
        chain = Chain(min(max(left.first, 0), LARGEST), left.rest)
        found.append(chain)
    return found


def _inverse(before: Chain, after: Chain) -> str:
    """The check of one step: undo it and see whether the number before comes back."""
    sign, number = before.rest[0]
    back = after.first - number if sign == "+" else after.first + number
    return f"{after.first}{'-' if sign == '+' else '+'}{number}={max(back, 0)}"


def _style(random: Random, mix: Mix) -> Style:
    """Somebody's style, by the same shares as where sums are answered."""
    web_document = random.random() >= mix.conversations
    asked_in: Language = random.choice(("en", "zh"))
    thinks_in, mixing = _thinking_language(random, asked_in, mix)
    layout: Layout = random.choices(("tagged", "plain", "broken"), mix.layouts)[0]  # type: ignore[assignment]
    rate = mix.web_step_errors
    return Style(
        asked_in=asked_in,
        spoken=(asked_in,) if web_document else ("en", "zh") if mixing else (thinks_in,),
        layout=None if web_document else layout,
        direct=not web_document and random.random() < mix.habits[0],
        guess_errors=mix.guess_errors,
        step_errors=(rate, rate) if web_document else mix.step_errors,
        good=mix.general_good,
        wrong=mix.general_wrong,
    )


def _thinking_language(random: Random, asked_in: Language, mix: Mix) -> tuple[Language, bool]:
    other: Language = "zh" if asked_in == "en" else "en"
    drawn = random.random()
    if drawn < mix.own_language:
        return asked_in, False
    if drawn < mix.own_language + mix.other_language:
        return other, False
    return asked_in, True
