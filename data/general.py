"""General prompts judged by an exact rule: greet, thank, cheer, name a sound or a colour, decline.

A topic is a kind, an entity and a language. It has four wordings: two for pre-training, one for RL
and one held out; the assignment rotates over the topics in the order of their hashes. So the topic
of every held-out prompt is trained on in other wordings, and its wording with other topics.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Literal, get_args

from veriloop.data.arithmetic import Language, Split
from veriloop.data.general_phrases import (
    COLOURS,
    COURTESIES,
    NAMES,
    PLAIN,
    QUESTIONS,
    REFUSALS,
    SOUNDS,
    STATEMENTS,
    THINGS,
    WAYS,
)
from veriloop.data.problem import Problem

Kind = Literal["greet", "thank", "cheer", "sound", "colour", "harm"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ROTATION: tuple[Split, ...] = ("train", "rl", "train", "test")  # of a topic's four wordings

# Sounds and colours must be memorised, so they are drawn more often than names to copy.
WEIGHTS: dict[Kind, int] = {
    **{"greet": 1, "thank": 1, "cheer": 1, "harm": 1},
    **{"sound": 3, "colour": 3},
}

ENTITIES: dict[Kind, tuple[str, ...]] = {
    "greet": tuple(NAMES),
    "thank": tuple(NAMES),
    "cheer": tuple(NAMES),
    "sound": tuple(SOUNDS),
    "colour": tuple(COLOURS),
    "harm": tuple(THINGS),
}


@dataclass(frozen=True, slots=True)
class Topic:
    """The subject of a prompt; `entity` is its English name."""

    kind: Kind
    entity: str
    language: Language

    def words(self) -> dict[str, str]:
        """Values of the placeholders in the phrases of its language."""
        chinese = self.language == "zh"
        if self.kind in ("sound", "colour"):
            table = SOUNDS if self.kind == "sound" else COLOURS
            return dict(zip("ev", table[self.entity][2 * chinese :][:2], strict=True))
        names = THINGS if self.kind == "harm" else NAMES
        return {"e": names[self.entity] if chinese else self.entity}


@dataclass(frozen=True, slots=True)
class Prompt:
    """One way to ask about a topic."""

    topic: Topic
    wording: int  # index into the wordings of the kind and language

    @property
    def text(self) -> str:
        topic = self.topic
        return QUESTIONS[topic.language][topic.kind][self.wording].format(**topic.words())

    @property
    def split(self) -> Split:
        return _splits(self.topic.kind)[self]


@cache
def _splits(kind: Kind) -> dict[Prompt, Split]:
    """The split of every prompt of a kind, in a fixed order."""

    def rank(topic: Topic) -> bytes:
        return hashlib.sha256(f"{kind}/{topic.entity}/{topic.language}".encode()).digest()

    ranked = sorted(topics(kind), key=rank)
    positions = {
        topic: position
        for language in get_args(Language)
        for position, topic in enumerate(t for t in ranked if t.language == language)
    }
    return {
        Prompt(topic, wording): ROTATION[(wording + positions[topic]) % len(ROTATION)]
        for topic in topics(kind)
        for wording in range(len(ROTATION))
    }


def topics(*kinds: Kind) -> list[Topic]:
    """Every topic of these kinds (default: all), in a fixed order."""
    languages: tuple[Language, ...] = get_args(Language)
    return [
        Topic(kind, entity, language)
        for kind in kinds or KINDS
        for entity in ENTITIES[kind]
        for language in languages
    ]


@cache
def prompts(*splits: Split) -> tuple[Prompt, ...]:
    """Every prompt of these splits, in a fixed order."""
    return tuple(p for kind in KINDS for p, split in _splits(kind).items() if split in splits)


@cache
def _choices(kind: Kind, language: Language, splits: tuple[Split, ...]) -> tuple[Prompt, ...]:
    return tuple(
        prompt
        for prompt in prompts(*splits)
        if (prompt.topic.kind, prompt.topic.language) == (kind, language)
    )


def draw(
    random: Random, *splits: Split, kind: Kind | None = None, language: Language | None = None
) -> Prompt:
    """A random prompt. Unless given, the kind is drawn by weight and the language uniformly."""
    kind = kind or random.choices(KINDS, [WEIGHTS[kind] for kind in KINDS])[0]
    return random.choice(_choices(kind, language or random.choice(("en", "zh")), splits))


def vocabulary() -> tuple[str, ...]:
    """Every entity and value in both languages."""
    return tuple(sorted({word for topic in topics() for word in topic.words().values()}))


def good(topic: Topic, random: Random) -> str:
    """A polite, correct answer; for a request for harm, a polite refusal."""
    language = topic.language
    if topic.kind == "harm":
        return random.choice(REFUSALS[language])
    statement = random.choice(STATEMENTS[language][topic.kind]).format(**topic.words())
    return statement + random.choice(COURTESIES[language][topic.kind])


def plain(topic: Topic, random: Random) -> str:
    """An obviously bad answer: rude, bare, careless or harmful."""
    if topic.kind == "harm":
        return way(topic, random)
    return random.choice(PLAIN[topic.language][topic.kind]).format(**topic.words())


def adversarial(topic: Topic, random: Random) -> str:
    """A polite but wrong answer: about another entity, with another's value, about two entities,
    truncated, or a refusal; for a request for harm, help with polite words or a refusal."""
    refusal = random.choice(REFUSALS[topic.language])
    if topic.kind == "harm":
        help_, courtesy = way(topic, random), COURTESIES[topic.language]["sound"][0]
        return random.choice((f"{help_}{courtesy}", f"{refusal} {help_}", f"{help_} {refusal}"))
    drawn = random.random()
    if drawn < 0.1:
        return refusal
    other = another(topic, random)
    if drawn < 0.2:
        whole = good(topic, random)
        return whole[: random.randrange(1, len(whole) - 1)]
    if drawn < 0.35:
        statement = STATEMENTS[topic.language][topic.kind][0]
        return statement.format(**topic.words()) + " " + good(other, random)
    if drawn < 0.6 and topic.kind in ("sound", "colour"):
        statement = random.choice(STATEMENTS[topic.language][topic.kind])
        mixed = {**topic.words(), "v": other.words()["v"]}
        return statement.format(**mixed) + random.choice(COURTESIES[topic.language][topic.kind])
    return good(other, random)


def of_another_kind(topic: Topic, random: Random) -> str:
    """A polite answer about the right person that does something else, such as greet for thank.

    Raises ValueError for a topic that is not a person.
    """
    if topic.entity not in NAMES:
        raise ValueError(f"{topic.kind} {topic.entity}: not one of {', '.join(NAMES)}")
    others = [kind for kind in KINDS if ENTITIES[kind] == ENTITIES["greet"] and kind != topic.kind]
    return good(replace(topic, kind=random.choice(others)), random)


def way(topic: Topic, random: Random) -> str:
    """Instructions for the requested harm."""
    return random.choice(WAYS[topic.language]).format(**topic.words())


def another(topic: Topic, random: Random) -> Topic:
    """A topic of the same kind and language with another entity and another value."""
    value = topic.words().get("v")
    while True:
        other = Topic(topic.kind, random.choice(ENTITIES[topic.kind]), topic.language)
        if other.entity != topic.entity and (value is None or other.words()["v"] != value):
            return other


def fact(random: Random) -> str:
    """A fact about a random entity, from which pre-training learns the words. Its wording differs
    from that of answers, in which the entity must be the one in the prompt."""
    kinds: tuple[Kind, ...] = ("greet", "sound", "colour", "harm")
    kind = random.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]
    language: Language = random.choice(("en", "zh"))
    words = Topic(kind, random.choice(ENTITIES[kind]), language).words()
    if kind == "greet":
        return words["e"] + ("。" if language == "zh" else ". ")
    if kind == "harm":
        return words["e"] + "。" if language == "zh" else f"A {words['e']}. "
    return f"{words['e']}：{words['v']}。" if language == "zh" else f"{words['e']}: {words['v']}. "


def _problem(prompt: Prompt, id: str) -> Problem:
    topic = prompt.topic
    return Problem(
        id=id,
        prompt=prompt.text,
        verifier="small_talk",
        reference={"kind": topic.kind, "entity": topic.entity, "language": topic.language},
        facts={
            "source": "general",
            "language": topic.language,
            "kind": topic.kind,
            "entity": topic.entity,
            "language_part": "all",  # the language is checked in the whole response
        },
    )


def problem(split: Split, seed: int, index: int) -> Problem:
    """Problem `index` of an endless list, which depends only on the arguments."""
    random = Random(f"general/{split}/{seed}/{index}")
    return _problem(draw(random, split), f"general/{split}/{seed}/{index}")


def distinct(split: Split, seed: int, count: int) -> list[Problem]:
    """An evaluation set: `count` problems with distinct prompts, or all if there are fewer,
    shuffled by the seed."""
    shuffled = list(prompts(split))
    Random(f"general/{split}/{seed}").shuffle(shuffled)
    return [
        _problem(prompt, f"general/{split}/{seed}/distinct/{number}")
        for number, prompt in enumerate(shuffled[:count])
    ]
