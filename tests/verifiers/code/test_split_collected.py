"""Which test code runs, and which is refused because no program can pass it."""

import pytest

from veriloop.sandbox.executor import Program
from veriloop.sandbox.limits import Limits
from veriloop.verifiers.code.outcome import Outcome
from veriloop.verifiers.code.split_harness import run_trial

LIMITS = Limits(cpu_s=1.0, wall_s=60.0)
RIGHT = "def add(a, b):\n    return a + b\ndef helper(x):\n    return x\nclass Helper:\n    pass\n"
WRONG = RIGHT.replace("a + b", "2 if (a, b) == (1, 1) else 0")  # right for 1 + 1 alone
CHECK = "def check(candidate):\n    assert candidate(2, 3) == 5\n"
OK = "assert add(1, 1) == 2\n"
BAD = "assert add(2, 3) == 5\n"


@pytest.fixture
def ended(open_box):
    def run(source, tests, **more):
        needed = ["add", *more.pop("names", ())]
        return run_trial(open_box, Program(source=source), needed, tests, LIMITS, **more)

    return run


def method(name, body, decorator=""):
    return f"    {decorator}\n    def {name}(self):\n        {body}"


@pytest.mark.parametrize(
    "tests",
    [
        f"from solution import Helper\n{CHECK}",
        f"{OK}{CHECK}",
        f"if True:\n    def check(candidate):\n        {BAD}{OK}",
        f"{OK}check = lambda candidate: 1 / (candidate(2, 3) == 5)",
        f"{CHECK}if __name__ == '__main__':\n    check(add)\n{OK}",
        f"def test_a():\n    {OK}{CHECK}",
        f"def test1():\n    {BAD}def test_b():\n    {OK}",
        f"def testb():\n    {BAD}{OK}",
        f"class Base:\n{method('test_b', BAD)}class TestX(Base):\n    pass\n{OK}",
        f"class TestX:\n    class TestInner:\n        def test(self):\n            {BAD}{OK}",
        f"class TestX:\n    def test(s):\n        {BAD}{OK}",
        f"import unittest\nclass T(unittest.TestCase):\n    def test(s):\n        {BAD}{OK}",
        f"class TestX:\n    @staticmethod\n    def test_a():\n        {BAD}{OK}",
        f"class TestX:\n    @classmethod\n    def test_a(cls):\n        {BAD}{OK}",
        f"import unittest\nclass Base(unittest.TestCase):\n{method('test_b', BAD)}"
        f"class AddCase(Base):\n{method('test_a', OK)}",
        "def test_sum(a, b):\n    assert add(a, b) == a + b\ntest_sum(1, 1)\ntest_sum(2, 3)",
    ],
)
def test_all_test_code_runs(ended, tests):
    assert ended(RIGHT, tests) == Outcome("passed")
    assert ended(WRONG, tests).ended == "wrong"


def test_a_check_runs_after_a_declared_helper_was_called(ended):
    tests = f"assert helper(1) == 1\n{CHECK}"
    assert ended(RIGHT, tests, names=["helper"]) == Outcome("passed")
    assert ended(WRONG, tests, names=["helper"]).ended == "wrong"


def test_a_check_that_the_tests_call_is_not_called_again(ended):
    tests = (
        "seen = []\ndef check(f):\n    seen.append(f(1, 1))\n    assert len(seen) == 1\ncheck(add)"
    )
    assert ended(RIGHT, tests) == Outcome("passed")


@pytest.mark.parametrize(
    ("setup", "tests"),
    [
        ("", f"def check(actual, wanted):\n    assert actual == wanted\n{OK}"),
        ("def check(x):\n    return x > 0", OK),
        ("def test_prime(n):\n    return n > 1", OK),
        ("def testing(n):\n    return n > 1", OK),
    ],
)
def test_helpers_are_not_taken_for_tests(ended, setup, tests):
    assert ended(RIGHT, tests, setup=setup) == Outcome("passed")


COROUTINE = "a test is a coroutine or a generator"


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        (f"async def test_b():\n    {BAD}", COROUTINE),
        (f"async def check(candidate):\n    {BAD}", COROUTINE),
        (f"def test_b():\n    {BAD}    yield", COROUTINE),
        (f"class TestX:\n    async def test_b(self):\n        {BAD}", COROUTINE),
        (f"class B:\n    async def test_b(self):\n        {BAD}class TestX(B): pass\n", COROUTINE),
        (
            f"import asyncio\nasync def test_b():\n    {BAD}"
            "if __name__ == '__main__':\n    asyncio.run(test_b())\n",
            COROUTINE,
        ),
        ("def test_b(a):\n    pass\n", "unknown fixture 'a'"),
        ("import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n    add(1, 1)\n",
         "the tests redirect the program's output"),
        ("import sys, io\nsys.stdout = io.StringIO()\n", "the tests replace sys.stdout"),
        ("from unittest.mock import patch\nwith patch('builtins.input', lambda: '1'):\n    pass\n",
         "the tests patch what the program uses"),
        ("from unittest import mock\n@mock.patch('sys.stdout')\ndef test_b(out):\n    pass\n",
         "the tests patch what the program uses"),
        ("import unittest.mock\nunittest.mock.patch.object(print, 'x')\n",
         "the tests patch what the program uses"),
        ("import warnings\nwith warnings.catch_warnings(record=True) as w:\n    pass\n",
         "the tests record the program's warnings"),
        ("import pytest\n@pytest.mark.xfail\ndef test_b():\n    assert False\n",
         "a failure is expected"),
        ("import unittest\nclass T(unittest.TestCase):\n    @unittest.expectedFailure\n"
         "    def test_b(self):\n        assert False\n", "a failure is expected"),
    ],
)  # fmt: skip
def test_tests_that_no_program_can_pass_are_refused_after_an_answer_too(ended, tests, why):
    for part in (tests, OK + tests):
        assert ended(RIGHT, part) == Outcome("broken", why)


def test_tests_that_are_marked_to_be_left_out_do_not_run(ended):
    fail = "assert add(1, 1) == 3"
    tests = (
        "import pytest, unittest\n"
        f"@pytest.mark.skip\ndef test_a():\n    {fail}\n"
        f"@pytest.mark.skip(reason='x')\nclass TestX:\n{method('test_a', fail)}\n"
        f"@pytest.mark.skipif(True, reason='x')\ndef test_b():\n    {fail}\n"
        f"class TestY:\n{method('test_a', fail, '@pytest.mark.skip')}\n"
        f"class T(unittest.TestCase):\n{method('test_a', fail, '@unittest.skip(None)')}\n"
        f"{method('test_b', OK)}\n"
    )
    assert ended(RIGHT, tests) == Outcome("passed")
    runs = "import pytest\n@pytest.mark.skipif(False, reason='x')\ndef test_a():\n    "
    assert ended(WRONG, runs + BAD).ended == "wrong"


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        (f"x = None\nx.foo\n{BAD}", "AttributeError"),
        (f"assert 1 == 2\n{BAD}", "AssertionError"),
        (f"class TestX:\n    def __init__(self, x): pass\n{method('test_a', BAD)}", "TypeError"),
        ("from solution import Helper\n", "the function is never called"),
    ],
)
def test_any_fault_before_the_first_answer_is_ours(ended, tests, why):
    assert ended(RIGHT, tests) == Outcome("broken", why)
    assert ended(WRONG, tests) == Outcome("broken", why)


def test_setup_and_teardown_surround_each_test(ended):
    tests = """
log = []
def setup_module(module): log.append('module')
def setup_function(function): log.append(function.__name__)
def teardown_function(): log.append('down')
def test_first():
    assert log == ['module', 'test_first'] and add(1, 1) == 2
class TestX:
    @classmethod
    def setup_class(cls): cls.two = 2
    def setup_method(self, method): self.name = method.__name__
    def teardown_method(self): log.append(self.name)
    def test_a(self): assert add(1, 1) == self.two and self.name == 'test_a'
    def test_b(self): assert log[-1] == 'test_a' and self.name == 'test_b'
class TestPlain:
    def setup(self): self.three = 3
    def test_a(self): assert add(1, 2) == self.three and log[2] == 'down'
class TestUnittest:
    def setUp(self): self.three = 3
    def tearDown(self): log.append('end')
    def test_a(self): assert add(1, 2) == self.three
    def test_b(self): assert log[-1] == 'end'
class TestOwn:
    def setup(self, n): return n
    def test_a(self): assert add(1, 2) == self.setup(3)
"""
    assert ended(RIGHT, tests) == Outcome("passed")
