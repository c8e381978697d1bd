"""Mathematical answers: pairs judged per CPU second, against math-verify in the same run.

    python benchmarks/verify_speed.py [--quick] [--json FILE] [--pairs 1200]

Golds are generated in the mix that a MATH training set has; half of the answers are right, in
another spelling, and half are the gold answer of some other problem. Both judges take turns on
slices of the same pairs, in one process; each pair is new to both.
"""

import logging
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from publish import arguments, publish, table

from data.problem import Problem
from verifiers.registry import get

GOAL_MATH = 5.0
GOAL_GSM8K = 200.0
SLICE = 200

Pair = tuple[str, str]  # a gold answer and the same value in another spelling


def integer(rng: Random) -> Pair:
    value = rng.choice([rng.randint(0, 100), rng.randint(-50, 2_000), rng.randint(0, 10**6)])
    return str(value), rng.choice(
        [str(value), f"{value:,}", f"x={value}", f"{value}.0", str(value)]
    )


def fraction(rng: Random) -> Pair:
    over, under = rng.randint(1, 60), rng.randint(2, 60)
    scale = rng.randint(2, 5)
    gold = rf"\frac{{{over}}}{{{under}}}"
    return gold, rng.choice(
        [gold, f"{over}/{under}", rf"\dfrac{{{over * scale}}}{{{under * scale}}}"]
    )


def radical(rng: Random) -> Pair:
    factor, root, shift = rng.randint(2, 12), rng.choice([2, 3, 5, 6, 7, 10]), rng.randint(1, 9)
    if rng.random() < 0.5:
        plain = rf"{factor}\sqrt{{{root}}}"
        return plain, rng.choice(
            [plain, rf"\sqrt{{{factor**2 * root}}}", rf"\sqrt{{{root}}}\cdot {factor}"]
        )
    return rf"{shift}+{factor}\sqrt{{{root}}}", rf"{factor}\sqrt{{{root}}}+{shift}"


def symbolic(rng: Random) -> Pair:
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    return rng.choice([
        (f"x^2+{a + b}x+{a * b}", f"(x+{a})(x+{b})"),
        (f"{a}x+{b}", f"{b}+{a}x"),
        (rf"\frac{{{a}}}{{x+{b}}}", rf"\frac{{{2 * a}}}{{2x+{2 * b}}}"),
        (f"y={a}x-{b}", f"y+{b}={a}x"),
        (rf"{a}^{{n+{b}}}", rf"{a}^n\cdot {a}^{{{b}}}"),
    ])  # fmt: skip


def bracketed(rng: Random) -> Pair:
    a, b = sorted(rng.sample(range(-20, 40), 2))
    return rng.choice([
        (f"({a},{b})", f"({a}, {b})"),
        (f"[{a},{b})", rf"\left[{a},{b}\right)"),
        (rf"(-\infty,{a})\cup({b},\infty)", rf"({b},\infty)\cup(-\infty,{a})"),
        (rf"\left(\frac{{{a}}}{{7}},{b}\right)", rf"(\frac{{{a}}}{{7}}, {b})"),
        (rf"\{{{a},{b}\}}", rf"\{{{b},{a}\}}"),
    ])  # fmt: skip


def other(rng: Random) -> Pair:
    a, b, c, d = (rng.randint(1, 20) for _ in range(4))
    matrix = rf"\begin{{pmatrix}}{a}&{b}\\{c}&{d}\end{{pmatrix}}"
    return rng.choice([
        (f"{a}.{b}", f"{a}.{b}0"),
        (rf"{a * 5}\%", str(a * 5)),
        (rf"{a}\pi", rf"\pi\cdot {a}"),
        (rf"{a}\text{{ cm}}", str(a)),
        (rf"{a * 10}^\circ", str(a * 10)),
        (r"\text{even}", "even"),
        (matrix, matrix.replace("pmatrix", "bmatrix")),
        (f"{a}+{b}i", f"{b}i+{a}"),
        (rf"\log_{{{a + 1}}}{b + 1}", rf"\frac{{\ln {b + 1}}}{{\ln {a + 1}}}"),
        (f"{a}, {a + b}", f"{a + b}, {a}"),
    ])  # fmt: skip


MIX: list[tuple[float, Callable[[Random], Pair]]] = [
    (0.629, integer), (0.128, fraction), (0.046, radical), (0.040, symbolic),
    (0.032, bracketed), (0.125, other),
]  # fmt: skip


def gsm8k(rng: Random) -> Pair:
    value = rng.choice([rng.randint(1, 200), rng.randint(1, 10**4), rng.randint(1, 10**5)])
    return str(value), rng.choice([str(value), str(value), f"{value:,}"])


def pairs(draw: Callable[[Random], Pair], count: int, seed: int) -> list[Pair]:
    """(gold, response): odd ones right in another spelling, even ones somebody else's answer."""
    rng = Random(seed)
    drawn = [draw(rng) for _ in range(count)]
    found: list[Pair] = []
    for n, (gold, same) in enumerate(drawn):
        answer = same if n % 2 else drawn[rng.randrange(count)][0]
        found.append((gold, rf"The final answer is $\boxed{{{answer}}}$."))
    return found


def mixed(rng: Random) -> Pair:
    return rng.choices([kind for _, kind in MIX], [share for share, _ in MIX])[0](rng)


@cache
def problem_of(gold: str) -> Problem:
    return Problem(id="s/0", prompt="", verifier="math_answer", reference={"answer": gold})


CHECK = get("math_answer").check


def by_us(pair: Pair) -> bool:
    gold, response = pair
    return CHECK(problem_of(gold), response).score == 1.0


def by_math_verify() -> Callable[[Pair], bool]:
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)

    def judged(pair: Pair) -> bool:
        gold, response = pair
        return bool(verify(parse(f"${gold}$"), parse(response)))

    return judged


def race(work: list[Pair], them: Callable[[Pair], bool]) -> dict[str, Any]:
    """CPU seconds of both on the same pairs, slice by slice, and where they disagree."""
    for gold, _ in work:  # who trains has the problems already
        problem_of(gold)
    seconds = [0.0, 0.0]
    said: list[list[bool]] = [[], []]
    for start in range(0, len(work), SLICE):
        for side, judged in enumerate((by_us, them)):
            began = time.process_time()
            said[side] += [judged(pair) for pair in work[start : start + SLICE]]
            seconds[side] += time.process_time() - began
    apart = [
        {"gold": gold, "response": response, "ours": a, "math_verify": b}
        for (gold, response), a, b in zip(work, *said, strict=True)
        if a != b
    ]
    wrong = [sum(bool(n % 2) and not right for n, right in enumerate(one)) for one in said]
    return {
        "pairs": len(work),
        "ours_per_cpu_s": len(work) / seconds[0],
        "math_verify_per_cpu_s": len(work) / seconds[1],
        "times_faster": seconds[1] / seconds[0],
        "right_ones_refused": {"ours": wrong[0], "math_verify": wrong[1]},
        "disagreements": apart,
    }


def main() -> int:
    options = arguments(
        __doc__ or "", pairs={"type": int, "default": 1_200, "help": "of each kind of work"}
    )
    count = 100 if options.quick else options.pairs
    them = by_math_verify()
    for warm in (("1", r"\boxed{2}"), (r"\sqrt{2}", r"\boxed{\sqrt{3}}")):
        by_us(warm), them(warm)
    results: dict[str, Any] = {
        "MATH-like": race(pairs(mixed, count, 1), them),
        "GSM8K-like": race(pairs(gsm8k, 2 * count, 2), them),
    }
    header = ["work", "pairs", "ours per CPU s", "math-verify per CPU s", "times"]
    rows = [
        [name, r["pairs"], r["ours_per_cpu_s"], r["math_verify_per_cpu_s"], r["times_faster"]]
        for name, r in results.items()
    ]  # fmt: skip
    lines = [table(header, rows), ""]
    for name, found in results.items():
        lines.append(f"{name}: {len(found['disagreements'])} disagreements; right ones refused: "
                     f"{found['right_ones_refused']}")  # fmt: skip
        lines += [
            f"  {d['gold']} ~ {d['response']}: ours {d['ours']}" for d in found["disagreements"]
        ]
    goals = {"MATH-like": GOAL_MATH, "GSM8K-like": GOAL_GSM8K}
    failed = [] if options.quick else [
        f"{name}: {results[name]['times_faster']:.1f} x, not {goal:.0f} x"
        for name, goal in goals.items()
        if results[name]["times_faster"] < goal
    ]  # fmt: skip
    results["load"] = os.getloadavg()[0]
    return publish(options, "\n".join(lines), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
