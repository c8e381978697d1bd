"""open-instruct's code API: `POST /test_program`, `/test_program_stdio` and `GET /health`.

The result of a test is 0 or 1, which leaves no value for a failure: one of the sandbox, or a test
that is broken by itself, is a 503 for the whole program.
"""

import builtins
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from veriloop.data.free_names import UNPARSABLE, free_names
from veriloop.sandbox.executor import Executor
from veriloop.sandbox.remote.responses import refusals
from veriloop.verifiers.code.reference import CodeReference
from veriloop.verifiers.code.split.names import is_library
from veriloop.verifiers.code.tests import judge_program
from veriloop.verifiers.service.bodies import RUNNING, router
from veriloop.verifiers.service.dialects.packed_tests import unpack
from veriloop.verifiers.service.judging import TRIES
from veriloop.verifiers.service.records import Text
from veriloop.verifiers.service.routes import as_json
from veriloop.verifiers.service.runner import Runner


class TestRequest(BaseModel):
    """A program and its tests: assert statements, or inputs with outputs."""

    __test__ = False  # pytest must not collect it
    program: Text
    tests: Any
    max_execution_time: float = Field(1.0, gt=0, le=60)  # seconds for each test


class Results(BaseModel):
    """By test: 1 or 0, and the seconds of a test that passes, else -1."""

    results: list[int]
    runtimes: list[float]


def routes(runner: Runner) -> APIRouter:
    own = router("open-instruct")
    documented: dict[str, Any] = {"response_model": Results, "responses": refusals(*RUNNING)}

    @own.post("/test_program", **documented)
    async def test_program(submission: TestRequest) -> Response:
        """Assert statements, each judged separately."""
        return as_json(await runner.call(_judge, submission, _assertion))

    @own.post("/test_program_stdio", **documented)
    async def test_program_stdio(submission: TestRequest) -> Response:
        """Inputs on standard input, outputs compared as text."""
        return as_json(await runner.call(_judge, submission, _stdio))

    @own.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "healthy"}

    return own


def _read(tests: Any, read: Callable[[Any], dict[str, Any]]) -> list[dict[str, Any]]:
    """A reference for each test. Raises ValueError for tests that are none."""
    checked: list[dict[str, Any]] = []
    for n, test in enumerate(unpack(tests)):
        try:
            checked.append(read(test))
        except (ValueError, RecursionError) as mistake:
            raise ValueError(f"test {n}: {mistake}") from mistake
    return checked


def _assertion(test: Any) -> dict[str, Any]:
    if not isinstance(test, str):
        raise ValueError(f"a test must be an assert statement, got {type(test).__name__}")
    try:
        used = free_names(test)
    except UNPARSABLE as broken:
        raise ValueError(f"a test is not valid Python: {broken}") from broken
    function, *names = _of_program(used)
    return {"tests": [{"assert": test}], "function": function, "names": names}


def _of_program(names: Sequence[str]) -> Sequence[str]:
    """Those of the names that a test leaves to the program, at least one.

    A name of the standard library or a builtin is the program's only in a test without others:
    a program that could replace what tests compare with would pass any of them.
    """
    foreign = [name for name in names if not hasattr(builtins, name)]
    if own := [name for name in foreign if not is_library(name)]:
        return own
    if foreign or len(names) == 1:
        return (foreign or names)[:1]
    raise ValueError(f"a test must use a name that the program defines, got {list(names)}")


def _stdio(test: Any) -> dict[str, Any]:
    if not isinstance(test, Mapping) or not {"input", "output"} <= set(test):
        raise ValueError("a test must be an object with input and output")
    pair = {"stdin": str(test["input"]), "expected_stdout": str(test["output"])}
    return {"tests": [pair]}


def _judge(
    box: Executor, submission: TestRequest, read: Callable[[Any], dict[str, Any]]
) -> dict[str, list[Any]]:
    """Run each test separately, so that a failing one does not change the others' results."""
    seconds = submission.max_execution_time
    results, runtimes = [], []
    for test in _read(submission.tests, read):
        reference = CodeReference.read({"limits": {"cpu_s": seconds}, **test})
        passed, elapsed = _judge_test(box, submission.program, reference)
        results.append(int(passed))
        runtimes.append(elapsed if passed else -1.0)
    return {"results": results, "runtimes": runtimes}


def _judge_test(box: Executor, program: str, reference: CodeReference) -> tuple[bool, float]:
    """Whether the program passes, and the seconds that took. Raises RuntimeError for a test that
    could not be judged in TRIES tries."""
    detail = ""
    for _ in range(TRIES):
        start = perf_counter()
        verdict = judge_program(box, program, reference)
        if verdict.score is not None:
            return verdict.score == 1.0, perf_counter() - start
        detail = verdict.detail
    raise RuntimeError(f"a test could not be judged: {detail}")
