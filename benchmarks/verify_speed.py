"""Mathematical answers: pairs judged per CPU second, against math-verify in the same run.

    python benchmarks/verify_speed.py [--quick] [--json FILE] [--pairs 1200]

Golds are generated in the mix that a MATH training set has; half of the answers are right, in
another spelling, and half are the gold answer of some other problem. Both judges take turns on
slices of the same pairs, in one process; each pair is new to both. In the first two rows both have
parsed the golds beforehand, as a trainer has that judges many responses to each problem; the goals
are for these. In the others each pair includes its gold. A response is one sentence, or several
lines of work that end in prose around the box, as models write them ("worked").
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any

from publish import arguments, publish, table

from veriloop.data.problem import Problem
from veriloop.verifiers.registry import get

GOALS = {"MATH-like": 20.0, "GSM8K-like": 100.0}  # with golds parsed beforehand
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


SENTENCE = "The final answer is $\\boxed{{{}}}$."
LAST = (  # lines of worked responses
    SENTENCE,
    "Therefore, the total is \\boxed{{{}}}.",
    "Thus, she has \\boxed{{{}}} at the end of the week.",
    "So the answer is $\\boxed{{{}}}$.",
    "Hence the value we are looking for is\n\\[\n\\boxed{{{}}}\n\\]",
)


def sentence(answer: str, rng: Random) -> str:
    del rng
    return SENTENCE.format(answer)


def worked(answer: str, rng: Random) -> str:
    """A response of a few lines with formulas, and prose around the box."""
    lines = ["Let us work this out step by step."]
    for n in range(rng.randint(2, 5)):
        a, b = rng.randint(2, 60), rng.randint(2, 60)
        lines.append(
            rng.choice(
                (
                    f"{n + 1}. First we multiply: ${a} \\times {b} = {a * b}$.",
                    f"The remaining {a} and the {b} from before make {a + b} in all.",
                    f"As {a} of them cost \\${b} each, that is ${a} \\cdot {b} = {a * b}$ dollars.",
                )
            )
        )
    return "\n".join([*lines, "", rng.choice(LAST).format(answer)])


def pairs(
    draw: Callable[[Random], Pair],
    count: int,
    seed: int,
    write: Callable[[str, Random], str] = sentence,
) -> list[Pair]:
    """(gold, response): odd ones are right in another spelling, even ones have another problem's
    answer."""
    rng = Random(seed)
    drawn = [draw(rng) for _ in range(count)]
    chosen: list[Pair] = []
    for n, (gold, same) in enumerate(drawn):
        answer = same if n % 2 else drawn[rng.randrange(count)][0]
        chosen.append((gold, write(answer, rng)))
    return chosen


def mixed(rng: Random) -> Pair:
    return rng.choices([kind for _, kind in MIX], [share for share, _ in MIX])[0](rng)


@cache
def problem_of(gold: str) -> Problem:
    return Problem(id="s/0", prompt="", verifier="math_answer", reference={"answer": gold})


CHECK = get("math_answer").check
Judge = Callable[[Pair], bool]
Prepare = Callable[[Sequence[Pair]], Judge]  # parses the golds of some pairs


def ours(work: Sequence[Pair]) -> Judge:
    """math_answer, with the golds of these pairs parsed."""
    for gold, _ in work:
        CHECK(problem_of(gold), r"\boxed{0.123456789xyz}")

    def judged(pair: Pair) -> bool:
        gold, response = pair
        return CHECK(problem_of(gold), response).score == 1.0

    return judged


def math_verify(work: Sequence[Pair]) -> Judge:
    """math-verify, with the golds of these pairs parsed."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    golds = {gold: parse(f"${gold}$") for gold, _ in work}

    def judged(pair: Pair) -> bool:
        gold, response = pair
        parsed = golds[gold] if golds else parse(f"${gold}$")
        return bool(verify(parsed, parse(response)))

    return judged


def race(work: Sequence[Pair], *, golds_parsed: bool) -> dict[str, Any]:
    """CPU seconds of both on the same pairs, slice by slice, and where they disagree.

    `golds_parsed`: both parse the golds of a slice beforehand, outside the clock; otherwise each
    pair includes its gold. Problems exist beforehand in both cases.
    """
    for gold, _ in work:
        problem_of(gold)
    seconds = [0.0, 0.0]
    verdicts: list[list[bool]] = [[], []]
    for start in range(0, len(work), SLICE):
        pairs_of_slice = work[start : start + SLICE]
        for side, prepare in enumerate((ours, math_verify)):
            judge = prepare(pairs_of_slice if golds_parsed else ())
            began = time.process_time()
            verdicts[side] += map(judge, pairs_of_slice)
            seconds[side] += time.process_time() - began
    apart = [
        {"gold": gold, "response": response, "ours": a, "math_verify": b}
        for (gold, response), a, b in zip(work, *verdicts, strict=True)
        if a != b
    ]
    wrong = [sum(bool(n % 2) and not right for n, right in enumerate(v)) for v in verdicts]
    return {
        "golds": "parsed beforehand" if golds_parsed else "parsed with each pair",
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
    for prepare in (ours, math_verify):
        for warm in (("1", r"\boxed{2}"), (r"\sqrt{2}", r"\boxed{\sqrt{3}}")):
            prepare([warm])(warm)
    results: dict[str, Any] = {}
    for golds_parsed, mark in ((True, ""), (False, ", golds parsed with each pair")):
        seed = 1 if golds_parsed else 11  # no pair is known from the other race
        results[f"MATH-like{mark}"] = race(pairs(mixed, count, seed), golds_parsed=golds_parsed)
        results[f"GSM8K-like{mark}"] = race(
            pairs(gsm8k, 2 * count, seed + 1), golds_parsed=golds_parsed
        )
    for kind, draw, seed in (("MATH-like", mixed, 21), ("GSM8K-like", gsm8k, 22)):
        results[f"{kind}, worked"] = race(pairs(draw, count, seed, worked), golds_parsed=True)
    header = ["work", "golds", "pairs", "ours per CPU s", "math-verify per CPU s", "times"]
    rows = [
        [name.removesuffix(", golds parsed with each pair"), r["golds"], r["pairs"],
         r["ours_per_cpu_s"], r["math_verify_per_cpu_s"], r["times_faster"]]
        for name, r in results.items()
    ]  # fmt: skip
    lines = [table(header, rows), ""]
    for name, result in results.items():
        lines.append(f"{name}: {len(result['disagreements'])} disagreements; right ones refused: "
                     f"{result['right_ones_refused']}")  # fmt: skip
        lines += [
            f"  {d['gold']} ~ {d['response']}: ours {d['ours']}" for d in result["disagreements"]
        ]
    failed = [] if options.quick else [
        f"{name}, golds parsed beforehand: {results[name]['times_faster']:.1f} x, not {goal:.0f} x"
        for name, goal in GOALS.items()
        if results[name]["times_faster"] < goal
    ]  # fmt: skip
    results["load"] = os.getloadavg()[0]
    return publish(options, "\n".join(lines), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
