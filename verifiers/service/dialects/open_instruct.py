"""open-instruct's code API: `POST /test_program`, `/test_program_stdio` and `GET /health`.

Each test is 0 or 1, so what is no verdict of a test has no place among them: a failure of the
sandbox, or of a test that is broken by itself, is a 503 for the whole program.
"""

import ast
import builtins
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from sandbox.executor import Executor
from verifiers.code_reference import CodeReference
from verifiers.code_tests import judge_program
from verifiers.service.dialects.packed_tests import unpacked
from verifiers.service.records import Text
from verifiers.service.refusal import Refusal
from verifiers.service.routes import as_json
from verifiers.service.runner import Runner


class TestRequest(BaseModel):
    """A program and its tests: assert statements, or inputs with outputs."""

    __test__ = False  # no test class of ours
    program: Text
    tests: Any
    max_execution_time: float = Field(1.0, gt=0, le=60)  # seconds for each test


def routes(runner: Runner) -> APIRouter:
    router = APIRouter(tags=["open-instruct"])

    @router.post("/test_program")
    async def test_program(asked: TestRequest) -> Response:
        """Assert statements, each judged by itself."""
        tests = _read(asked.tests, _assertion)
        return as_json(await runner.call(_judged, asked, tests))

    @router.post("/test_program_stdio")
    async def test_program_stdio(asked: TestRequest) -> Response:
        """Inputs on standard input, outputs compared as text."""
        tests = _read(asked.tests, _stdio)
        return as_json(await runner.call(_judged, asked, tests))

    @router.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "healthy"}

    return router


def _read(tests: Any, read: Callable[[Any], dict[str, str]]) -> list[dict[str, str]]:
    try:
        return [read(test) for test in unpacked(tests)]
    except ValueError as mistake:
        raise Refusal(422, str(mistake)) from mistake


def _assertion(test: Any) -> dict[str, str]:
    if not isinstance(test, str):
        raise ValueError(f"a test must be an assert statement, got {type(test).__name__}")
    return {"assert": test}


def _stdio(test: Any) -> dict[str, str]:
    if not isinstance(test, Mapping) or not {"input", "output"} <= set(test):
        raise ValueError("a test must be an object with input and output")
    return {"stdin": str(test["input"]), "expected_stdout": str(test["output"])}


def _judged(box: Executor, asked: TestRequest, tests: list[dict[str, str]]) -> dict[str, list[Any]]:
    """In a thread: each test alone, so that one that fails leaves the others their own result."""
    seconds = asked.max_execution_time
    results, runtimes = [], []
    for test in tests:
        limits = {"cpu_s": seconds}
        reference = CodeReference.read({"tests": [test], "limits": limits, **_target(test)})
        began = perf_counter()
        verdict = judge_program(box, asked.program, reference)
        if verdict.score is None:
            raise RuntimeError(f"a test could not be judged: {verdict.detail}")
        results.append(int(verdict.score == 1.0))
        runtimes.append(perf_counter() - began if verdict.score == 1.0 else -1.0)
    return {"results": results, "runtimes": runtimes}


def _target(test: Mapping[str, str]) -> dict[str, str]:
    """Which function an assert statement calls: the first name that it calls, but no builtin."""
    if "assert" not in test:
        return {}
    try:
        tree = ast.parse(test["assert"])
    except (SyntaxError, ValueError, RecursionError) as broken:
        raise ValueError(f"a test is no Python: {broken}") from broken
    called = [
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    found = next((name for name in called if not hasattr(builtins, name)), "")
    return {"function": found} if found else {}
