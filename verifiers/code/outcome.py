"""The outcomes of the tests of a program, and the verdict that follows from them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from veriloop.verifiers.verdict import Verdict

Scoring = Literal["all", "share"]

OURS = frozenset({"sandbox_error", "broken"})  # faults of the sandbox or of the tests
OUT_OF_TIME = frozenset({"cpu", "wall", "no_time"})  # no_time: no CPU time is left for the test
MAX_ANSWER = 4_000  # characters of a program that its verdict keeps


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test ended: "passed", "wrong", one of OURS or OUT_OF_TIME, or how the program died.

    The reason never quotes the program or a test.
    """

    ended: str
    reason: str = ""  # for OURS only


def to_verdict(
    outcomes: Sequence[Outcome], *, tests: int, scoring: Scoring, answer: str
) -> Verdict:
    """The verdict on a program; tests without an outcome count as not passed.

    The status is `error` if any outcome is one of OURS, and `timeout` if all outcomes are one of
    OUT_OF_TIME, or if all tests had to pass and the clock alone ("wall") prevented it. The score
    for "all" is 1 or 0, for "share" the share of the tests that passed. Detail and components count
    outcomes and reveal no expected value.
    """
    ends = Counter(outcome.ended for outcome in outcomes)
    parts = components(ends, tests)
    detail = f"{ends['passed']} of {tests} tests passed"
    others = [f"{count} {ended}" for ended, count in ends.items() if ended != "passed"]
    if others:
        detail += f"; ended otherwise: {', '.join(others)}"
    answer = answer[:MAX_ANSWER]
    fault = next((outcome for outcome in outcomes if outcome.ended in OURS), None)
    if fault is not None:
        detail = f"{fault.ended}: {fault.reason}; {detail}"
        return Verdict(score=None, status="error", answer=answer, detail=detail, components=parts)
    by_clock = scoring == "all" and set(ends) == {"passed", "wall"}
    if outcomes and (by_clock or set(ends) <= OUT_OF_TIME):
        return Verdict(score=0.0, status="timeout", answer=answer, detail=detail, components=parts)
    score = parts["all_passed" if scoring == "all" else "share_passed"]
    return Verdict(score=score, answer=answer, detail=detail, components=parts)


def components(ends: Mapping[str, int], tests: int) -> dict[str, float]:
    """Parts of the score, each in [0, 1], with the same keys in every verdict."""
    out_of_time = sum(count for ended, count in ends.items() if ended in OUT_OF_TIME)
    others = sum(ends.get(ended, 0) for ended in ("passed", "wrong", *OURS))
    return {
        "all_passed": float(ends.get("passed", 0) == tests),
        "share_passed": ends.get("passed", 0) / tests,
        "share_out_of_time": out_of_time / tests,
        "share_crashed": (sum(ends.values()) - others - out_of_time) / tests,
    }


NO_PROGRAM = components({}, 1)  # the components of a response without a program
