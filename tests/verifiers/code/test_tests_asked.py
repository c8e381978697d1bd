"""What the sandbox is asked to run, and how a response and a case of the suite are read."""

from dataclasses import replace

import pytest

from veriloop.sandbox.limits import Limits
from veriloop.sandbox.result import Execution
from veriloop.sandbox.suite import Case
from veriloop.verifiers.code import tests as code_tests
from veriloop.verifiers.code.outcome import NO_PROGRAM, Outcome
from veriloop.verifiers.code.reference import CodeReference
from veriloop.verifiers.code.tests import judge_program
from veriloop.verifiers.registry import get, judge

ADD = "def add(a, b):\n    return a + b\n"
CALLS = {"function": "add", "tests": [{"args": [1, 2], "expected": 3}]}


@pytest.fixture
def judged(open_box, monkeypatch):
    """Function: the verdict on a response to the verifier's example, which `open_box` runs."""
    monkeypatch.setattr(code_tests, "executor", lambda: open_box)
    problem = get("code_tests").example_problem()
    return lambda response, **reference: judge(
        replace(problem, reference={**problem.reference, **reference}), response
    )


def test_a_source_that_is_no_text_is_sent_to_no_sandbox(open_box):
    result = judge_program(open_box, "x = '\ud800'", CodeReference.read(CALLS))
    assert result.detail.endswith("ended otherwise: 1 error") and open_box.seen == []


def test_the_sandbox_is_asked_for_the_language_of_the_reference(open_box):
    judge_program(open_box, "x", CodeReference.read({**CALLS, "language": "js"}))
    assert [program.language for program, _, _ in open_box.seen] == ["javascript"]


def test_only_faults_of_ours_keep_the_reason_that_the_sandbox_gives():
    class Fails:
        def run_all(self, program, invocations, limits):
            return [Execution(ended=ended, why="its words")]

    for ended, reason in (("error", ""), ("sandbox_error", "its words")):
        reference = CodeReference.read(CALLS)
        outcomes = code_tests._run_tests(Fails(), code_tests.Program(source="x"), reference)
        assert outcomes == [Outcome(ended, reason)]


def test_a_case_of_the_attack_suite_gets_a_reward_and_the_reason_for_it(open_box):
    case = Case(
        file="a.py", source=ADD, kind="function", tests=CALLS["tests"], must="no_reward",
        group="", function="add", language="python", limits=Limits(cpu_s=2.0), run_after="",
        run_beside="", observe=(),
    )  # fmt: skip
    assert code_tests.grade(open_box, case) == (1.0, "1 of 1 tests passed")
    assert open_box.seen[0][2].cpu_s == 2.0
    wrong = code_tests.grade(open_box, replace(case, source=ADD.replace("+", "-")))
    assert wrong == (0.0, "0 of 1 tests passed; ended otherwise: 1 wrong")


def test_a_response_need_not_think(judged):
    assert judged(f"<answer>{ADD}</answer>").score == 1.0


def test_the_language_and_the_function_of_the_reference_say_which_block_is_the_program(judged):
    other = "```python\ndef other(a):\n    return a\n```"
    assert judged(f"```python\n{ADD}```\n{other}").score == 1.0
    shown = "```js\nconst add = (a, b) => a + b\n```\n```python\nprint(add(1, 2))\nx = 1\n```"
    assert judged(shown, language="js").answer == "const add = (a, b) => a + b\n"


def test_a_response_without_a_program_has_the_components_of_one():
    verdict = code_tests.check(get("code_tests").example_problem(), "I do not know.")
    assert (verdict.status, verdict.detail) == ("no_answer", "no program in the response")
    assert verdict.components == NO_PROGRAM
