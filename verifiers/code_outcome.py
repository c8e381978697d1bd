"""How each test of a program ended, and the one verdict that follows from all of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from verifiers.verdict import Verdict

Scoring = Literal["all", "share"]

OURS = frozenset({"sandbox_error", "broken"})  # the sandbox, or the tests themselves
OUT_OF_TIME = frozenset({"cpu", "wall", "no_time"})  # no_time: never begun
MAX_ANSWER = 4_000  # characters of a program kept in its verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test: "passed", "wrong", one of OURS or OUT_OF_TIME, or how the program died."""

    ended: str
    why: str = ""  # of a failure of ours, in our words: nothing that the program or a test said


def to_verdict(
    outcomes: Sequence[Outcome], *, tests: int, scoring: Scoring, answer: str
) -> Verdict:
    """The verdict on a program of which `outcomes` are known; the other tests did not pass.

    One failure of ours is no verdict at all: `error`. When every test ran out of time it is
    `timeout`. The score of "all" is 1 or 0, that of "share" the share of the tests that passed.
    Detail and components say how many tests ended how, and nothing of what they expect.
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
        detail = f"{fault.ended}: {fault.why}; {detail}"
        return Verdict(score=None, status="error", answer=answer, detail=detail, components=parts)
    if outcomes and all(outcome.ended in OUT_OF_TIME for outcome in outcomes):
        return Verdict(score=0.0, status="timeout", answer=answer, detail=detail, components=parts)
    score = parts["all_passed" if scoring == "all" else "share_passed"]
    return Verdict(score=score, answer=answer, detail=detail, components=parts)


def components(ends: Mapping[str, int], tests: int) -> dict[str, float]:
    """Parts of the score, each in [0, 1], the same keys whatever happened."""
    late = sum(count for ended, count in ends.items() if ended in OUT_OF_TIME)
    known = sum(ends.get(ended, 0) for ended in ("passed", "wrong", *OURS))
    return {
        "all_passed": float(ends.get("passed", 0) == tests),
        "share_passed": ends.get("passed", 0) / tests,
        "share_out_of_time": late / tests,
        "share_crashed": (sum(ends.values()) - known - late) / tests,
    }


NOTHING = components({}, 1)  # the components where there was no program to run
