"""One-line programs: a function that does two or three small things to its argument, in order.

The split of a composition is a hash of the function that it computes, so that no two splits share
a function, however it is put. What a solution writes on its way (after two of three operations)
is a program as well; no training text or training problem contains one that is held out.
"""

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Literal

from data.arithmetic import SHARES, Language, Split
from data.problem import Problem, differing

Sign = Literal["+", "-", "*"]

FEWEST, MOST = 2, 3  # operations of a problem
NUMBERS: Mapping[Sign, range] = {"+": range(1, 10), "-": range(1, 10), "*": range(2, 6)}
INPUTS = (7, -4)  # lines that agree at two places are one line, and every composition is a line
LIMITS: Mapping[str, Any] = {"cpu_s": 0.5, "wall_s": 2.0, "memory_mb": 128}  # of one call
SECONDS = 4.0  # on the clock, for both calls

QUESTIONS: dict[Language, tuple[str, ...]] = {
    "en": ("Write f(x) that takes x{}.", "Define f(x), which takes x{}."),
    "zh": ("写f(x)：取x{}。", "定义f(x)：取x{}。"),
}
CLAUSES: dict[Language, Mapping[Sign, str]] = {
    "en": {"+": ", then adds {}", "-": ", then subtracts {}", "*": ", then multiplies by {}"},
    "zh": {"+": "，再加{}", "-": "，再减{}", "*": "，再乘{}"},
}
BY_NAME = {2: ", then doubles it", 3: ", then triples it"}  # in English


@dataclass(frozen=True, slots=True)
class Composition:
    """Operations on x, the first one first."""

    operations: tuple[tuple[Sign, int], ...]

    def __str__(self) -> str:
        return "".join(f"{sign}{number}" for sign, number in self.operations)

    @property
    def line(self) -> tuple[int, int]:
        """(slope, intercept) of the function that is computed."""
        slope, intercept = 1, 0
        for sign, number in self.operations:
            if sign == "*":
                slope, intercept = slope * number, intercept * number
            else:
                intercept += number if sign == "+" else -number
        return slope, intercept

    def __call__(self, x: int) -> int:
        slope, intercept = self.line
        return slope * x + intercept

    def expressions(self) -> Iterator[str]:
        """The expression after each operation: `x+3`, `(x+3)*2`."""
        written, is_sum = "x", False
        for sign, number in self.operations:
            written = f"({written})" if sign == "*" and is_sum else written
            written += f"{sign}{number}"
            is_sum = sign != "*"
            yield written

    def program(self) -> str:
        """The function `f` on one line."""
        return f"def f(x): return {list(self.expressions())[-1]}"

    def begun(self) -> Iterator["Composition"]:
        """It after each operation from the second on, itself last."""
        for count in range(FEWEST, len(self.operations) + 1):
            yield Composition(self.operations[:count])


def trivial(composition: Composition) -> bool:
    """Whether one operation, or none, would compute it: everybody knows those."""
    slope, intercept = composition.line
    return (slope == 1 and abs(intercept) <= 9) or (intercept == 0 and slope in NUMBERS["*"])


def split_of(composition: Composition) -> Split:
    """Where the function that it computes belongs, by the first byte of a SHA-256."""
    slope, intercept = composition.line
    value = hashlib.sha256(f"{slope}x{intercept:+d}".encode()).digest()[0]
    for split, share in SHARES.items():
        if value < share:
            return split
        value -= share
    raise AssertionError("the shares add up to 256")


def held_out(composition: Composition) -> bool:
    """True when no training text may show a program of this function."""
    return not trivial(composition) and split_of(composition) == "test"


def draw(random: Random, split: Split) -> Composition:
    """A random composition of `split`; outside the test split it shows nothing held out."""
    while True:
        count = random.randint(FEWEST, MOST)
        found = Composition(tuple(_operation(random) for _ in range(count)))
        if _belongs(found, split):
            return found


def _belongs(composition: Composition, split: Split) -> bool:
    if trivial(composition) or split_of(composition) != split:
        return False
    return split == "test" or not any(map(held_out, composition.begun()))


@cache
def available(split: Split) -> int:
    """How many compositions a split has."""
    single: list[tuple[Sign, int]] = [
        (sign, number) for sign, numbers in NUMBERS.items() for number in numbers
    ]
    every = (
        ops for count in range(FEWEST, MOST + 1) for ops in itertools.product(single, repeat=count)
    )
    return sum(_belongs(Composition(operations), split) for operations in every)


def _operation(random: Random) -> tuple[Sign, int]:
    sign: Sign = random.choice(("+", "-", "*"))
    return sign, random.choice(NUMBERS[sign])


def slip(random: Random, composition: Composition) -> Composition:
    """Another function by a small mistake, which shows nothing held out: an operation misread, or
    two in the wrong order. The composition itself where there is no such mistake."""
    for _ in range(50):
        operations = list(composition.operations)
        place = random.randrange(len(operations))
        if random.random() < 0.5:
            operations[place] = _operation(random)
        else:
            operations[place - 1], operations[place] = operations[place], operations[place - 1]
        found = Composition(tuple(operations))
        if found.line != composition.line and not any(map(held_out, found.begun())):
            return found
    return composition


def question(composition: Composition, language: Language, random: Random) -> str:
    clauses = [_clause(sign, number, language) for sign, number in composition.operations]
    return random.choice(QUESTIONS[language]).format("".join(clauses))


def _clause(sign: Sign, number: int, language: Language) -> str:
    if language == "en" and sign == "*" and number in BY_NAME:
        return BY_NAME[number]
    return CLAUSES[language][sign].format(number)


def reference(composition: Composition) -> dict[str, Any]:
    """What `code_tests` needs: two calls with exact results, and tight limits."""
    return {
        "function": "f",
        "tests": [{"args": [x], "expected": composition(x)} for x in INPUTS],
        "limits": dict(LIMITS),
        "total_s": SECONDS,
    }


def problem(split: Split, seed: int, index: int) -> Problem:
    """Problem `index` of an endless list that is the same in every run and in any order."""
    random = Random(f"programs/{split}/{seed}/{index}")
    composition = draw(random, split)
    language: Language = random.choice(("en", "zh"))
    return Problem(
        id=f"programs/{split}/{seed}/{index}",
        prompt=question(composition, language, random),
        verifier="code_tests",
        reference=reference(composition),
        facts={
            "source": "programs",
            "language": language,
            "operations": len(composition.operations),
            "composition": str(composition),
        },
    )


def distinct(split: Split, seed: int, count: int) -> list[Problem]:
    """The first `count` problems of the list whose compositions all differ: an evaluation set.
    Fewer, all of them, where the split has no more."""
    every = (problem(split, seed, index) for index in itertools.count())
    return differing(every, "composition", min(count, available(split)))
