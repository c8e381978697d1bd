"""Readers of program tests in published data sets; each returns a reference for `code_tests`."""

import ast
import json
import re
from collections.abc import Container, Iterable, Mapping
from typing import Any

from veriloop.data.free_names import UNPARSABLE, free_names
from veriloop.data.hub.layout import Layout, Row, UnusableRow, text, value

LARGEST = 64 << 20  # characters of a row's tests; rows with more are dropped
_DEFINED = re.compile(r"^(?:async )?(?:def|class) (\w+)", re.MULTILINE)
_EVALPLUS_ASSERTION = re.compile(r"assertion\(candidate\(\*inp\), exp, ([\d.e-]+)\)")
_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef)


def inputs_outputs(row: Row, layout: Layout) -> dict[str, Any]:
    """APPS and TACO: `{"inputs": [...], "outputs": [...], "fn_name": ...}` as JSON in a column.

    With `fn_name` the inputs are arguments, otherwise standard input; lines may be a list.
    """
    tests = _json_column(row, layout.reference["tests"])
    if not isinstance(tests, dict):
        raise UnusableRow("tests are not an object")
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not inputs:
        raise UnusableRow("no tests")
    if len(inputs) != len(outputs):
        raise UnusableRow("numbers of inputs and outputs differ")
    if name := tests.get("fn_name"):
        return {"function": str(name), "tests": list(_calls(inputs, outputs))}
    pairs = zip(inputs, outputs, strict=True)
    return {"tests": [_stdin_test(stdin, stdout) for stdin, stdout in pairs]}


def stdin_test(case: Any) -> dict[str, Any]:
    """The test of `{"input": ..., "output": ...}`. Raises UnusableRow for anything else."""
    if not isinstance(case, Mapping):
        raise UnusableRow("a test is not an object")
    return _stdin_test(case.get("input"), case.get("output"))


def _json_column(row: Row, column: str) -> Any:
    """The value of a column that holds JSON text. Raises UnusableRow for anything else."""
    encoded = text(row, column)
    if len(encoded) > LARGEST:
        raise UnusableRow("tests too large")
    return from_json(encoded, column)


def from_json(encoded: str, column: str) -> Any:
    """The value of JSON text from a column. Raises UnusableRow if it has none."""
    try:
        return json.loads(encoded)
    except (json.JSONDecodeError, RecursionError):
        raise UnusableRow(f"{column} is not JSON") from None
    except ValueError:  # Python's limit for integers
        raise UnusableRow(f"{column} has an integer of too many digits") from None


def _calls(inputs: list[Any], outputs: list[Any]) -> Iterable[dict[str, Any]]:
    # These sets often wrap every return value in a list of length 1.
    wrapped = all(isinstance(output, list) and len(output) == 1 for output in outputs)
    for args, output in zip(inputs, outputs, strict=True):
        if not isinstance(args, list):
            raise UnusableRow("arguments are not a list")
        yield {"args": args, "expected": output[0] if wrapped else output}


def _stdin_test(stdin: Any, stdout: Any) -> dict[str, Any]:
    return {"stdin": _lines(stdin), "expected_stdout": _lines(stdout)}


def _lines(stream: Any) -> str:
    if isinstance(stream, list):
        return "\n".join(map(str, stream))
    if not isinstance(stream, str):
        raise UnusableRow("standard input or output is not text")
    return stream


def asserts(row: Row, layout: Layout) -> dict[str, Any]:
    """MBPP: a list of assert statements; they call the functions that the solution defines."""
    tests = _test_list(row, layout)
    setup = value(row, layout.reference["setup"]) or ""
    setup = "\n".join(setup) if isinstance(setup, list) else str(setup)
    used = _names("\n".join(map(str, tests)))
    defined = [name for name in _DEFINED.findall(text(row, layout.solution)) if name in used]
    if not defined:
        raise UnusableRow("no test calls what the solution defines")
    reference = {"function": defined[0], "tests": [{"assert": str(test)} for test in tests]}
    optional = {"names": defined[1:], "setup": setup}
    return reference | {key: part for key, part in optional.items() if part}


def _test_list(row: Row, layout: Layout) -> list[Any]:
    tests = value(row, layout.reference["tests"])
    if not isinstance(tests, list) or not tests:
        raise UnusableRow("no tests")
    return tests


def check_function(row: Row, layout: Layout) -> dict[str, Any]:
    """HumanEval: code that defines `check(candidate)`, called with the candidate function.

    EvalPlus's `check` only compares lists of literals: these become one test for each call.
    """
    function = text(row, layout.reference["function"])
    code = text(row, layout.reference["tests"])
    if "def check(" not in code:
        raise UnusableRow("no check function")
    if (tests := evalplus_tests(code)) is not None:
        return {"function": function, **tests}
    reference = {"function": function, "tests": [{"assert": f"{code}\n\ncheck({function})\n"}]}
    return reference | _helpers(text(row, layout.reference["setup"]), function, _names(code))


def _helpers(prompt: str, function: str, used: Container[str]) -> dict[str, Any]:
    """`setup` and `names` if the tests use more of the prompt than the function to write.

    The tests run what the prompt defines themselves, since a program could define it differently.
    The program supplies functions of which the prompt has no body.
    """
    defined = [name for name in _DEFINED.findall(prompt) if name != function]
    if not any(name in used for name in defined):
        return {}
    try:
        tree = ast.parse(prompt)
    except UNPARSABLE:
        raise UnusableRow("the prompt is not valid Python") from None
    wanted = {node.name for node in tree.body if isinstance(node, _DEFINITION) and _is_stub(node)}
    names = [name for name in defined if name in wanted and name in used]
    tree.body = [node for node in tree.body if getattr(node, "name", "") not in {function, *wanted}]
    parts = {"setup": ast.unparse(tree), "names": names}
    return {key: part for key, part in parts.items() if part}


def _is_stub(definition: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the body is only a docstring, `pass` or `...`."""
    return all(
        isinstance(node, ast.Pass)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in definition.body
    )


def _names(code: str) -> list[str]:
    try:
        return free_names(code)
    except UNPARSABLE:
        raise UnusableRow("tests are not valid Python") from None


def evalplus_tests(code: str) -> dict[str, Any] | None:
    """`tests`, and `tolerance` unless it is 0, of an EvalPlus `check`: a loop that compares the
    literal lists `inputs` and `results`. None for any other code or values that JSON cannot hold.
    """
    try:
        (check,) = (
            node
            for node in ast.parse(code).body
            if isinstance(node, ast.FunctionDef) and node.name == "check"
        )
        inputs_statement, results_statement, loop = check.body
        inputs = _assigned_list(inputs_statement, "inputs")
        results = _assigned_list(results_statement, "results")
    except UNPARSABLE:
        return None
    if not isinstance(loop, ast.For) or len(loop.body) != 1:
        return None
    assertion = _EVALPLUS_ASSERTION.fullmatch(ast.unparse(loop.body[0]))
    if assertion is None or not inputs or len(inputs) != len(results):
        return None
    if not _survives_json([inputs, results]):
        return None
    tolerance = float(assertion.group(1))
    pairs = zip(inputs, results, strict=True)
    tests = [{"args": args, "expected": expected} for args, expected in pairs]
    return {"tests": tests} | ({"tolerance": tolerance} if tolerance else {})


def _assigned_list(statement: ast.stmt, name: str) -> list[Any]:
    """The literal list that a statement assigns to `name`. Raises ValueError for anything else."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=target)], value=ast.List() as literal):
            if target == name:
                return ast.literal_eval(literal)
    raise ValueError(f"no list of {name}")


def _survives_json(literal: Any) -> bool:
    """Whether JSON preserves the value: a tuple comes back as a list, and no list equals it."""
    try:
        return json.loads(json.dumps(literal)) == literal
    except (TypeError, ValueError, RecursionError):
        return False


def codeforces(row: Row, layout: Layout) -> dict[str, Any]:
    """Codeforces: input and output pairs. Rows that need their own checker are dropped."""
    tests = _test_list(row, layout)
    if value(row, "input_mode") not in (None, "stdio"):
        raise UnusableRow("reads and writes files")
    if value(row, "interaction_format"):
        raise UnusableRow("is interactive")
    if value(row, "generated_checker"):
        raise UnusableRow("needs a checker program")
    if value(row, "official_tests_complete") is False:
        raise UnusableRow("truncated tests")
    stdin_tests = [stdin_test(test) for test in tests]
    return {"tests": stdin_tests, **_limits(value(row, "time_limit"), value(row, "memory_limit"))}


def _limits(seconds: Any, megabytes: Any) -> Mapping[str, Any]:
    """`limits` of the reference from a row's limits for one run; empty if the row has none."""

    def positive(number: Any) -> bool:
        return isinstance(number, int | float) and number > 0

    bounds = {"cpu_s": float(seconds)} if positive(seconds) else {}
    bounds |= {"memory_mb": int(megabytes)} if positive(megabytes) else {}
    return {"limits": bounds} if bounds else {}
