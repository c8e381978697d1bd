"""Tests and program in two processes at a time: one run of the program for each test."""

# ruff: noqa: E501 -- programs and their tests as they come

import importlib

import pytest

from tests.verifiers.code.test_split_items import ITEMS, WRONG
from veriloop.sandbox.executor import Dialogue, Program
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.result import Execution
from veriloop.verifiers.code.outcome import Outcome
from veriloop.verifiers.code.reference import CodeReference
from veriloop.verifiers.code.split_harness import run_trial
from veriloop.verifiers.code.tests import judge_program

LIMITS = Limits(cpu_s=1.0, wall_s=20.0, memory_mb=256, output_bytes=1 << 20)
ADD = "def add(a, b=1):\n    return a + b\n"


class Counting:
    """Counts the runs of an executor."""

    def __init__(self, box):
        self.box, self.backend, self.tier, self.given = box, box.backend, box.tier, []

    def run(self, program, invocation, limits):
        self.given.append(invocation)
        return self.box.run(program, invocation, limits)


class Scripted:
    """A namespace backend whose runs end as listed."""

    backend, tier = "namespace", 1

    def __init__(self, *ends):
        self.ends = list(ends)

    def run(self, program, invocation, limits):
        assert isinstance(invocation, Dialogue)
        return self.ends.pop(0)


@pytest.fixture(scope="module")
def real_box():
    pool = importlib.import_module("veriloop.sandbox.namespace.pool")
    with pool.NamespaceExecutor(slots=1) as box:
        yield box


def tried(box, source, tests, needed=("add",), limits=LIMITS):
    return run_trial(box, Program(source=source), list(needed), tests, limits)


@pytest.mark.slow
@pytest.mark.parametrize("name", ITEMS)
def test_a_right_program_passes(real_box, name):
    needed, tests, right, _ = ITEMS[name]
    assert tried(real_box, right, tests, needed.split()) == Outcome("passed")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), WRONG)
def test_a_wrong_program_does_not(real_box, name, number):
    needed, tests, _, wrong = ITEMS[name]
    outcome = tried(real_box, wrong[number], tests, needed.split())
    assert outcome.ended in ("wrong", "error")


@pytest.mark.slow
def test_a_program_has_its_file_name_as_in_other_executions(real_box):
    source = "import os\nHERE = os.path.dirname(__file__)\ndef add(a, b=1):\n    return HERE\n"
    assert tried(real_box, source, "assert add(1) == '/tmp'") == Outcome("passed")


@pytest.mark.slow
def test_recursion_is_as_deep_as_in_plain_python(real_box):
    source = (
        "def add(n): return n and add(n - 1)\nclass Deep:\n    def down(self, n): return add(n)\n"
    )
    assert tried(real_box, source, "assert add(990) == 0") == Outcome("passed")
    assert tried(real_box, source, "assert Deep().down(990) == 0") == Outcome("passed")
    assert tried(real_box, source, "assert add(1100) == 0").ended == "wrong"


@pytest.mark.slow
def test_each_test_takes_one_run_of_the_program(real_box):
    box = Counting(real_box)
    loop = "n = 0\nwhile n < 400:\n    n = add(n)\nassert n == 400"
    tests = [{"assert": loop}, {"assert": "assert list(map(add, [1, 2])) == [2, 3]"}]
    reference = CodeReference.read({"function": "add", "tests": tests})
    assert judge_program(box, ADD, reference).score == 1.0
    assert len(box.given) == 2 and all(isinstance(given, Dialogue) for given in box.given)


def test_the_program_gets_no_expected_value(real_box):
    box = Counting(real_box)
    assert tried(box, ADD, "expected = 987654321\nassert add(1, 2) == 3").ended == "passed"
    (given,) = box.given
    assert "987654321" in repr(given.call.args) and "987654321" not in repr(given.peer_call.args)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "tests", "ended"),
    [
        ("def add(a", "assert add(1) == 2", "error"),
        ("x = 1", "try:\n    add(1)\nexcept BaseException:\n    pass", "error"),
        ("import os\nos._exit(0)", "assert add(1) == 2", "protocol"),
        ("raise SystemExit(0)", "assert add(1) == 2", "protocol"),
        ("import os\ndef add(a): os._exit(0)", "try:\n    add(1)\nexcept BaseException:\n    pass", "protocol"),
        ("def add(a):\n    while True: pass", "assert add(1) == 2", "cpu"),
        ("x = bytearray(1 << 30)", "assert add(1) == 2", "memory"),
        ("def add(a): return '\\ud800'", "assert add(1) == 2", "protocol"),
        ("def add(a): return 'x' * (1 << 21)", "assert add(1) == 2", "protocol"),
        ("def add(a): return 10 ** 400000", "assert add(1) == 2", "protocol"),
        (ADD, "assert add(1) == 2 and add(2) == 4", "wrong"),
        (ADD, "assert add(1) = 2", "broken"),
        (ADD, "add('\\ud800')", "broken"),
        (ADD, "add('a', 'b')\nadd('\\ud800', 'b')", "wrong"),
        (ADD, "x = 10 ** 400000\nassert add(x) > x", "broken"),
        (ADD, "assert True", "broken"),
        (ADD, "from solution import sub", "error"),
        (ADD, "print('x' * 10**6)\nimport sys\nprint('y', file=sys.stderr)\nassert add(1) == 2", "passed"),
        ("import sys\nprint('x' * 10**6)\nprint('y', file=sys.stderr)\n" + ADD, "assert add(1) == 2", "passed"),
        ("import sys\nsys.stdout.close()\nsys.stdin.close()\n" + ADD, "assert add(1) == 2", "passed"),
    ],
)  # fmt: skip
def test_how_a_trial_ends(real_box, source, tests, ended):
    assert tried(real_box, source, tests).ended == ended


# Writes to every descriptor a message that no honest side sends, or all it can.
WRITER = """
import os, sys
def frame(body): return len(body).to_bytes(8, 'big') + body
def everywhere(data):
    for fd in range(64):
        try:
            if fd != 2: os.write(fd, data)
        except OSError: pass
"""
FORGED = [
    ('everywhere(frame(b\'["over", "passed"]\'))', ("protocol",)),
    ('everywhere(frame(b\'["returned", [[[0]], [["yours", null, 99]]]]\'))', ("protocol",)),
    ('everywhere(frame(b\'["ask", "name", [["SECRET"], []]]\'))', ("wrong", "protocol")),
    ("everywhere(b'\\xff' * 64)", ("protocol",)),
    ("everywhere((1 << 40).to_bytes(8, 'big'))", ("protocol",)),
    ("everywhere(frame(b'[' * 100000))", ("protocol",)),
    ("everywhere(b'\\0' * 7); os._exit(0)", ("protocol", "error")),
    (
        "os.close(0); os.close(1); os.closerange(3, 64)",
        ("error", "protocol", "wrong", "signal", "ok"),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("act", "ends"), FORGED)
def test_a_forged_message_is_no_more_than_an_answer(real_box, act, ends):
    tests = "SECRET = 7\ntry:\n    assert add(3) == SECRET\nexcept OSError:\n    pass"
    inside = f"{WRITER}def add(a):\n    {act}\n    return 0\n"
    assert tried(real_box, inside, tests).ended in ends
    at_once = f"{WRITER}{act}\ndef add(a): return 0\n"
    assert tried(real_box, at_once, tests).ended in ends


def test_an_answer_that_a_program_forges_is_its_answer(real_box):
    source = (
        f"{WRITER}def add(a):\n    everywhere(frame(b'[\"returned\", [[5], []]]'))\n    return 0\n"
    )
    assert tried(real_box, source, "assert add(3) == 5").ended == "passed"
    assert tried(real_box, source, "assert add(3) == 5 and add(3) == 5").ended == "wrong"


@pytest.mark.slow
def test_a_first_answer_that_exhausts_the_tests_is_no_fault_of_the_tests(real_box):
    huge = "def add(a): everywhere(frame(b'[' + b'\"x\",' * 1_900_000 + b'1]'))"
    limits = Limits(cpu_s=0.2, wall_s=20.0, memory_mb=256, output_bytes=16 << 20)
    outcome = tried(real_box, WRITER + huge, "assert add(3) == 5", limits=limits)
    assert outcome.ended == "cpu"


DIED = Execution(ended="error")


@pytest.mark.parametrize(
    ("execution", "outcome"),
    [
        (Execution(ended="ok", value=["over", "passed"], peer=DIED), Outcome("passed")),
        (Execution(ended="ok", value=["over", "broken", "why"], peer=DIED), Outcome("broken", "why")),
        (Execution(ended="ok", value=[], peer=DIED), Outcome("error")),
        (Execution(ended="ok", value=[], peer=Execution(ended="ok")), Outcome("wrong")),
        (Execution(ended="cpu", stderr=b"s", peer=DIED), Outcome("broken", "the tests ended with cpu before any answer")),
        (Execution(ended="cpu", stderr=b"sa", peer=DIED), Outcome("cpu")),
        (Execution(ended="memory", stderr=b"", peer=DIED), Outcome("memory")),  # the slot was lost
        (Execution(ended="wall", stderr=b"s", peer=DIED), Outcome("wall")),
    ],
)  # fmt: skip
def test_who_is_at_fault(execution, outcome):
    assert tried(Scripted(execution), ADD, "") == outcome


@pytest.mark.slow
def test_a_sandbox_that_fails_on_either_side_is_tried_again():
    passed = Execution(ended="ok", value=["over", "passed"], peer=DIED)
    ours = Execution(ended="sandbox_error", why="gone")
    theirs = Execution(ended="ok", value=[], peer=ours)
    assert tried(Scripted(theirs, passed), ADD, "") == Outcome("passed")
    assert tried(Scripted(ours, ours), ADD, "") == Outcome("sandbox_error", "gone")
    assert tried(Scripted(theirs, theirs), ADD, "") == Outcome("sandbox_error", "gone")
