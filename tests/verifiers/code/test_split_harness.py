"""The conversation of tests and program: who speaks, what crosses, who answers for its end."""

from dataclasses import replace

import pytest

from tests.clock import Clock
from veriloop.sandbox.executor import Program
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.result import Execution
from veriloop.verifiers.code import budget, split_code, split_replay
from veriloop.verifiers.code.outcome import Outcome
from veriloop.verifiers.code.split.protocol import digest
from veriloop.verifiers.code.split_harness import run_trial

LIMITS = Limits(cpu_s=1.0, wall_s=60.0)
ADD = "def add(a, b=1):\n    return a + b\n"
SECRET = 987654321


def side(given):
    """ "trial" or "replay", and what it has heard."""
    return given.args[2], given.args[3][-1]


class Scripted:
    """An executor whose runs end as listed, the last one again and again."""

    backend, tier = "scripted", 0

    def __init__(self, *ends):
        self.ends = list(ends)
        self.limits = []

    def run(self, program, invocation, limits):
        self.limits.append(limits)
        return self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]


def told(*messages):
    return Execution(
        ended="ok", value=[len(messages), digest(messages[:-1]), messages[-1]], cpu_s=0.25
    )


ASK = ["ask", "function", [["add", [0], [1]], [["tuple", None, 1], ["dict", None]]]]
FIVE = ["returned", [[5], []]]


@pytest.fixture
def trial(open_box):
    def run(source, tests, **more):
        program = Program(source=source)
        return run_trial(open_box, program, [more.pop("function", "add")], tests, LIMITS, **more)

    return run


@pytest.mark.slow
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


def test_an_error_crosses_with_its_words(trial):
    tests = (
        "try:\n    add(1, 2)\nexcept ValueError as e:\n    assert str(e) == 'inside'\n"
        "else:\n    assert False"
    )
    assert trial("def add(a, b):\n    raise ValueError('inside')", tests).ended == "passed"
    assert trial("def add(a, b):\n    raise ValueError('other')", tests).ended == "wrong"
    assert trial("def add(a, b):\n    raise KeyError('inside')", tests).ended == "wrong"
    assert trial("def add(a, b):\n    return 3", tests).ended == "wrong"
    decode = "def add(a, b):\n    raise UnicodeDecodeError('utf-8', b'', 0, 1, 'inside')"
    assert trial(decode, "try:\n    add(1, 2)\nexcept UnicodeError:\n    pass").ended == "passed"


def test_what_is_expected_never_enters_the_programs_side(trial, open_box):
    tests = f"expected = {SECRET}\nassert add({SECRET - 1}, 1) == expected\nassert add(1, 2) == 3"
    assert trial(ADD, tests).ended == "passed"
    sides = [(side(given)[0], repr(given.args[2:])) for _, given, _ in open_box.seen]
    assert {name for name, held in sides if str(SECRET) in held} == {"trial"}
    assert sum(str(SECRET - 1) in held for name, held in sides if name == "replay") == 2


def test_each_run_hears_all_that_was_said_before(trial, open_box):
    trial(ADD, "assert add(1, 2) == 3\nassert add(3) == 4")
    heard = [(name, len(messages)) for name, messages in (side(g) for _, g, _ in open_box.seen)]
    assert heard == [("trial", 0), ("replay", 1), ("trial", 1), ("replay", 2), ("trial", 2)]


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
        ("import no_such_module\nassert add(1, 2) == 3", "ModuleNotFoundError"),
        ("import sys\nsys.exit(0)\nadd(1, 2)", "SystemExit"),
        ("assert True", "the function is never called"),
        ("def add(a, b):\n    return 5\nassert add(2, 3) == 5", "the function is never called"),
        ("class T(Thing):\n    pass\nadd(1, 2)", "the tests derive from a class of the program"),
        ("add(1, 2)\nclass T(Thing):\n    pass", "the tests derive from a class of the program"),
        ("from solution import Thing\nclass T(Thing):\n    pass",
         "the tests derive from a class of the program"),
        ("import pytest\n@pytest.fixture\ndef x(): pass", "pytest.fixture is not supported"),
        ("import pytest\nadd(1, 2)\npytest.skip()", "pytest.skip is not supported"),
        ("def test_it(tmp_path):\n    assert add(1, 2) == 3", "unknown fixture 'tmp_path'"),
        ("from solution import add\nadd(1, 2)\ndef test_it(tmp_path):\n    pass",
         "unknown fixture 'tmp_path'"),
        ("add('\\ud800', 1)\nadd(1, 1)", "the tests pass a value that cannot cross"),
    ],
)  # fmt: skip
def test_tests_that_no_program_can_pass_are_our_failure(trial, tests, why):
    for source in (ADD, ADD + "class Thing: pass\n", ADD + "Thing = int\n"):
        assert trial(source, tests) == Outcome("broken", why)


@pytest.mark.parametrize(
    ("tests", "ended"),
    [
        ("assert sub(add(1, 2), 3) == 0", "wrong"),  # the program could lack a class
        ("import sys\nadd(1, 2)\nsys.exit(0)", "wrong"),
        ("import sys\nif add(1, 2): sys.exit(0)", "wrong"),
        ("eval('nothing_' + str(add(1, 2)))", "wrong"),
        ("compile(f'{add(1, 2)} x', '', 'eval')", "wrong"),
        ("import importlib\nimportlib.import_module(f'no_{add(1, 2)}')", "wrong"),
        ("add(1, 1)\nadd('\\ud800', 1)", "wrong"),
        ("import time\nadd(time.perf_counter_ns(), 1)\nadd(1, 2)", "wrong"),
        ("for n in range(13):\n    assert add(n, 0) == n", "wall"),
    ],
)
def test_once_the_program_has_answered_no_failure_is_ours(trial, tests, ended, monkeypatch):
    monkeypatch.setattr(split_replay, "MAX_QUESTIONS", 12)
    assert trial(ADD, tests).ended == ended


def test_errors_the_program_raises_are_no_fault_of_the_tests(trial):
    source = "def add(a, b):\n    raise BlockingIOError('x')"
    assert trial(source, "assert add(1, 2) == 3").ended == "wrong"


def test_the_most_questions_there_may_be_are_asked(trial, open_box, monkeypatch):
    monkeypatch.setattr(split_replay, "MAX_QUESTIONS", 5)
    assert trial(ADD, "for n in range(5):\n    assert add(n, 0) == n").ended == "passed"
    assert trial(ADD, "for n in range(6):\n    assert add(n, 0) == n").ended == "wall"
    assert sum(side(given)[0] == "replay" for _, given, _ in open_box.seen) == 5 + 5


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


ENDS = ["cpu", "wall", "memory", "output", "protocol", "signal", "error"]


@pytest.mark.parametrize("ended", ENDS)
def test_how_the_program_dies_is_how_the_trial_ends(ended):
    box = Scripted(told(ASK), Execution(ended=ended))
    assert run_trial(box, Program(source=ADD), ["add"], "", LIMITS) == Outcome(ended)


def test_a_failure_of_the_sandbox_is_reported_on_either_side():
    lost = Execution(ended="sandbox_error", why="gone")
    for box in (Scripted(lost), Scripted(told(ASK), lost), Scripted(told(ASK), told(FIVE), lost)):
        outcome = run_trial(box, Program(source=ADD), ["add"], "", LIMITS)
        assert outcome == Outcome("sandbox_error", "gone")


@pytest.mark.parametrize("ended", ENDS)
def test_tests_that_die_are_broken_unless_an_answer_may_have_killed_them(ended):
    died = Execution(ended=ended)
    outcome = run_trial(Scripted(died), Program(source=ADD), ["add"], "", LIMITS)
    crossing = ended in ("protocol", "error")
    reason = "the tests pass a value that cannot cross"
    assert outcome == Outcome(
        "broken", reason if crossing else f"the tests ended with {ended} before any request"
    )
    box = Scripted(told(ASK), told(FIVE), died)
    outcome = run_trial(box, Program(source=ADD), ["add"], "", LIMITS)
    assert outcome == Outcome("wrong" if crossing else ended)


@pytest.mark.parametrize(
    ("cpu_s", "clock_s", "ended", "runs"),
    [
        (0.1, 30.0, "passed", 3),  # a busy host: half of the clock's time for the trial
        (0.1, 91.0, "wall", 2),  # the far limit of the clock
        (30.0, 30.0, "cpu", 2),  # work
    ],
)
def test_the_wall_limit_bounds_the_cpu_time_of_the_whole_trial(
    open_box, monkeypatch, cpu_s, clock_s, ended, runs
):
    clock, walls = Clock(100.0), []
    monkeypatch.setattr(budget, "time", clock)
    plain = open_box.run

    def timed(program, given, limits):
        walls.append(limits.wall)
        clock.now += clock_s
        return replace(plain(program, given, limits), cpu_s=cpu_s)

    monkeypatch.setattr(open_box, "run", timed)
    outcome = run_trial(open_box, Program(source=ADD), ["add"], "assert add(1, 2) == 3", LIMITS)
    assert (outcome.ended, len(walls)) == (ended, runs)


def test_the_cpu_limit_is_for_each_answer_and_what_is_done_again_is_added():
    box = Scripted(told(ASK), told(FIVE), told(ASK, ASK), told(FIVE, FIVE), told(ASK, ASK, ["no"]))
    box.ends.append(Execution(ended="cpu"))
    run_trial(box, Program(source=ADD), ["add"], "", LIMITS)
    assert [limits.cpu_s for limits in box.limits] == [1.0, 1.0, 1.25, 1.25, 1.25, 1.25]


@pytest.mark.parametrize(
    "value", [{"passed": 1}, [1, digest([]), []], [2, digest([]), ["over", "passed"]], [1, "", ASK],
              [1, digest([]), [["over"]]], None, ["over", "passed"], [1, digest([]), "over"]],
)  # fmt: skip
def test_what_makes_no_sense_is_ours_from_the_tests_and_wrong_from_the_program(value):
    odd = Execution(ended="ok", value=value)
    outcome = run_trial(Scripted(odd), Program(source=ADD), ["add"], "", LIMITS)
    assert outcome == Outcome("broken", "the requests differ between runs")
    outcome = run_trial(Scripted(told(ASK), odd), Program(source=ADD), ["add"], "", LIMITS)
    assert outcome == Outcome("wrong")


def test_a_program_that_changes_its_answers_is_wrong_as_soon_as_it_shows():
    box = Scripted(told(ASK), told(FIVE), told(ASK, ASK), told(["returned", [[6], []]], FIVE))
    assert run_trial(box, Program(source=ADD), ["add"], "", LIMITS) == Outcome("wrong")
    box = Scripted(told(ASK), told(FIVE), told(["ask", "x", []], ASK))
    assert run_trial(box, Program(source=ADD), ["add"], "", LIMITS).ended == "wrong"


@pytest.mark.parametrize(
    ("needed", "tests", "ended"),
    [
        (["add"], "from solution import sub\nadd(1, 2)", "error"),
        (["add"], "try:\n    from solution import sub\nexcept BaseException:\n    pass", "error"),
        (["add"], "import solution\nsolution.sub(1)", "error"),
        (["add", "sub"], "assert add(1, 2) == 3", "error"),
        (["add", "TWO"], "assert add(1, 1) == TWO", "passed"),
        (["add"], "assert add(1, 1) == TWO", "wrong"),  # the program could say what is expected
        (["add"], "from solution import *\nassert add(1, 1) == TWO", "passed"),
        (["add"], "assert sub(1) == 3 or add(1)", "wrong"),
    ],
)
def test_names_that_the_tests_declare_must_be_there(open_box, needed, tests, ended):
    program = Program(source=ADD + "TWO = 2\n")
    assert run_trial(open_box, program, needed, tests, LIMITS).ended == ended


def test_what_is_shipped_runs_where_python_is_of_another_version(open_box, monkeypatch):
    monkeypatch.setattr(split_code.importlib.util, "MAGIC_NUMBER", b"none")
    monkeypatch.setattr(split_code, "shipped", lambda name: (b"no code", REAL(name)[1]))
    source = split_code.LOADER.replace("importlib.util.MAGIC_NUMBER", "b'here'")
    monkeypatch.setattr(split_code, "LOADER", source)
    program = Program(source=ADD)
    assert run_trial(open_box, program, ["add"], "assert add(1) == 2", LIMITS).ended == "passed"


REAL = split_code.shipped
