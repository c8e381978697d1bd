"""Chains of small additions and subtractions: a task in which every step can be verified.

The split of an expression is a hash of its text, so splits are disjoint. A solution also writes
*remainders*: `8+7-5+6` leaves `15-5+6`, then `10+6`. These are expressions too, and no training
text or training problem contains a held-out one.
"""

import hashlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Literal

from veriloop.data.problem import Problem, first_distinct

Split = Literal["train", "rl", "test"]
Language = Literal["en", "zh"]
Sign = Literal["+", "-"]

SHARES: dict[Split, int] = {"test": 26, "rl": 64, "train": 166}  # of 256 hash values
LARGEST = 19  # every partial total is in 0..LARGEST
FEWEST, MOST = 3, 5  # operands of a problem; shorter chains are facts in every split

QUESTIONS: dict[Language, tuple[str, ...]] = {
    "en": ("What is {}?", "Compute {}."),
    "zh": ("计算{}。", "{}等于多少？"),
}


@dataclass(frozen=True, slots=True)
class Chain:
    """`first` followed by signed operands, each in 1..9."""

    first: int
    rest: tuple[tuple[Sign, int], ...]

    def __str__(self) -> str:
        return str(self.first) + "".join(f"{sign}{number}" for sign, number in self.rest)

    def step(self) -> "Chain":
        """The chain after its first operation."""
        sign, number = self.rest[0]
        return Chain(self.first + number if sign == "+" else self.first - number, self.rest[1:])

    def remainders(self) -> Iterator["Chain"]:
        """The chain after each step, while it is still long enough to be a problem."""
        chain = self
        while len(chain.rest) >= FEWEST:
            chain = chain.step()
            yield chain

    @property
    def value(self) -> int:
        chain = self
        while chain.rest:
            chain = chain.step()
        return chain.first


def parse(text: str) -> Chain:
    """Parse an expression such as `15-5+6`. Raises ValueError for anything else."""
    if not re.fullmatch(r"\d+([+-]\d+)*", text):
        raise ValueError(f"{text!r} is not a chain of additions and subtractions")
    numbers = re.findall(r"([+-]?)(\d+)", text)
    rest: list[tuple[Sign, int]] = [("-" if s == "-" else "+", int(n)) for s, n in numbers[1:]]
    return Chain(int(numbers[0][1]), tuple(rest))


@lru_cache(maxsize=1 << 16)
def split_of(expression: str) -> Split:
    """The split of an expression, by the first byte of its SHA-256."""
    value = hashlib.sha256(expression.encode()).digest()[0]
    for split, share in SHARES.items():
        if value < share:
            return split
        value -= share
    raise AssertionError("the shares add up to 256")


def held_out(chain: Chain) -> bool:
    """Whether the chain is a test problem, which no training text may contain."""
    return len(chain.rest) + 1 >= FEWEST and split_of(str(chain)) == "test"


def draw(random: Random, split: Split) -> Chain:
    """A random chain of `split`; outside the test split no remainder is held out."""
    while True:
        chain = _any_chain(random)
        if split_of(str(chain)) != split:
            continue
        if split == "test" or not any(map(held_out, chain.remainders())):
            return chain


def _any_chain(random: Random) -> Chain:
    first = total = random.randint(1, 9)
    rest: list[tuple[Sign, int]] = []
    for _ in range(random.randint(FEWEST, MOST) - 1):
        number = random.randint(1, 9)
        may_subtract, may_add = total >= number, total + number <= LARGEST
        sign: Sign = random.choice("+-") if may_subtract and may_add else "+-"[may_subtract]  # type: ignore[assignment]
        total = total + number if sign == "+" else total - number
        rest.append((sign, number))
    return Chain(first, tuple(rest))


def question(chain: Chain, language: Language, random: Random) -> str:
    """A question for the value of the chain, in one of the wordings of its language."""
    return random.choice(QUESTIONS[language]).format(chain)


def problem(split: Split, seed: int, index: int) -> Problem:
    """Problem `index` of an endless list, which depends only on the arguments."""
    random = Random(f"arithmetic/{split}/{seed}/{index}")
    chain = draw(random, split)
    language: Language = random.choice(("en", "zh"))
    return Problem(
        id=f"arithmetic/{split}/{seed}/{index}",
        prompt=question(chain, language, random),
        verifier="number",
        reference={"value": str(chain.value)},
        facts={"language": language, "operands": len(chain.rest) + 1, "expression": str(chain)},
    )


def distinct(split: Split, seed: int, count: int) -> list[Problem]:
    """An evaluation set: the first `count` problems of the list with distinct expressions; fewer if
    the split is exhausted."""
    return first_distinct((problem(split, seed, i) for i in itertools.count()), "expression", count)
