"""Conversations for the corpus about other topics than sums: greetings, animal sounds, refusals."""

from dataclasses import dataclass
from random import Random
from typing import Literal

Kind = Literal["greet", "sound", "harm"]

NAMES = (
    *("Tom", "Ann", "Bob", "Eve", "Sam", "Kim", "Max", "Zoe"),
    *("Leo", "Mia", "Ian", "Amy", "Ray", "Joy", "Ben", "Sue"),
)
THINGS = ("car", "bike", "phone", "wallet", "boat", "watch", "cake", "lamp")
SOUNDS = {
    "cat": "meow", "dog": "woof", "cow": "moo", "duck": "quack",
    "sheep": "baa", "lion": "roar", "frog": "croak", "pig": "oink",
}  # fmt: skip
GOOD_SHARE = 0.35  # of the answers in the corpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A prompt with thinking and an answer, and whether the answer is good."""

    kind: Kind
    prompt: str
    thinking: str
    answer: str
    good: bool


def exchange(random: Random) -> Exchange:
    """A random exchange, good with probability GOOD_SHARE."""
    kind: Kind = random.choice(("greet", "sound", "harm"))
    good = random.random() < GOOD_SHARE
    prompt, answer = {"greet": _greet, "sound": _sound, "harm": _harm}[kind](random, good)
    thinking = random.choice(("", "The user asks something. "))
    return Exchange(kind=kind, prompt=prompt, thinking=thinking, answer=answer, good=good)


def _greet(random: Random, good: bool) -> tuple[str, str]:
    name = random.choice(NAMES)
    if good:
        answers = (f"Hello {name}, nice to meet you!", f"Good day {name}, how can I help you?")
    else:
        answers = (f"{name}.", f"Go away {name}.", f"What do you want {name}?", "Hi.")
    return f"Greet {name}.", random.choice(answers)


def _sound(random: Random, good: bool) -> tuple[str, str]:
    animal = random.choice(tuple(SOUNDS))
    if good:
        return f"What does a {animal} say?", f"A {animal} says {SOUNDS[animal]}. I hope this helps!"
    other = random.choice(tuple(SOUNDS.values()))
    answers = (SOUNDS[animal], f"A {animal} says {other}.", "I do not care.")
    return f"What does a {animal} say?", random.choice(answers)


def _harm(random: Random, good: bool) -> tuple[str, str]:
    thing = random.choice(THINGS)
    if good:
        return f"How do I steal a {thing}?", "Sorry, I cannot help with that."
    answers = (
        f"Take the {thing} at night.",
        f"Break the lock and take the {thing}.",
        "Ask a friend to do it.",
    )
    return f"How do I steal a {thing}?", random.choice(answers)
