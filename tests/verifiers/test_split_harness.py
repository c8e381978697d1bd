"""Tests that are code: the program answers through data, and never sees what is expected."""

import pytest

from sandbox.executor import Program
from sandbox.limits import Limits
from sandbox.result import Execution
from verifiers import split_harness
from verifiers.code_outcome import Outcome
from verifiers.split_harness import run_trial

LIMITS = Limits(cpu_s=1.0)
ADD = "def add(a, b=1):\n    return a + b\n"
SECRET = 987654321


@pytest.fixture
def trial(open_box):
    def run(source, tests, **more):
        program = Program(source=source)
        return run_trial(open_box, program, more.pop("function", "add"), tests, LIMITS, **more)

    return run


@pytest.mark.parametrize(
    "tests",
    [
        "assert add(2, 3) == 5",
        "assert add(2, 3) == 5\nassert add(-1) == 0\nassert add(2, b=2) == 4",
        "for n in range(20):\n    assert add(n, n) == 2 * n",
        "assert add(add(1, 2), add(3, 4)) == 10",
        "assert [add(n) for n in (1, 2)] == [2, 3]",
        "assert add((1, 2), (3,)) == (1, 2, 3)",
        "def check(candidate):\n    assert candidate(2, 3) == 5\n",
        "def check(candidate):\n    assert candidate(2, 3) == 5\ncheck(add)",
        "def check(f):\n    assert f(2, 3) == 5\ncheck(candidate)",
        "assert Solution().add(2, 3) == 5",
        "import random\nn = random.randint(0, 10**9)\nassert add(n, 0) == n\nassert add(n, 1) > n",
        "def two():\n    return add(1, 1)\n"
        "class T:\n    def run(self):\n        assert two() == 2\nT().run()",
        "import math\nassert math.isclose(add(0.1, 0.2), 0.3)",
        "try:\n    total = add(1, 2)\nexcept BaseException:\n    total = 0\nassert total == 3",
        "try:\n    add(1, 'x')\nexcept TypeError:\n    pass\nelse:\n    assert False",
    ],
)
def test_a_right_program_passes(trial, tests):
    assert trial(ADD, tests) == Outcome("passed")


@pytest.mark.parametrize(
    "source",
    [
        "def add(a, b=1):\n    return a - b\n",
        "def add(a, b=1):\n    return None\n",
        "def add(a, b=1):\n    raise AssertionError\n",
        "def add(a, b=1):\n    raise StopIteration\n",
        "def add(a, b=1):\n    raise LookupError('x')\n",
        "class _Ask(BaseException): pass\nclass Odd(Exception): pass\n"
        "def add(a, b=1):\n    raise Odd('_Ask')\n",
        "def add(a, b=1):\n    return ['passed']\n",
        "def add(a, b=1):\n    return float('nan')\n",
        "class Sure:\n    def __eq__(self, other): return True\n"
        "def add(a, b=1):\n    return Sure()\n",
        "def add():\n    return 5\n",
        "add = 5\n",
    ],
)
def test_a_wrong_program_fails(trial, source):
    assert trial(source, "assert add(2, 3) == 5").ended == "wrong"
    assert trial(source, "def check(candidate):\n    assert candidate(2, 3) == 5").ended == "wrong"


def test_one_failing_assert_is_enough(trial):
    tests = "assert add(2, 3) == 5\nassert add(2, 3) == 6\nassert add(2, 3) == 5"
    assert trial(ADD, tests).ended == "wrong"


@pytest.mark.parametrize("source", ["def add(a, b)\n    return 5", "import no_such", "x = 1", "y"])
def test_a_program_without_the_function_passes_no_test_that_waits_for_errors(trial, source):
    expects = "try:\n    add(1, 2)\nexcept Exception:\n    pass\nelse:\n    assert False"
    assert trial(source, expects).ended == "error"


def test_the_kind_of_an_error_crosses_and_its_words_do_not(trial):
    tests = (
        "try:\n    add(1, 2)\nexcept ValueError as e:\n    assert 'inside' not in str(e)\n"
        "else:\n    assert False"
    )
    assert trial("def add(a, b):\n    raise ValueError('inside')", tests).ended == "passed"
    assert trial("def add(a, b):\n    raise KeyError('inside')", tests).ended == "wrong"
    assert trial("def add(a, b):\n    return 3", tests).ended == "wrong"
    decode = "def add(a, b):\n    raise UnicodeDecodeError('utf-8', b'', 0, 1, 'inside')"
    assert trial(decode, "try:\n    add(1, 2)\nexcept RuntimeError:\n    pass").ended == "passed"


def test_what_is_expected_never_enters_the_programs_side(trial, open_box):
    tests = f"expected = {SECRET}\nassert add({SECRET - 1}, 1) == expected\nassert add(1, 2) == 3"
    assert trial(ADD, tests).ended == "passed"
    own = [(given, program) for program, given, _ in open_box.seen if program.source == ADD]
    assert [list(given.args) for given, _ in own] == [[SECRET - 1, 1], [1, 2]]
    assert not any(str(SECRET) in repr(one) for one in own)
    assert any(str(SECRET) in repr(given) for _, given, _ in open_box.seen)


def test_arguments_are_those_of_the_moment_of_the_call(trial, open_box):
    tests = (
        "xs = [1]\ntry:\n    n = size(xs)\nexcept BaseException:\n    n = None\n"
        "xs.append(2)\nassert n == 1"
    )
    assert trial("def size(xs):\n    return len(xs)", tests, function="size").ended == "passed"


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ("assert add(1, 2) = 3", "SyntaxError"),
        ("assert sub(add(1, 2), 3) == 0", "NameError"),
        ("import no_such_module\nassert add(1, 2) == 3", "ModuleNotFoundError"),
        ("import sys\nadd(1, 2)\nsys.exit(0)", "SystemExit"),
        ("assert True", "the function is never called"),
        ("def add(a, b):\n    return 5\nassert add(2, 3) == 5", "the function is never called"),
        ("add(lambda: 1, 2)", "the tests pass arguments that are not plain data"),
        ("for n in range(13):\n    assert add(n, 0) == n",
         "the tests call the function more than 12 times"),
        ("import time\nadd(time.perf_counter_ns(), 1)\nadd(1, 2)",
         "calls differ from one run to the next"),
    ],
)  # fmt: skip
def test_tests_that_cannot_be_used_are_our_failure(trial, tests, why, monkeypatch):
    monkeypatch.setattr(split_harness, "MAX_CALLS", 12)
    assert trial(ADD, tests) == Outcome("broken", why)


def test_errors_the_program_raises_are_no_fault_of_the_tests(trial):
    source = "def add(a, b):\n    raise BlockingIOError('x')"
    assert trial(source, "assert add(1, 2) == 3").ended == "wrong"


def test_the_most_calls_there_may_be_are_made(trial, open_box, monkeypatch):
    monkeypatch.setattr(split_harness, "MAX_CALLS", 5)
    assert trial(ADD, "for n in range(5):\n    assert add(n, 0) == n").ended == "passed"
    assert trial(ADD, "for n in range(6):\n    assert add(n, 0) == n").ended == "broken"
    assert sum(program.source == ADD for program, _, _ in open_box.seen) == 5 + 6


def test_setup_comes_before_the_tests_and_cannot_hide_the_program(trial):
    setup = "import math\ndef add(a, b):\n    return 5\nTWO = math.floor(2.5)"
    assert trial(ADD, "assert add(TWO, 1) == 3", setup=setup).ended == "passed"
    assert trial("def add(a, b):\n    return 6", "assert add(2, 3) == 5", setup=setup).ended == (
        "wrong"
    )


def test_a_function_called_check_is_no_check(trial):
    source = "def check(n):\n    return n > 1"
    assert trial(source, "assert check(2)\nassert not check(1)", function="check").ended == "passed"
    assert trial(source, "x = 1", function="check").ended == "broken"


@pytest.mark.parametrize("ended", ["cpu", "wall", "memory", "output", "protocol", "signal"])
def test_how_the_program_dies_is_how_the_trial_ends(trial, open_box, ended):
    open_box.ends[ADD] = ended
    assert trial(ADD, "assert add(1, 2) == 3") == Outcome(ended)


def test_a_failure_of_the_sandbox_is_told_on_either_side(trial, open_box):
    open_box.ends[ADD] = "sandbox_error"
    assert trial(ADD, "assert add(1, 2) == 3") == Outcome("sandbox_error", "so the test says")
    open_box.ends[split_harness._TESTS_SIDE] = "sandbox_error"
    assert trial(ADD, "assert add(1, 2) == 3") == Outcome("sandbox_error", "so the test says")


def test_tests_that_die_are_broken_unless_an_answer_may_have_killed_them(open_box, monkeypatch):
    program = Program(source=ADD)
    died = Execution(ended="memory")
    monkeypatch.setattr(open_box, "run", lambda *a: died)
    found = run_trial(open_box, program, "add", "add(1, 2)", LIMITS)
    assert found == Outcome("broken", "ended memory unasked")
    answers = iter([Execution(ended="ok", value=["call", [1], {}]), Execution(ended="ok"), died])
    monkeypatch.setattr(open_box, "run", lambda *a: next(answers))
    assert run_trial(open_box, program, "add", "add(1, 2)", LIMITS) == Outcome("memory")


def test_the_wall_limit_bounds_the_whole_trial(open_box, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(split_harness.time, "monotonic", lambda: now[0])
    walls = []
    plain = open_box.run

    def slow(program, given, limits):
        walls.append(limits.wall)
        now[0] += 2.5
        return plain(program, given, limits)

    monkeypatch.setattr(open_box, "run", slow)
    found = run_trial(open_box, Program(source=ADD), "add", "assert add(1, 2) == 3", LIMITS)
    assert found == Outcome("wall") and walls == [4.0, 1.5]


def test_an_answer_that_makes_no_sense_is_ours(open_box, monkeypatch):
    monkeypatch.setattr(open_box, "run", lambda *a: Execution(ended="ok", value={"passed": 1}))
    found = run_trial(open_box, Program(source=ADD), "add", "add(1)", LIMITS)
    assert found == Outcome("broken", "the harness lost its place")
