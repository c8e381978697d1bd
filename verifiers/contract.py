"""The contract of every verifier, tested on its own examples and on attacks derived from them."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import permutations
from operator import attrgetter

from veriloop.data.problem import Problem
from veriloop.verifiers.answer import final_answer
from veriloop.verifiers.registry import Verifier
from veriloop.verifiers.verdict import Verdict

Judge = Callable[[Problem, str], Verdict]
Cases = Sequence[tuple[Problem, str]]

SLOWEST_MS = 2_500.0  # bound on the p99 latency: half of the pool's default limit
EMPTY = ("", " \n\t", "<think>", "<think>only thoughts", "</think>" * 50, "\x00", "\u200b")
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
    """The result for one promise: kept (True), broken (False) or not applicable (None)."""

    promise: str
    kept: bool | None
    detail: str = ""  # the first case that broke it, or the measurement


def examine(verifier: Verifier, judge: Judge) -> Iterator[Finding]:
    """Test every promise in turn. Exceptions of `judge` propagate: it must not raise."""
    problem, example = verifier.example_problem(), verifier.example
    yield _scores(judge, "accepts its example", [(problem, example.accepts)], 1.0)
    yield _scores(judge, "rejects near misses", [(problem, r) for r in example.rejects], 0.0)
    yield _other_gold(verifier, judge)
    yield _scores(judge, "empty earns nothing", [(problem, text) for text in EMPTY], 0.0)
    yield from _attack_findings(verifier, judge)
    yield _components(verifier, judge)
    yield _order(verifier, judge)
    yield _latency(verifier, judge)


def _scores(
    judge: Judge, promise: str, cases: Cases, score: float, *, below: float | None = None
) -> Finding:
    """Whether every case scores exactly `score`, or less than `below` if that is set."""
    if not cases:
        return Finding(promise, None, "no such example")
    for problem, response in cases:
        verdict = judge(problem, response)
        actual = verdict.score
        if actual is None or not (actual == score if below is None else actual < below):
            return Finding(promise, False, f"{_short(response)} -> {_summary(verdict)}")
    return Finding(promise, True, f"{len(cases)} responses")


def _summary(verdict: Verdict) -> str:
    score = "no score" if verdict.score is None else f"{verdict.score:.4g}"
    return f"{score}, {verdict.status}: {verdict.detail}".removesuffix(": ")


def _short(response: str) -> str:
    return repr(response if len(response) <= 60 else response[:50] + "...")


def _other_gold(verifier: Verifier, judge: Judge) -> Finding:
    """The correct answer to another problem is wrong here, and right for that problem."""
    promise = "another problem's gold earns nothing"
    if verifier.example.other is None:
        return Finding(promise, None, "the decorator names no other problem")
    reference, accepts = verifier.example.other
    other = verifier.problem(reference, f"example/{verifier.name}/other")
    right = _scores(judge, promise, [(other, accepts)], 1.0)
    if not right.kept:
        return right
    swapped = [(verifier.example_problem(), accepts), (other, verifier.example.accepts)]
    return _scores(judge, promise, swapped, 0.0, below=None if verifier.kind == "answer" else 1.0)


def _attack_findings(verifier: Verifier, judge: Judge) -> Iterator[Finding]:
    problem = verifier.example_problem()
    for promise, responses in attacks(verifier).items():
        cases = [(problem, response) for response in responses]
        if verifier.kind == "text":
            yield Finding(promise, None, "judges how a text is written")
        else:
            below = 1.0 if verifier.kind == "partial" and promise in MAY_EARN_PART else None
            yield _scores(judge, promise, cases, 0.0, below=below)


MAY_EARN_PART = frozenset({"all answers at once earn nothing", "look-alikes earn nothing"})


def attacks(verifier: Verifier) -> dict[str, list[str]]:
    """Responses that must not earn a reward from a verifier of answers, by promise."""
    accepts = verifier.example.accepts
    answer = final_answer(accepts) or accepts
    look_alike = answer.translate(ALIKE)  # the answer in letters of other alphabets
    other = "decoy"
    if verifier.example.other is not None:
        other = final_answer(verifier.example.other[1]) or other
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
            f"<answer>{answer}</answer><answer>{other}</answer>",
            f"<answer>{other}</answer><answer>{answer}</answer>",
        ],
        "all answers at once earn nothing": _hedges(answer, other),
        "look-alikes earn nothing": [f"<answer>{look_alike}</answer>"] * (look_alike != answer),
    }


def _hedges(answer: str, other: str) -> list[str]:
    """Both answers in one block.

    An answer of several lines may count by its last line, so there the correct one comes first.
    """
    pairs = [(answer, other)]
    if "\n" not in answer:
        pairs = list(permutations((answer, other)))
    joints = (" or ", ", ", "\n", " and ")
    return [f"<answer>{a}{joint}{b}</answer>" for a, b in pairs for joint in joints]


def _components(verifier: Verifier, judge: Judge) -> Finding:
    promise = "components have fixed keys"
    responses = [verifier.example.accepts, *verifier.example.rejects, *EMPTY, *JUNK]
    cases = [(verifier.example_problem(), response) for response in responses]
    cases.append((verifier.problem({"no such key": object}), verifier.example.accepts))
    for problem, response in cases:
        keys = set(judge(problem, response).components)
        if keys != set(verifier.components):
            detail = f"{_short(response)} -> {sorted(keys)}, declared {sorted(verifier.components)}"
            return Finding(promise, False, detail)
    return Finding(promise, True, ", ".join(verifier.components) or "none")


def _order(verifier: Verifier, judge: Judge) -> Finding:
    """Verdicts are the same one by one in order as from four threads in reverse order."""
    promise = "order and threads change nothing"
    responses = [
        verifier.example.accepts,
        *verifier.example.rejects,
        "",
        verifier.example.accepts,
    ] * 3
    problem = verifier.example_problem()
    alone = [judge(problem, response) for response in responses]
    with ThreadPoolExecutor(4) as threads:
        concurrent = list(threads.map(lambda r: judge(problem, r), reversed(responses)))
    result = attrgetter("score", "status", "answer")
    for response, first, second in zip(responses, alone, reversed(concurrent), strict=True):
        if result(first) != result(second):
            summaries = f"{_summary(first)} alone, {_summary(second)} among others"
            return Finding(promise, False, f"{_short(response)} -> {summaries}")
    return Finding(promise, True, f"{len(responses)} responses, 4 threads")


def _latency(verifier: Verifier, judge: Judge) -> Finding:
    problem = verifier.example_problem()
    responses = [verifier.example.accepts, *verifier.example.rejects, *EMPTY, *JUNK] * 2
    elapsed_ms: list[float] = []
    for response in responses:
        started = time.perf_counter()
        verdict = judge(problem, response)
        if verdict.status != "timeout":  # a candidate's program, bounded by its own limit
            elapsed_ms.append(1e3 * (time.perf_counter() - started))
    p99 = sorted(elapsed_ms)[int(0.99 * (len(elapsed_ms) - 1))]
    kept = p99 <= SLOWEST_MS
    return Finding("latency", kept, f"p99 {p99:.3g} ms of at most {SLOWEST_MS:.0f} ms")
