"""The verdict on a program: what its tests said, what was ours to answer for, and nothing else."""

import dataclasses
import importlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.clock import Clock
from veriloop.data.problem import Problem
from veriloop.sandbox.executor import Stdin
from veriloop.sandbox.result import Execution
from veriloop.verifiers.code import budget
from veriloop.verifiers.code import tests as code_tests
from veriloop.verifiers.code.budget import HOST_PATIENCE
from veriloop.verifiers.code.outcome import NO_PROGRAM, Outcome, to_verdict
from veriloop.verifiers.code.reference import CodeReference
from veriloop.verifiers.code.tests import judge_program
from veriloop.verifiers.registry import get, judge, seconds_for

ADD = "def add(a, b):\n    return a + b\n"
PARTLY = "def add(a, b):\n    return a + b if b < 4 else 0\n"
SECRET = 123456789
FUNCTION = {
    "function": "add",
    "tests": [{"args": [n, n + 1], "expected": 2 * n + 1} for n in range(6)],
}
STDIN = {"tests": [{"stdin": f"{n} 1\n", "expected_stdout": f"{n + 1}\n"} for n in range(4)]}
SCRIPT = "a, b = map(int, input().split())\nprint(a + b)\n"


@pytest.fixture
def verdict(open_box):
    def reach(source, reference):
        return judge_program(open_box, source, CodeReference.read(reference))

    return reach


class Scripted:
    """An executor whose runs end as listed; it executes nothing."""

    backend, tier = "scripted", 0

    def __init__(self, *ends):
        self.ends = list(ends)
        self.limits = []

    def run(self, program, invocation, limits):
        self.limits.append(limits)
        end = self.ends.pop(0)
        return end if isinstance(end, Execution) else Execution(ended=end, value=1)

    def run_all(self, program, invocations, limits):
        return [self.run(program, call, limits) for call in invocations]


@pytest.mark.parametrize(("source", "reference"), [(ADD, FUNCTION), (SCRIPT, STDIN)])
def test_a_right_program_scores_one(verdict, source, reference):
    result = verdict(source, reference)
    assert (result.score, result.status, result.answer) == (1.0, "graded", source)
    assert result.components == {
        "all_passed": 1.0, "share_passed": 1.0, "share_out_of_time": 0.0, "share_crashed": 0.0
    }  # fmt: skip
    assert result.detail == f"{len(reference['tests'])} of {len(reference['tests'])} tests passed"


@pytest.mark.parametrize(
    ("source", "reference", "detail"),
    [
        (PARTLY, FUNCTION, "3 of 6 tests passed; ended otherwise: 3 wrong"),
        ("def add(a, b:", FUNCTION, "0 of 6 tests passed; ended otherwise: 1 error"),
        ("x = '\ud800'", FUNCTION, "0 of 6 tests passed; ended otherwise: 1 error"),
        ("1 // 0", STDIN, "0 of 4 tests passed; ended otherwise: 1 error"),
        ("print(2)", STDIN, "0 of 4 tests passed; ended otherwise: 1 wrong"),
    ],
)
def test_all_or_nothing_scores_zero_at_the_first_failure(verdict, source, reference, detail):
    result = verdict(source, reference)
    assert (result.score, result.status) == (0.0, "graded")
    assert result.detail == detail and result.components["all_passed"] == 0.0


def test_a_share_is_the_share_of_all_tests(verdict):
    result = verdict(PARTLY, {**FUNCTION, "scoring": "share"})
    assert result.score == 3 / 6 == result.components["share_passed"]
    assert result.detail == "3 of 6 tests passed; ended otherwise: 3 wrong"
    broken = verdict("def add(a, b):\n    return a + b if b < 2 else 1 // 0", {
        **FUNCTION, "scoring": "share"
    })  # fmt: skip
    assert broken.score == 1 / 6 and broken.components["share_crashed"] == 5 / 6


def test_batches_double_and_stop_where_the_verdict_is_certain(verdict, open_box):
    many = {**FUNCTION, "tests": [{"args": [n, 0], "expected": n} for n in range(20)]}
    assert verdict(ADD, many).score == 1.0 and open_box.batches == [1, 2, 4, 8, 5]
    open_box.batches.clear()
    assert verdict("def add(a, b):\n    return a if a < 2 else 0", many).score == 0.0
    assert open_box.batches == [1, 2]
    open_box.batches.clear()
    assert verdict("def add(a, b):\n    return 0", {**many, "scoring": "share"}).score == 1 / 20
    assert open_box.batches == [1, 2, 4, 8, 5]


def test_expected_values_never_enter_the_sandbox(verdict, open_box):
    reference = {
        "function": "add",
        "tests": [{"args": [SECRET - 5, 5], "expected": SECRET}] * 3,
    }
    assert verdict(ADD, reference).score == 1.0 and len(open_box.seen) == 3
    verdict(SCRIPT, {"tests": [{"stdin": "1 2", "expected_stdout": str(SECRET)}]})
    assert str(SECRET) not in repr(open_box.seen)


def test_the_verdict_tells_nothing_of_inputs_outputs_and_expectations(verdict):
    source = f"import sys\ndef add(a, b):\n    print({SECRET})\n    raise ValueError({SECRET})"
    reference = {"function": "add", "tests": [{"args": [777001, 2], "expected": 777003}]}
    detail = verdict(source, reference).detail
    assert detail == "0 of 1 tests passed; ended otherwise: 1 error"


@pytest.mark.parametrize("ended", ["cpu", "wall"])
def test_out_of_time_everywhere_is_a_timeout(ended):
    result = judge_program(Scripted(ended), "x", CodeReference.read(FUNCTION))
    assert (result.score, result.status) == (0.0, "timeout")
    assert result.components["share_out_of_time"] == 1 / 6
    share = CodeReference.read({**FUNCTION, "scoring": "share"})
    result = judge_program(Scripted(*[ended] * 6), "x", share)
    assert (result.score, result.status) == (0.0, "timeout")
    assert result.components["share_out_of_time"] == 1.0


def test_out_of_time_somewhere_is_graded():
    reference = CodeReference.read({**FUNCTION, "scoring": "share"})
    result = judge_program(Scripted("ok", *["wall"] * 5), "x", reference)
    assert (result.score, result.status) == (1 / 6, "graded")
    result = judge_program(Scripted("error", *["cpu"] * 5), "x", reference)
    assert (result.score, result.status) == (0.0, "graded")


@pytest.mark.parametrize("ended", ["error", "signal", "memory", "output", "protocol"])
def test_every_other_way_to_die_is_graded_zero(ended):
    result = judge_program(Scripted(ended), "x", CodeReference.read(FUNCTION))
    assert (result.score, result.status) == (0.0, "graded")
    assert result.components["share_crashed"] == 1 / 6


@pytest.mark.parametrize("scoring", ["all", "share"])
def test_one_failure_of_the_sandbox_is_no_verdict(scoring):
    reference = CodeReference.read({**FUNCTION, "scoring": scoring})
    lost = Execution(ended="sandbox_error", why="the zygote is gone")
    box = Scripted("ok", "ok", lost, "ok")
    if scoring == "all":
        reference = CodeReference.read({**FUNCTION, "tests": [{"args": [], "expected": 1}] * 6})
    result = judge_program(box, "x", reference)
    assert (result.score, result.status) == (None, "error")
    assert result.detail.startswith("sandbox_error: the zygote is gone; ")
    assert len(box.ends) == 1  # nothing was run after the batch


def test_all_statuses_have_the_same_components():
    results = [
        to_verdict([Outcome(ended)], tests=2, scoring="share", answer="")
        for ended in ("passed", "wrong", "cpu", "sandbox_error", "broken", "signal", "no_time")
    ]
    assert {frozenset(result.components) for result in results} == {frozenset(NO_PROGRAM)}
    assert [result.status for result in results] == [
        "graded", "graded", "timeout", "error", "error", "graded", "timeout"
    ]  # fmt: skip
    assert all(0.0 <= part <= 1.0 for result in results for part in result.components.values())


def test_long_programs_are_cut_in_the_verdict_alone(verdict):
    source = "#" * 10_000 + "\n" + ADD
    result = verdict(source, FUNCTION)
    assert result.score == 1.0 and result.answer == "#" * 4_000


TWENTY = {
    "function": "f",
    "tests": [{"args": [], "expected": 1}] * 20,
    "limits": {"cpu_s": 1.0, "wall_s": 3.0},
    "total_s": 10.0,
    "scoring": "share",
}


class Timed(Scripted):
    """Runs that use all CPU time of their wall limit (`cpu`), or all of it on the clock."""

    def __init__(self, clock, *ends, cpu):
        super().__init__(*ends)
        self.clock, self.cpu = clock, cpu

    def run(self, program, invocation, limits):
        self.clock.now += limits.wall
        done = super().run(program, invocation, limits)
        return replace(done, cpu_s=limits.wall if self.cpu else 0.001)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock(50.0)
    monkeypatch.setattr(budget, "time", clock)
    return clock


def test_all_tests_together_have_a_budget_of_cpu_time(clock):
    box = Timed(clock, *["ok"] * 20, cpu=True)
    result = judge_program(box, "x", CodeReference.read(TWENTY))
    assert [limit.wall for limit in box.limits] == [3.0, 3.0, 3.0, 1.0]
    assert clock.now == 60.0 and result.score == 4 / 20 and result.status == "graded"
    assert result.components["share_out_of_time"] == 16 / 20
    assert result.detail == "4 of 20 tests passed; ended otherwise: 16 no_time"


def test_time_on_the_clock_counts_three_times_less_and_is_a_timeout(clock):
    box = Timed(clock, *["ok"] * 20, cpu=False)
    result = judge_program(box, "x", CodeReference.read(TWENTY))
    assert clock.now == pytest.approx(80.0)  # what the pool allows for
    assert result.detail == "10 of 20 tests passed; ended otherwise: 10 wall"
    box = Timed(clock, *["ok"] * 20, cpu=False)
    result = judge_program(box, "x", CodeReference.read({**TWENTY, "scoring": "all"}))
    assert (result.status, result.score) == ("timeout", 0.0)


def test_a_busy_host_does_not_fail_a_right_program(clock):
    """Each run waits for a processor for twice the wall limit of all tests divided by them."""

    class Busy(Scripted):
        def run(self, program, invocation, limits):
            clock.now += 1.4
            return replace(super().run(program, invocation, limits), cpu_s=0.01, wall_s=1.4)

    result = judge_program(Busy(*["ok"] * 20), "x", CodeReference.read(TWENTY))
    assert result.score == 1.0 and clock.now == pytest.approx(78.0)


def test_a_run_without_measured_cpu_time_counts_with_its_wall_time(clock):
    runs = [Execution(ended="ok", value=1, wall_s=3.0)] * 20
    result = judge_program(Scripted(*runs), "x", CodeReference.read(TWENTY))
    assert result.detail == "4 of 20 tests passed; ended otherwise: 16 no_time"


def test_a_checker_gets_half_of_the_time_that_is_left(clock):
    box = Timed(clock, "ok", Execution(ended="ok", value=True), "wall", cpu=True)
    reference = CodeReference.read(
        {**FUNCTION, "checker": "x", "limits": {"wall_s": 3.0}, "total_s": 8.0}
    )
    judge_program(box, "x", reference)
    assert [limit.wall for limit in box.limits] == [3.0, 3.0, 1.0] and clock.now <= 58.0


def test_a_checker_that_fails_is_tried_on_the_expected_output_within_the_time_that_is_left(clock):
    box = Timed(clock, "ok", "error", "error", cpu=True)
    reference = CodeReference.read(
        {**FUNCTION, "tests": FUNCTION["tests"][:1], "checker": "x", "limits": {"wall_s": 3.0},
         "total_s": 7.5}
    )  # fmt: skip
    assert judge_program(box, "x", reference).status == "error"
    assert [limit.wall for limit in box.limits] == [3.0, 3.0, 1.5]


@pytest.mark.parametrize(
    "change", [{}, {"limits": {"cpu_s": 2.0}}, {"limits": {"wall_s": 0.5}}, {"total_s": 7.0},
               {"limits": None}, {"total_s": 0.0, "limits": {"cpu_s": 1.0}}],
)  # fmt: skip
def test_the_verifier_states_the_seconds_it_may_take(change):
    reference = {**FUNCTION, **change}
    problem = Problem(id="x", prompt="", verifier="code_tests", reference=reference)
    assert seconds_for(problem) == CodeReference.read(reference).seconds > 0.0
    problem = Problem(id="x", prompt="", verifier="code_tests", reference={"limits": {"cpu": 1}})
    assert seconds_for(problem) == 0.0


def test_the_seconds_that_are_stated_hold_the_time_to_compile():
    reference = {"tests": [{"stdin": "", "expected_stdout": ""}], "total_s": 7.0}
    for language in ("python", "js", "c", "c++"):
        in_language = {**reference, "language": language}
        problem = Problem(id="x", prompt="", verifier="code_tests", reference=in_language)
        assert seconds_for(problem) == CodeReference.read(in_language).seconds
        assert (seconds_for(problem) > 21.0) == (language in ("c", "c++"))


def test_by_default_all_tests_together_get_ten_walls_of_cpu_time_and_three_times_the_clock():
    for change, work_s in (
        ({"limits": {"wall_s": 3.0}}, 30.0),
        ({"limits": {"cpu_s": 1.0}}, 40.0),
        ({"total_s": 7}, 7),
    ):
        reference = CodeReference.read({**FUNCTION, **change})
        assert (reference.work_s, reference.seconds) == (work_s, HOST_PATIENCE * work_s)


CHECKER = """
def check(given, output, reference):
    if isinstance(given, str):
        return sum(map(int, output.split())) == int(reference)
    return sorted(output) == sorted(reference) and given[0] == 3
"""


def test_a_special_checker_sees_input_output_and_reference(verdict, open_box):
    reference = {
        "tests": [{"stdin": "3\n", "expected_stdout": "3"}],
        "checker": CHECKER,
    }
    assert verdict("print(1, 2)", reference).score == 1.0
    assert verdict("print(1, 1)", reference).score == 0.0
    checked = [given for program, given, _ in open_box.seen if program.source == CHECKER]
    assert [list(given.args) for given in checked] == [["3\n", "1 2\n", "3"], ["3\n", "1 1\n", "3"]]
    called = {"function": "f", "tests": [{"args": [3], "expected": [1, 2]}], "checker": CHECKER}
    assert verdict("def f(n):\n    return [2, 1]", called).score == 1.0
    assert verdict("def f(n):\n    return [2, 2]", called).score == 0.0


def test_a_checker_that_breaks_on_an_output_has_not_accepted_it(verdict):
    reference = {"tests": [{"stdin": "", "expected_stdout": "3"}], "checker": CHECKER}
    assert verdict("print('x')", reference).score == 0.0
    not_text = Scripted(Execution(ended="ok", stdout=b"\xff"))
    assert judge_program(not_text, "x", CodeReference.read(reference)).score == 0.0
    for n, ended in enumerate(("error", "cpu", "wall", "memory", "signal", "output", "protocol")):
        reference["tests"] = [{"stdin": "", "expected_stdout": f"{n}"}]  # checkers are tried once
        right = Execution(ended="ok", value=True)
        result = judge_program(Scripted("ok", ended, right), "x", CodeReference.read(reference))
        assert (result.score, result.status) == (0.0, "graded"), ended


@pytest.mark.parametrize("value", [1, "True", None, [True], 1.0])
def test_a_checker_that_returns_no_bool_is_our_failure(value):
    reference = CodeReference.read({**FUNCTION, "checker": "x"})
    result = judge_program(Scripted("ok", Execution(ended="ok", value=value)), "x", reference)
    assert result.status == "error" and "checker must return a bool" in result.detail


def test_a_checker_whose_sandbox_fails_is_our_failure():
    reference = CodeReference.read({**FUNCTION, "checker": "x"})
    lost = Execution(ended="sandbox_error", why="gone")
    assert judge_program(Scripted("ok", lost), "x", reference).status == "error"


def test_assert_tests_are_judged_apart(verdict):
    tests = [{"assert": f"assert add({n}, TWO) == {n + 2}"} for n in range(3)]
    reference = {"function": "add", "tests": tests, "setup": "TWO = 2"}
    assert verdict(ADD, reference).score == 1.0
    assert verdict(PARTLY, reference).score == 1.0
    wrong = verdict("def add(a, b):\n    return 3", {**reference, "scoring": "share"})
    assert wrong.score == 1 / 3 and wrong.detail.endswith("2 wrong")
    lacks = verdict(ADD, {**reference, "names": ["sub"]})
    assert (lacks.score, lacks.status) == (0.0, "graded") and lacks.detail.endswith("1 error")
    assert verdict(ADD + "sub = add", {**reference, "names": ["sub"]}).score == 1.0
    broken = verdict(ADD, {"function": "add", "tests": [{"assert": "assert sub(1) = 0"}]})
    assert broken.status == "error" and "broken: SyntaxError" in broken.detail


def test_mode_tolerance_preload_and_keywords_are_passed_on(verdict, open_box):
    reference = {
        "tests": [{"stdin": "", "expected_stdout": "1.0 2"}],
        "mode": "numbers", "tolerance": 0.1, "preload": ["math"],
        "limits": {"cpu_s": 2.5, "memory_mb": 99},
    }  # fmt: skip
    assert verdict("print(1.05)\nprint(2)", reference).score == 1.0
    assert verdict("print(1.2)\nprint(2)", reference).score == 0.0
    program, given, limits = open_box.seen[0]
    assert program.preload == ("math",) and isinstance(given, Stdin)
    assert (limits.cpu_s, limits.memory_mb) == (2.5, 99)
    named = {"function": "add", "tests": [{"args": [1], "kwargs": {"b": 2}, "expected": 3}]}
    assert verdict(ADD, named).score == 1.0


def test_input_bytes_survive_the_trip():
    reference = CodeReference.read({"tests": [
        {"stdin": "\udcff\n", "expected_stdout": ""}, {"stdin": b"\xfe", "expected_stdout": ""}
    ]})  # fmt: skip
    assert [test.invocation.data for test in reference.tests] == [b"\xff\n", b"\xfe"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tests": []}, "at least one test, got none"),
        ({"test": []}, r"no reference key 'test'. Did you mean 'tests'\?"),
        ({"scorin": "all"}, "Did you mean 'scoring'"),
        ({"scoring": "some"}, "no scoring 'some'"),
        ({"mode": "token"}, r"no mode 'token'. Did you mean 'tokens'\?"),
        ({"limits": {"cpu": 1}}, r"no limit 'cpu'. Did you mean 'cpu_s'\?"),
        ({"limits": {"cpu_s": 0}}, "Limits.cpu_s must be positive, got 0"),
        ({"function": ""}, "`function` must be an identifier, got ''"),
        ({"function": None}, "`function` must be an identifier, got ''"),
        ({"function": "a.b"}, "`function` must be an identifier, got 'a.b'"),
        ({"tests": [{"args": [1]}]}, r"must have one of the key sets .*, got \['args'\]"),
        ({"tests": [{"args": [], "expected": 1, "stdin": ""}]}, "no test key 'stdin'"),
        ({"tests": [{"assert": "x"}, {"args": [], "expected": 1}]}, "cannot be mixed"),
        ({"tests": [{"assert": "x"}], "checker": "y"}, "`checker` cannot be combined"),
        ({"tests": [{"assert": "x"}], "language": "cpp"}, "require the language python, got 'cpp'"),
        ({"tests": [{"assert": "x"}], "names": ["a b"]}, "`names` must be identifiers, got 'a b'"),
        ({"tests": [{"assert": "x"}], "names": "gcd"}, "`names` must be a list, got 'gcd'"),
        ({"tests": [{"assert": "x"}], "names": [1]}, "`names` must be a list of strings, got 1"),
        ({"tests": [{"assert": 1}]}, "`assert` must be a string, got 1"),
        ({"tests": [{"args": "[2]", "expected": 1}]}, r"`args` must be a list, got '\[2\]'"),
        ({"tests": [{"args": {"a": 2}, "expected": 1}]}, "`args` must be a list, got {'a': 2}"),
        ({"tests": [{"args": 2, "expected": 1}]}, "`args` must be a list, got 2"),
        ({"tests": [{"stdin": 2, "expected_stdout": "3"}]}, "`stdin` must be a string, got 2"),
        ({"tests": [{"stdin": "2", "expected_stdout": 3}]}, "`expected_stdout` must be a string"),
        ({"tests": "[]"}, r"`tests` must be a list, got '\[\]'"),
        ({"tests": ["assert add(1, 2) == 3"]}, "`tests` must be a list of objects, got 'assert"),
        ({"preload": "math"}, "`preload` must be a list, got 'math'"),
        ({"function": ["add"]}, r"`function` must be a string, got \['add'\]"),
        ({"limits": [1]}, r"`limits` must be an object, got \[1\]"),
        ({"tolerance": "1e-6"}, "`tolerance` must be a number, got '1e-6'"),
    ],
)
def test_a_reference_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        CodeReference.read({**FUNCTION, **change})


def test_a_reference_without_tests_names_what_it_has():
    with pytest.raises(ValueError, match=r"needs `tests`, got \['function'\]"):
        CodeReference.read({"function": "add"})


@pytest.fixture
def opened(monkeypatch):
    """What backends are asked for, without any: (setting, slots), one per opening."""
    requests = []

    class Pretended:
        def __init__(self, setting, slots):
            requests.append((setting, slots))

        def close(self):
            requests.append("closed")

    monkeypatch.setattr(code_tests, "open_backend", Pretended)
    monkeypatch.delenv("VERILOOP_SANDBOX", raising=False)
    monkeypatch.setattr(code_tests, "_executors", {})
    at_exit = SimpleNamespace(register=lambda close: requests.append("at exit"))
    monkeypatch.setattr(code_tests, "atexit", at_exit)
    return requests


def test_the_executor_is_opened_once_per_process_and_closed_at_exit(opened, monkeypatch):
    first = code_tests.executor()
    assert code_tests.executor() is first and opened == [("namespace", 1), "at exit"]
    # for this module only: threads of other tests look at their own processes
    monkeypatch.setattr(code_tests, "os", SimpleNamespace(getpid=lambda: -1))
    assert code_tests.executor() is not first and len(opened) == 4


def test_the_environment_names_another_sandbox(opened, monkeypatch):
    for setting, request in (
        ("reduced", "reduced"),
        ("remote:http://x", "remote:http://x"),
        ("", "namespace"),
    ):
        monkeypatch.setenv("VERILOOP_SANDBOX", setting)
        monkeypatch.setattr(code_tests, "_executors", {})
        opened.clear()
        code_tests.executor()
        assert opened[0] == (request, 1)


def test_a_sandbox_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setattr(code_tests, "_executors", {})
    monkeypatch.setenv("VERILOOP_SANDBOX", "1")
    with pytest.raises(
        ValueError, match=r"no backend .1.\. Known: auto, namespace, reduced, docker, remote"
    ):
        code_tests.executor()


def test_a_machine_that_cannot_isolate_gives_errors_and_runs_nothing(monkeypatch):
    def refused():
        raise RuntimeError("tier 1 is not to be had here\nsandbox: no tier: refused")

    monkeypatch.setattr(code_tests, "executor", refused)
    verifier = get("code_tests")
    for response in (verifier.example.accepts, verifier.example.rejects[0]):
        result = judge(verifier.example_problem(), response)
        assert (result.score, result.status) == (None, "error")
        assert "tier 1 is not to be had here" in result.detail
    assert judge(verifier.example_problem(), "no program").status == "no_answer"


def test_a_response_is_judged_in_this_process_executor(monkeypatch, open_box):
    monkeypatch.setattr(code_tests, "executor", lambda: open_box)
    verifier = get("code_tests")
    assert judge(verifier.example_problem(), verifier.example.accepts).score == 1.0
    assert [
        judge(verifier.example_problem(), bad).score for bad in verifier.example.rejects[:3]
    ] == [0.0] * 3
    prefilled = dataclasses.replace(verifier.example_problem(), facts={"prefilled_think": True})
    assert judge(prefilled, "<answer>x = 1</answer>").status == "no_answer"


def test_a_reference_of_ours_that_is_wrong_is_an_error_verdict(monkeypatch, open_box):
    monkeypatch.setattr(code_tests, "executor", lambda: open_box)
    bad = Problem(id="x/1", prompt="", verifier="code_tests", reference={"tests": []})
    result = judge(bad, "<answer>x = 1</answer>")
    assert result.status == "error" and "at least one test" in result.detail


@pytest.fixture(scope="module")
def real_box():
    pool = importlib.import_module("veriloop.sandbox.namespace.pool")
    with pool.NamespaceExecutor(slots=1) as box:
        yield box


@pytest.mark.slow
def test_in_the_real_sandbox_programs_get_their_verdicts(real_box):
    def result(source, reference):
        verdict = judge_program(real_box, source, CodeReference.read(reference))
        return verdict.score, verdict.status

    short = {"limits": {"cpu_s": 0.5, "memory_mb": 128}}
    assert result(ADD, FUNCTION) == (1.0, "graded")
    assert result(SCRIPT, STDIN) == (1.0, "graded")
    assert result(PARTLY, {**FUNCTION, "scoring": "share"}) == (0.5, "graded")
    assert result("while True: pass", {**STDIN, **short}) == (0.0, "timeout")
    assert result("x = [0] * 10**9", {**STDIN, **short}) == (0.0, "graded")
    assert result("def add(a, b", FUNCTION) == (0.0, "graded")
    asserts = [{"assert": f"assert add({n}, 1) == {n + 1}"} for n in range(3)]
    assert result(ADD, {"function": "add", "tests": asserts}) == (1.0, "graded")
    assert result("def add(a, b): return 1", {"function": "add", "tests": asserts})[0] == 0.0
    expects = "try:\n    add(1, 'x')\nexcept TypeError:\n    pass\nelse:\n    assert False"
    assert result(ADD, {"function": "add", "tests": [{"assert": expects}]}) == (1.0, "graded")
    unsent = [{"assert": "assert add('\\ud800', '') == ''"}]
    assert result(ADD, {"function": "add", "tests": unsent}) == (None, "error")
    checked = {"tests": [{"stdin": "3\n", "expected_stdout": "3"}], "checker": CHECKER}
    assert result("print(1, 2)", checked) == (1.0, "graded")
    assert result("print(1, 3)", checked) == (0.0, "graded")
