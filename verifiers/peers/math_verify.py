"""Hugging Face's math-verify as a verifier, to compare with math_answer. A plugin:

    veriloop rescore RUN --verifier math_verify --plugin veriloop.verifiers.peers.math_verify

It pays hedged and listed answers, and does not read everything: `veriloop verifier check` shows
what it breaks of the contract. Use math_answer to train.
"""

from functools import lru_cache
from typing import Any

from veriloop.data.problem import Problem
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict, no_answer


@verifier(
    "math_verify",
    reference={"answer": r"2\sqrt{3}"},
    accepts=r"It is $\boxed{\sqrt{12}}$.",
    rejects=(r"It is $\boxed{3\sqrt{2}}$.",),
)
def check(problem: Problem, response: str) -> Verdict:
    """1 if math-verify equates the answer it extracts with `reference["answer"]`, bare LaTeX.

    Its own timeouts, which need signals of the main thread, are off: a pool's limit ends it.
    Raises ValueError for a reference that it cannot parse.
    """
    from math_verify import parse, verify

    gold = _gold(str(problem.reference["answer"]))
    parsed = parse(response, parsing_timeout=None)  # pyright: ignore[reportArgumentType]
    if not parsed:
        return no_answer("math-verify extracts nothing")
    right = verify(gold, parsed, timeout_seconds=None)
    return Verdict(score=float(right), answer=str(parsed[-1])[:2000])


@lru_cache(maxsize=1024)
def _gold(answer: str) -> list[Any]:
    from math_verify import parse

    parsed = parse(f"${answer}$", parsing_timeout=None)  # pyright: ignore[reportArgumentType]
    if not parsed:
        raise ValueError(f"math-verify cannot parse the reference {answer!r}")
    return parsed
