"""One-line programs: functions that apply two or three operations to their argument, in order.

The split of a composition is a hash of the function that it computes, so splits share no function
in any form. A solution also writes the program after each operation; no training text or training
problem contains one that is held out.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Literal

from veriloop.data import arithmetic
from veriloop.data.arithmetic import Language, Split
from veriloop.data.corpus_phrases import PHRASES
from veriloop.data.problem import Problem, first_distinct

Sign = Literal["+", "-", "*"]

FEWEST, MOST = 2, 3  # operations of a problem
NUMBERS: Mapping[Sign, range] = {"+": range(1, 10), "-": range(1, 10), "*": range(2, 6)}
INPUTS = (7, -4)  # every composition is a linear function, which two points determine
LIMITS: Mapping[str, Any] = {"cpu_s": 0.5, "wall_s": 2.0, "memory_mb": 128}  # per call
SECONDS = 4.0  # wall time of both calls

QUESTIONS: dict[Language, tuple[str, ...]] = {
    "en": ("Write f(x) that takes x{}.", "Define f(x), which takes x{}."),
    "zh": ("写f(x)：取x{}。", "定义f(x)：取x{}。"),
}
CLAUSES: dict[Language, Mapping[Sign, str]] = {
    "en": {"+": ", then adds {}", "-": ", then subtracts {}", "*": ", then multiplies by {}"},
    "zh": {"+": "，再加{}", "-": "，再减{}", "*": "，再乘{}"},
}
_OPERATION = re.compile(r"([+*-])(\d+)")
BY_NAME = {2: ", then doubles it", 3: ", then triples it"}  # in English


@dataclass(frozen=True, slots=True)
class Composition:
    """Operations on x, the first one first."""

    operations: tuple[tuple[Sign, int], ...]

    def __str__(self) -> str:
        return "".join(f"{sign}{number}" for sign, number in self.operations)

    @property
    def line(self) -> tuple[int, int]:
        """(slope, intercept) of the computed function."""
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
        expression, is_sum = "x", False
        for sign, number in self.operations:
            expression = f"({expression})" if sign == "*" and is_sum else expression
            expression += f"{sign}{number}"
            is_sum = sign != "*"
            yield expression

    def program(self) -> str:
        """The function `f` on one line."""
        return f"def f(x): return {list(self.expressions())[-1]}"

    def prefixes(self) -> Iterator["Composition"]:
        """The composition of the first two operations, the first three, and so on, itself last."""
        for count in range(FEWEST, len(self.operations) + 1):
            yield Composition(self.operations[:count])


def trivial(composition: Composition) -> bool:
    """Whether one operation or none computes the same function; these are in every split."""
    slope, intercept = composition.line
    return (slope == 1 and abs(intercept) <= 9) or (intercept == 0 and slope in NUMBERS["*"])


def split_of(composition: Composition) -> Split:
    """The split of the computed function, by the first byte of a SHA-256."""
    slope, intercept = composition.line
    return arithmetic.split_of(f"{slope}x{intercept:+d}")


def held_out(composition: Composition) -> bool:
    """Whether no training text may contain a program for this function."""
    return not trivial(composition) and split_of(composition) == "test"


def draw(random: Random, split: Split) -> Composition:
    """A random composition of `split`; outside the test split no prefix is held out."""
    while True:
        count = random.randint(FEWEST, MOST)
        composition = Composition(tuple(_operation(random) for _ in range(count)))
        if _belongs(composition, split):
            return composition


def _belongs(composition: Composition, split: Split) -> bool:
    if trivial(composition) or split_of(composition) != split:
        return False
    return split == "test" or not any(map(held_out, composition.prefixes()))


@cache
def available(split: Split) -> int:
    """Number of compositions in a split."""
    operations: list[tuple[Sign, int]] = [
        (sign, number) for sign, numbers in NUMBERS.items() for number in numbers
    ]
    return sum(
        _belongs(Composition(chain), split)
        for count in range(FEWEST, MOST + 1)
        for chain in itertools.product(operations, repeat=count)
    )


def _operation(random: Random) -> tuple[Sign, int]:
    sign: Sign = random.choice(("+", "-", "*"))
    return sign, random.choice(NUMBERS[sign])


def slip(random: Random, composition: Composition) -> Composition:
    """A different function that shows nothing held out, by replacing an operation or swapping two.
    Returns the composition unchanged if 50 draws find none."""
    for _ in range(50):
        operations = list(composition.operations)
        i = random.randrange(len(operations))
        if random.random() < 0.5:
            operations[i] = _operation(random)
        else:
            operations[i - 1], operations[i] = operations[i], operations[i - 1]
        wrong = Composition(tuple(operations))
        if wrong.line != composition.line and not any(map(held_out, wrong.prefixes())):
            return wrong
    return composition


def question(composition: Composition, language: Language, random: Random) -> str:
    """A request for the function, in one of the wordings of its language."""
    clauses = [_clause(sign, number, language) for sign, number in composition.operations]
    return random.choice(QUESTIONS[language]).format("".join(clauses))


def _clause(sign: Sign, number: int, language: Language) -> str:
    if language == "en" and sign == "*" and number in BY_NAME:
        return BY_NAME[number]
    return CLAUSES[language][sign].format(number)


def steps(composition: Composition, language: Callable[[], Language]) -> str:
    """The expression after each operation; `language` is asked once for each."""
    text = ""
    for expression in composition.expressions():
        phrases = PHRASES[language()]
        text += f"{phrases.then if text else phrases.first}{expression}{phrases.stop}"
    return text


def reference(composition: Composition) -> dict[str, Any]:
    """The reference for `code_tests`: two calls with exact results, and tight limits."""
    return {
        "function": "f",
        "tests": [{"args": [x], "expected": composition(x)} for x in INPUTS],
        "limits": dict(LIMITS),
        "total_s": SECONDS,
    }


def problem(split: Split, seed: int, index: int) -> Problem:
    """Problem `index` of an endless list, which depends only on the arguments."""
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
    """An evaluation set: the first `count` problems of the list with distinct compositions; fewer
    where 2,000 in a row bring no new one."""
    problems = (problem(split, seed, index) for index in itertools.count())
    return first_distinct(problems, "composition", min(count, available(split)))


def worked(problem: Problem) -> str:
    """The expression after each operation, in the question's language."""
    return steps(_composition(problem), lambda: problem.facts["language"]).strip()


def answer(problem: Problem) -> str:
    """A program that computes the function."""
    return _composition(problem).program()


def _composition(problem: Problem) -> Composition:
    signs: Any = _OPERATION.findall(problem.facts["composition"])
    return Composition(tuple((sign, int(number)) for sign, number in signs))
