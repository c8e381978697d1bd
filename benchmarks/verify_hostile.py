"""Hostile answers: each must be answered within its limit, in bounded memory, by a pool of two.

    python benchmarks/verify_hostile.py [--quick] [--json FILE]

Called from a thread, as a trainer would. `alone_ms` is the judgement without the pool.
"""

import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

from publish import arguments, publish, table

from veriloop.data.problem import Problem
from veriloop.verifiers.pool import VerifierPool
from veriloop.verifiers.registry import judge

LIMIT_S = 2.0
GRACE_S = 0.2
MEMORY_MB = 1024
GOLD = "42"


def boxed(text: str) -> str:
    return f"\\boxed{{{text}}}"


def inputs() -> dict[str, str]:
    """Name -> response; the gold answer of each is 42."""
    deep = {
        "parentheses boxed": boxed("(" * 100_000),
        "parentheses plain": "The answer is " + "(" * 100_000,
        "500 balanced parentheses": boxed("(" * 500 + "42" + ")" * 500),
        "2,000 nested braces": boxed("{" * 2_000 + "42" + "}" * 2_000),
        "200 nested fractions": boxed(r"\frac{1}{" * 200 + "42" + "}" * 200),
        "400 nested roots": boxed(r"\sqrt{" * 400 + "42" + "}" * 400),
        "roots without braces": boxed(r"\sqrt" * 1_000 + "2"),
        "open fractions": boxed(r"\frac{" * 5_000),
        "100,000 minus signs": boxed("-" * 100_000 + "42"),
        "1,900 minus signs": boxed("-" * 1_900 + "42"),
        "nested sets": boxed(r"\{" * 300 + "42" + r"\}" * 300),
        "nested absolute values": boxed("|" * 900 + "42" + "|" * 900),
    }
    large = {
        "9**9**9**9": "The answer is 9**9**9**9",
        "9^9^9^9": boxed("9^9^9^9"),
        "9^{9^{9^{9}}}": boxed("9^{9^{9^{9}}}"),
        "2^{10^{10}}": boxed("2^{10^{10}}"),
        "10^{10^{10}}+42": boxed("10^{10^{10}}+42"),
        "tower of five": boxed("2^{3^{4^{5^{6}}}}"),
        "(10^6)!": boxed("(10^6)!"),
        "2000000!": boxed("2000000!"),
        "((10^6)!)!": boxed("((10^6)!)!"),
        "factorials over factorials": boxed(r"\frac{50000000!}{49999999!}"),
        "60000000!": boxed("60000000!"),
        "binomial": boxed(r"\binom{10^7}{5000000}"),
        "large binomial": boxed(r"\binom{400000000}{200000000}"),
        "sum of 10^9 terms": boxed(r"\sum_{k=1}^{10^9}\frac{1}{k}"),
        "sum in a sum": boxed(r"\sum_{k=1}^{1000}\sum_{j=1}^{1000}\sum_{i=1}^{1000} ijk"),
        "product of 10^7 terms": boxed(r"\prod_{k=1}^{10^7} k"),
        "integral": boxed(r"\int_0^1 \sin(\cos(e^{x^x}))\,dx"),
        "log tower": boxed(r"\log(\log(\log(9^{9^{9}})))"),
        "polynomial power": boxed("(x+1)^{3000}-(x+1)^{3000}+42"),
        "exponentials": boxed(r"e^{e^{e^{e^{e}}}}"),
        "tiny term": boxed(r"42+10^{-100000}"),
        "root of degree 10^9": boxed(r"\sqrt[1000000000]{2}"),
        "exponent in e-notation": boxed("1e999999999"),
    }
    long = {
        "empty boxes": r"\boxed{}" * 10_000,
        "10,000 boxes": r"\boxed{1}" * 10_000,
        "100,000 digits": boxed("4" * 100_000),
        "1,000,000 digits": "The answer is " + "4" * 1_000_000,
        "1,900 digits squared": boxed("4" * 950 + "^" + "9" * 900),
        "20,000 elements": boxed(r"\{" + ",".join(["1"] * 20_000) + r"\}"),
        "50,000 ones": boxed("1 " * 50_000),
        "60 x 60 matrix": boxed(
            r"\begin{pmatrix}" + r"\\".join(["&".join(["1"] * 60)] * 60) + r"\end{pmatrix}"
        ),
        "answer is, 20,000 times": "the answer is " * 20_000,
        "100 kB of dollars": "$" * 100_000 + "42",
        "200 kB of spaces": "The answer is" + " " * 200_000 + "41",
        "digits after a box": boxed(GOLD) + " " + "1" * 100_000,
        "full stops after a box": boxed(GOLD) + " " + "." * 100_000,
        "empty lines after a box": boxed(GOLD) + "\n" * 100_000,
        "questions before a box": "which " * 20_000 + boxed(GOLD),
    }
    return deep | large | long


RIGHT = ("full stops after a box", "empty lines after a box", "questions before a box")


def problem() -> Problem:
    return Problem(id="h/0", prompt="", verifier="math_answer", reference={"answer": GOLD})


def in_pool(responses: dict[str, str]) -> list[dict[str, Any]]:
    """Each input alone through one pool, from a thread that is not the main one."""
    rows: list[dict[str, Any]] = []

    def work() -> None:
        with VerifierPool(workers=2, limit_s=LIMIT_S, memory_mb=MEMORY_MB) as pool:
            pool.warm(["math_answer"])
            for name, response in responses.items():
                began = time.perf_counter()
                verdict = pool.judge_all([(problem(), response)])[0]
                took = time.perf_counter() - began
                rows.append({"name": name, "status": verdict.status, "score": verdict.score,
                             "wall_ms": 1000 * took, "detail": verdict.detail})  # fmt: skip
            whole = pool.judge_all([(problem(), boxed("6 \\cdot 7"))] * 8)
            rows.append({"name": "afterwards, 8 honest ones", "status": whole[0].status,
                         "score": min(answer.score or 0.0 for answer in whole), "wall_ms": 0.0,
                         "detail": ""})  # fmt: skip

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return rows


def alone(responses: dict[str, str]) -> dict[str, float]:
    """CPU milliseconds of the first judgement of each input, in this process."""
    judge(problem(), boxed(r"\sqrt{4}"))
    times_ms: dict[str, float] = {}
    for name, response in responses.items():
        began = time.process_time()
        judge(problem(), response)
        times_ms[name] = 1000 * (time.process_time() - began)
    return times_ms


def failures(rows: list[dict[str, Any]], most: float) -> list[str]:
    late = [row["name"] for row in rows if row["wall_ms"] > 1000 * (LIMIT_S + GRACE_S)]
    paid = [row["name"] for row in rows[:-1] if row["score"] and row["name"] not in RIGHT]
    unpaid = [row["name"] for row in rows if row["score"] != 1.0 and row["name"] in RIGHT]
    ours = [row["name"] for row in rows if row["status"] == "error"]
    messages = [f"{len(late)} answered late: {late}"] if late else []
    messages += [f"{len(paid)} paid: {paid}"] if paid else []
    messages += [f"{len(unpaid)} right and not paid: {unpaid}"] if unpaid else []
    messages += [f"{len(ours)} ended in an error: {ours}"] if ours else []
    messages += ["the pool was not whole afterwards"] if rows[-1]["score"] != 1.0 else []
    return messages + ([f"{most:.0f} MB used"] if most > MEMORY_MB else [])


def main() -> int:
    options = arguments(__doc__ or "")
    responses = inputs()
    if options.quick:
        responses = dict(list(responses.items())[::8])
    times = alone(responses)
    rows = in_pool(responses)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for row in rows:
        row["alone_ms"] = times.get(row["name"], 0.0)
    header = ["input", "verdict", "score", "pool ms", "alone ms CPU", "why"]
    lines = [
        [r["name"], r["status"], str(r["score"]), r["wall_ms"], r["alone_ms"], r["detail"][:40]]
        for r in rows
    ]
    quick = sum(t < 5 for t in times.values())
    text = table(header, lines) + f"\n\n{len(responses)} inputs, {quick} of them under 5 ms CPU"
    text += f"; peak memory of this process, which judged them all: {most:.0f} MB"
    gmpy = any((Path(p) / "gmpy2").exists() for p in sys.path)
    results = {"rows": rows, "gmpy2": gmpy, "peak_mb": most, "load": os.getloadavg()[0]}
    return publish(options, text, results, failed=failures(rows, most))


if __name__ == "__main__":
    sys.exit(main())
