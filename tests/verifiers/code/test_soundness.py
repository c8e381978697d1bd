"""Tests that refuse the reference solution, and checkers that fail, are errors of the data."""

import pytest

from veriloop.sandbox.result import Execution
from veriloop.verifiers.code import soundness
from veriloop.verifiers.code.outcome import Outcome
from veriloop.verifiers.code.reference import CodeReference, worst_seconds
from veriloop.verifiers.code.tests import judge_program

ADD = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"
SOUND = [{"assert": "assert add(2, 3) == 5"}]
LATE = [{"assert": "assert add(2, 3) in (5, -1)\nassert no_such_name(add(1, 1))"}]


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    monkeypatch.setattr(soundness, "_refused", {})


@pytest.fixture
def verdict(open_box):
    def judged(source, **reference):
        return judge_program(open_box, source, CodeReference.read({"function": "add", **reference}))

    return judged


def runs_of(box, source):
    return sum(source in map(str, given.args[3]) for _, given, _ in box.seen)


def test_sound_tests_refuse_a_wrong_program_and_run_the_solution_once(verdict, open_box):
    assert verdict(ADD, tests=SOUND, solution="x = ADD").score == 1.0
    assert runs_of(open_box, "x = ADD") == 0  # nothing has failed
    open_box.seen.clear()
    for _ in range(3):
        result = verdict(WRONG, tests=SOUND, solution=ADD)
        assert (result.score, result.status) == (0.0, "graded")
    assert runs_of(open_box, ADD) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "tests",
    [
        LATE,
        [{"assert": "assert add(2, 3) == 6"}],
        [{"assert": "import sys\nadd(1, 2)\nsys.exit(0)"}],
        [{"assert": "from solution import gone\nassert gone"}],
        [*SOUND, {"assert": "assert add(2, 3) == 6"}],
    ],
)
@pytest.mark.parametrize("scoring", ["all", "share"])
def test_tests_that_the_solution_fails_give_no_verdict_to_any_program(verdict, tests, scoring):
    for source in (WRONG, "def add(a, b): return 5", "x = 1", "def add("):
        result = verdict(source, tests=tests, solution=ADD, scoring=scoring)
        assert (result.score, result.status) == (None, "error")
        assert "the tests refuse the reference solution" in result.detail


def test_without_a_solution_the_program_is_at_fault(verdict):
    assert verdict(ADD, tests=LATE).score == 0.0


def test_another_task_is_checked_by_itself(verdict):
    assert verdict(WRONG, tests=LATE, solution=ADD).status == "error"
    assert verdict(WRONG, tests=SOUND, solution=ADD).score == 0.0
    defined = "def no_such_name(x): return True"
    assert verdict(WRONG, tests=LATE, solution=ADD, setup=defined).score == 1.0


@pytest.mark.parametrize("ended", ["cpu", "wall", "sandbox_error"])
def test_a_solution_that_cannot_finish_decides_nothing(ended):
    reference = CodeReference.read({"function": "add", "tests": SOUND, "solution": ADD})
    sources = []

    def run(program):
        sources.append(program.source)
        return [Outcome(ended)]

    assert not soundness.refuse_solution(reference, run) and sources == [ADD]
    assert soundness._refused == {}


def test_tests_with_data_are_not_checked(verdict, open_box):
    tests = [{"args": [2, 3], "expected": 6}]
    assert verdict(ADD, tests=tests, solution="x = 1").score == 0.0 and len(open_box.seen) == 1


def test_the_time_of_the_solution_is_stated():
    plain = {"function": "add", "tests": SOUND}
    seconds = worst_seconds(plain)
    both = {**plain, "solution": ADD}
    assert worst_seconds(both) == CodeReference.read(both).seconds == 2 * seconds
    assert CodeReference.read(both).program_s == CodeReference.read(plain).seconds == seconds


CHECKER = """
def check(given, output, reference):
    return sum(map(int, output.split())) == int(reference)
"""
BROKEN_CHECKERS = {
    "no check": CHECKER.replace("check", "chek"),
    "no name": CHECKER.replace("sum(", "summ("),
    "no Python": CHECKER.replace("==", "=", 1),
}


def checked_by(checker):
    tests = [{"stdin": "", "expected_stdout": "3"}]
    return CodeReference.read({"tests": tests, "checker": checker})


@pytest.mark.parametrize("checker", BROKEN_CHECKERS.values(), ids=list(BROKEN_CHECKERS))
def test_a_checker_that_breaks_on_the_expected_output_too_is_our_failure(open_box, checker):
    for source in ("print(1, 2)", "print(1, 3)", "print('x')"):
        result = judge_program(open_box, source, checked_by(checker))
        assert (result.status, result.score) == ("error", None)
        assert "the checker fails on the expected output too" in result.detail


class Ending:
    """A sandbox in which every program is right and every checker ends in the same way."""

    backend, tier = "ending", 0

    def __init__(self, ended):
        self.ended = ended

    def run(self, program, invocation, limits):
        return Execution(ended=self.ended)

    def run_all(self, program, invocations, limits):
        return [Execution(ended="ok", stdout=b"3")] * len(invocations)


@pytest.mark.parametrize("ended", ["protocol", "cpu", "memory", "signal", "output"])
def test_a_checker_that_never_returns_is_our_failure(ended):
    """As one that calls sys.exit(0), returns no plain data, or needs more than a program may."""
    result = judge_program(Ending(ended), "x", checked_by(ended))
    assert (result.status, result.score) == ("error", None)
    assert "the checker fails on the expected output too" in result.detail


@pytest.mark.parametrize("ended", ["wall", "sandbox_error"])
def test_what_depends_on_the_machine_decides_nothing_about_a_checker(ended):
    assert not soundness.refuse_expected(ended, checked_by(ended).tests[0], lambda _: ended)
    assert soundness._refused == {}


def test_a_checker_that_reads_the_expected_output_refuses_others_and_is_tried_once(open_box):
    assert judge_program(open_box, "print(1, 2)", checked_by(CHECKER)).score == 1.0
    for _ in range(3):
        result = judge_program(open_box, "print('x')", checked_by(CHECKER))
        assert (result.status, result.score) == ("graded", 0.0)
    outputs = [given.args[1] for program, given, _ in open_box.seen if program.source == CHECKER]
    assert outputs == ["1 2\n", "x\n", "3", "x\n", "x\n"]


class Spent:
    """A sandbox in which the checker raises after all the time of the tests."""

    backend, tier = "spent", 0

    def run(self, program, invocation, limits):
        return Execution(ended="error", cpu_s=1_000.0)

    def run_all(self, program, invocations, limits):
        return [Execution(ended="ok", stdout=b"4")] * len(invocations)


def test_a_checker_that_raises_when_no_time_is_left_has_not_accepted_the_output():
    result = judge_program(Spent(), "x", checked_by(CHECKER))
    assert (result.status, result.score) == ("graded", 0.0)
    assert soundness._refused == {}
