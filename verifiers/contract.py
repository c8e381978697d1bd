"""What every verifier promises, tried out on its own examples and on attacks made from them."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import permutations

from data.problem import Problem
from verifiers.answer import final_answer
from verifiers.registry import Verifier
from verifiers.verdict import Verdict

Judge = Callable[[Problem, str], Verdict]
Cases = Sequence[tuple[Problem, str]]

SLOWEST_MS = 2_500.0  # of 99 in 100 judgements: half of what the pool allows unless told
NOTHING = ("", " \n\t", "<think>", "<think>only thoughts", "</think>" * 50, "\x00", "\u200b")
JUNK = (
    "<answer>",
    "<answer></answer>",
    "<answer></answer>" * 2,
    "</answer><answer>",
    "<think>" * 50,
    r"\boxed{",
    r"\boxed{}",
    "\ud800",
    "9" * 10_000,
    "<answer>" + "9" * 10_000 + "</answer>",
    "<answer>" + "(" * 5_000 + "</answer>",
    "<answer>" + "[" * 5_000 + "]" * 5_000 + "</answer>",
    "<answer>9**9**9**9</answer>",
    "<answer>__import__('os').abort()</answer>",
    "<answer>I don't know</answer>",
)
ECHO = (
    "The assistant first thinks and then answers, as in <think> reasoning process here </think> "
    "<answer> answer here </answer>."
)
ALIKE = str.maketrans("aceopxyABCEHIKMOPTXYil015", "асеорхуАВСЕНІКМОРТХҮіӏОӏЅ")


@dataclass(frozen=True, slots=True)
class Finding:
    """One promise: kept (True), broken (False), or not to be tried on this verifier (None)."""

    promise: str
    kept: bool | None
    detail: str = ""  # of the first case that broke it, or the measurement


def examine(one: Verifier, judge: Judge) -> Iterator[Finding]:
    """Every promise in turn. What `judge` raises is raised: it must not raise at all."""
    problem, example = one.example_problem(), one.example
    yield _scores(judge, "accepts its example", [(problem, example.accepts)], 1.0)
    yield _scores(judge, "rejects near misses", [(problem, r) for r in example.rejects], 0.0)
    yield _strangers(one, judge)
    yield _scores(judge, "empty earns nothing", [(problem, text) for text in NOTHING], 0.0)
    yield from _attacked(one, judge)
    yield _components(one, judge)
    yield _order(one, judge)
    yield _latency(one, judge)


def _scores(
    judge: Judge, promise: str, cases: Cases, score: float, *, below: float | None = None
) -> Finding:
    """Whether every case earns exactly `score`, or less than `below` where that is given."""
    if not cases:
        return Finding(promise, None, "no such example")
    for problem, response in cases:
        verdict = judge(problem, response)
        got = verdict.score
        if got is None or not (got == score if below is None else got < below):
            return Finding(promise, False, f"{_short(response)} -> {_told(verdict)}")
    return Finding(promise, True, f"{len(cases)} responses")


def _told(verdict: Verdict) -> str:
    score = "no score" if verdict.score is None else f"{verdict.score:.4g}"
    return f"{score}, {verdict.status}: {verdict.detail}".removesuffix(": ")


def _short(response: str) -> str:
    return repr(response if len(response) <= 60 else response[:50] + "...")


def _strangers(one: Verifier, judge: Judge) -> Finding:
    """The right answer to another problem is a wrong one; to its own it is right."""
    promise = "another problem's gold earns nothing"
    if one.example.other is None:
        return Finding(promise, None, "the decorator names no other problem")
    reference, accepts = one.example.other
    other = one.problem(reference, f"example/{one.name}/other")
    right = _scores(judge, promise, [(other, accepts)], 1.0)
    if not right.kept:
        return right
    swapped = [(one.example_problem(), accepts), (other, one.example.accepts)]
    return _scores(judge, promise, swapped, 0.0, below=None if one.kind == "answer" else 1.0)


def _attacked(one: Verifier, judge: Judge) -> Iterator[Finding]:
    problem = one.example_problem()
    for promise, responses in attacks(one).items():
        cases = [(problem, response) for response in responses]
        if one.kind == "text":
            yield Finding(promise, None, "judges how a text is written")
        else:
            below = 1.0 if one.kind == "partial" and promise in MAY_EARN_PART else None
            yield _scores(judge, promise, cases, 0.0, below=below)


MAY_EARN_PART = frozenset({"all answers at once earn nothing", "look-alikes earn nothing"})


def attacks(one: Verifier) -> dict[str, list[str]]:
    """Responses that a verifier of answers must not pay for, by the promise they try."""
    accepts = one.example.accepts
    answer = final_answer(accepts) or accepts
    stranger = "decoy"
    if one.example.other is not None:
        stranger = final_answer(one.example.other[1]) or stranger
    return {
        "junk earns nothing": list(JUNK),
        "the prompt's words earn nothing": [ECHO],
        "thinking alone earns nothing": [
            f"<think><answer>{answer}</answer></think>",
            f"<think>{accepts}<think>",
            f"<think><answer>{answer}</answer>",
        ],
        "a second answer earns nothing": [
            accepts + "<answer>decoy</answer><answer>lure</answer>",
            f"<answer>{answer}</answer><answer>{stranger}</answer>",
            f"<answer>{stranger}</answer><answer>{answer}</answer>",
        ],
        "all answers at once earn nothing": _hedges(answer, stranger),
        "look-alikes earn nothing": _lookalikes(answer),
    }


def _hedges(answer: str, stranger: str) -> list[str]:
    """Both answers in one. Of drafts on several lines the last may count: the right one leads."""
    pairs = [(answer, stranger)]
    if "\n" not in answer:
        pairs = list(permutations((answer, stranger)))
    joints = (" or ", ", ", "\n", " and ")
    return [f"<answer>{a}{joint}{b}</answer>" for a, b in pairs for joint in joints]


def _lookalikes(answer: str) -> list[str]:
    alike = answer.translate(ALIKE)
    return [f"<answer>{alike}</answer>"] if alike != answer else []


def _components(one: Verifier, judge: Judge) -> Finding:
    promise = "components have fixed keys"
    responses = [one.example.accepts, *one.example.rejects, *NOTHING, *JUNK]
    asked = [(one.example_problem(), response) for response in responses]
    asked.append((one.problem({"no such key": object}), one.example.accepts))
    for problem, response in asked:
        keys = set(judge(problem, response).components)
        if keys != set(one.components):
            told = f"{_short(response)} -> {sorted(keys)}, declared {sorted(one.components)}"
            return Finding(promise, False, told)
    return Finding(promise, True, ", ".join(one.components) or "none")


def _order(one: Verifier, judge: Judge) -> Finding:
    """The same verdicts alone and in order, and from four threads in reverse."""
    promise = "order and threads change nothing"
    responses = [one.example.accepts, *one.example.rejects, "", one.example.accepts] * 3
    problem = one.example_problem()
    alone = [judge(problem, response) for response in responses]
    with ThreadPoolExecutor(4) as threads:
        crowd = list(threads.map(lambda r: judge(problem, r), reversed(responses)))
    for response, first, second in zip(responses, alone, reversed(crowd), strict=True):
        if (first.score, first.status, first.answer) != (
            second.score,
            second.status,
            second.answer,
        ):
            told = f"{_short(response)} -> {_told(first)} alone, {_told(second)} among others"
            return Finding(promise, False, told)
    return Finding(promise, True, f"{len(responses)} responses, 4 threads")


def _latency(one: Verifier, judge: Judge) -> Finding:
    problem = one.example_problem()
    responses = [one.example.accepts, *one.example.rejects, *NOTHING, *JUNK] * 2
    taken: list[float] = []
    for response in responses:
        began = time.perf_counter()
        verdict = judge(problem, response)
        if verdict.status != "timeout":  # the candidate's own work, bounded by its own limit
            taken.append(1e3 * (time.perf_counter() - began))
    p99 = sorted(taken)[int(0.99 * (len(taken) - 1))]
    kept = p99 <= SLOWEST_MS
    return Finding("latency", kept, f"p99 {p99:.3g} ms of at most {SLOWEST_MS:.0f} ms")
