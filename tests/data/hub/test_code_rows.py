"""EvalPlus's lists of calls are read as data, and everything else stays code."""

import pytest

from veriloop.data.hub.code_rows import evalplus_tests
from veriloop.data.hub.load import read
from veriloop.verifiers.registry import judge

HEAD = """
import numpy as np

def is_floats(x) -> bool:
    return isinstance(x, float)

def assertion(out, exp, atol):
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if out != exp and atol != 0:
        np.testing.assert_allclose(out, exp, atol=atol)
    else:
        assert out == exp

"""
BODY = """def check(candidate):
    inputs = {inputs}
    results = {results}
    for i, (inp, exp) in enumerate(zip(inputs, results)):
        {line}
"""
COMPARED = "assertion(candidate(*inp), exp, {})"
EXACT = COMPARED.format(0)


def code(inputs, results, line=EXACT):
    return HEAD + BODY.format(inputs=inputs, results=results, line=line)


def test_lists_of_calls_become_tests_with_data():
    assert evalplus_tests(code("[[1, 'a'], [[2.5], None]]", "[True, -3]")) == {
        "tests": [
            {"args": [1, "a"], "expected": True},
            {"args": [[2.5], None], "expected": -3},
        ]
    }
    told = evalplus_tests(code("[[1]]", "[0.5]", COMPARED.format("1e-06")))
    assert told is not None and told["tolerance"] == 1e-6


@pytest.mark.parametrize(
    "other",
    [
        code("[[1]]", "[(1, 2)]"),  # a tuple is no list, and JSON cannot tell
        code("[[{1}]]", "[1]"),
        code("[[{1: 2}]]", "[1]"),
        code("[[1], [2]]", "[1]"),
        code("[]", "[]"),
        code("[[1]]", "[1]", "assert _poly(*candidate(*inp), inp) <= 0.0001"),
        code("[[1]]", "[1]", "assertion(candidate(*inp), ref_func(*inp), 0)"),
        code("[[open('x')]]", "[1]"),
        code("[[1]]", "make()"),
        "def check(candidate):\n    assert candidate(1) == 2\n",
        "def check(",
        "",
    ],
)
def test_anything_else_stays_code(other):
    assert evalplus_tests(other) is None


@pytest.mark.slow
def test_hundreds_of_calls_are_judged(rows, written):
    inputs = [[n] for n in range(400)]
    test = code(inputs, [n + 1 for n in range(400)])
    row = rows["humaneval_plus"][0] | {"test": test}
    (entry,) = read("humaneval_plus", path=written([row]))
    assert len(entry.problem.reference["tests"]) == 400
    assert entry.problem.reference["function"] == "total"
    assert judge(entry.problem, f"```python\n{entry.solutions[0]}\n```").score == 1.0
    wrong = "def total(a):\n    return a + 1 if a < 399 else 0\n"
    assert judge(entry.problem, f"```python\n{wrong}\n```").score == 0.0
