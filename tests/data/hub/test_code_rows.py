"""EvalPlus's lists of calls are read as data, and everything else stays code."""

import json

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
LOOP = "for i, (inp, exp) in enumerate(zip(inputs, results))"
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
        code("[[{'a': (1,)}]]", "[1]"),
        code("[[{1}]]", "[1]"),
        code("[[{1: 2}]]", "[1]"),
        code("[[1], [2]]", "[1]"),
        code("[]", "[]"),
        code("[[1]]", "[1]", "assert _poly(*candidate(*inp), inp) <= 0.0001"),
        code("[[1]]", "[1]", "assertion(candidate(*inp), ref_func(*inp), 0)"),
        code("[[1]]", "[1]", f"{EXACT}\n        print(inp)"),
        code("[[1]]", "[1]").replace(LOOP, "while 1"),
        code("[[1]]", "[1]", f"{EXACT}\n        print(inp)").replace(LOOP, "while 1"),
        code("[[1]]", "[[1]]").replace("results =", "first =").replace("inputs =", "results ="),
        code("[[open('x')]]", "[1]"),
        code("[[1]]", "make()"),
        "def check(candidate):\n    assert candidate(1) == 2\n",
        "def check(",
        "",
    ],
)
def test_anything_else_stays_code(other):
    assert evalplus_tests(other) is None


def reference_of(name, rows, written, **columns):
    (entry,) = read(name, path=written([rows[name][0] | columns]))
    return entry.problem.reference


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ([[3], [5]], [3, 5]),
        ([[[1, 2]], [[3]]], [[1, 2], [3]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        ([3, [5]], [3, [5]]),
    ],
)
def test_return_values_are_taken_out_of_lists_of_one_where_all_are(
    rows, written, outputs, expected
):
    tests = json.dumps({"inputs": [[1], [2]], "outputs": outputs, "fn_name": "f"})
    reference = reference_of("apps", rows, written, input_output=tests)
    assert reference["function"] == "f"
    assert reference["tests"] == [
        {"args": [n], "expected": one} for n, one in zip((1, 2), expected, strict=True)
    ]


@pytest.mark.parametrize("setup", ["import math\nx = 1", ["import math", "x = 1"]])
def test_asserts_may_need_a_setup_and_several_functions(rows, written, setup):
    program = "def unused(): pass\ndef two(): return 2\ndef add(a, b): return a + b\n"
    tests = ["assert add(two(), 1) == 3", "assert two() == 2"]
    columns = {"code": program, "test_list": tests, "test_setup_code": setup}
    reference = reference_of("mbpp", rows, written, **columns)
    assert (reference["function"], reference["names"]) == ("two", ["add"])
    assert reference["setup"] == "import math\nx = 1"


FUNCTION = "import math\n\n{helpers}\n\ndef total(a):\n    return a + 1\n"


@pytest.mark.parametrize("body", ["pass", "...", "'One.'\n    pass"])
def test_a_helper_without_a_body_is_the_programs(rows, written, body):
    prompt = FUNCTION.format(helpers=f"def one():\n    {body}")
    reference = reference_of("humaneval", rows, written, prompt=prompt)
    assert (reference["names"], reference["setup"]) == (["one"], "import math")


def test_only_what_the_tests_use_of_a_prompt_is_set_up_or_wanted(rows, written):
    helpers = (
        "def one():\n    return 1\n\ndef two():\n    pass\n\n"
        "class Number:\n    'A number.'\n\ndef three():\n    print(3)\n"
    )
    prompt = FUNCTION.format(helpers=helpers)
    reference = reference_of("humaneval", rows, written, prompt=prompt)
    assert "names" not in reference
    assert [line for line in reference["setup"].splitlines() if line] == [
        "import math", "def one():", "    return 1", "class Number:", '    """A number."""',
        "def three():", "    print(3)",
    ]  # fmt: skip
    check = "def check(candidate):\n    assert candidate(2) == 3\n"
    unused = reference_of("humaneval", rows, written, prompt=prompt, test=check)
    assert unused.keys() & {"names", "setup"} == set()


@pytest.mark.parametrize(
    ("seconds", "megabytes", "limits"),
    [
        (2, 256.0, {"cpu_s": 2.0, "memory_mb": 256}),
        (0.5, None, {"cpu_s": 0.5}),
        (0, 64, {"memory_mb": 64}),
        ("2 s", 0, None),
    ],
)
def test_limits_that_are_positive_numbers_are_those_of_a_run(
    rows, written, seconds, megabytes, limits
):
    columns = {"time_limit": seconds, "memory_limit": megabytes}
    assert reference_of("codeforces", rows, written, **columns).get("limits") == limits


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
