"""The same cases through the embedded executor, and through client and service to that executor."""

import dataclasses
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from veriloop.sandbox.canaries import canaries
from veriloop.sandbox.executor import Call, Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.remote.client import RemoteExecutor
from veriloop.sandbox.remote.service import Service
from veriloop.sandbox.suite import CONTAINED, load, run_suite
from veriloop.stages.commands.sandbox import grade

LIMITS = Limits(cpu_s=2, memory_mb=256, output_bytes=4 << 20)
SHORT = Limits(cpu_s=1, wall_s=0.6)
BRIEF = Limits(cpu_s=0.5, wall_s=30)
OWN = Path(__file__).resolve().parent.parent / "cases"
MEASURES = ("cpu_s", "wall_s", "peak_mb")  # differ from run to run
CPU_ENDS = ("cpu", "wall", "memory")  # ends in which the figures are part of the reason


@pytest.fixture(scope="module")
def remote(strong):
    with (
        Service(strong) as service,
        RemoteExecutor(service.url, slots=2, jitter_s=0) as client,
    ):
        yield client


SCRIPTS = {
    "prints": ("print(input()[::-1])", b"abc\n", LIMITS),
    "prints nothing": ("pass", b"", LIMITS),
    "prints line ends": ("print('a\\r\\nb\\rc', end='')", b"", LIMITS),
    "prints what is no text": ("import os; os.write(1, bytes(range(256)))", b"", LIMITS),
    "warns in what is no text": ("import os; os.write(2, b'\\xff')", b"", LIMITS),
    "prints zeros and marks": ("print('\\0\\ufeff\\u2028=mark=')", b"", LIMITS),
    "reads much": ("print(len(input().split()))", b"7 " * 750_000, LIMITS),
    "writes much": ("print('0123456789abcde\\n' * 200_000, end='')", b"", LIMITS),
    "raises": ("def g():\n    1/0\ng()", b"", LIMITS),
    "is no program": ("def broken(", b"", LIMITS),
    "leaves with a code": ("import sys; sys.exit(7)", b"", LIMITS),
    "leaves with what looks like a signal": ("import sys; sys.exit(137)", b"", LIMITS),
    "kills itself": ("import ctypes; ctypes.string_at(0)", b"", LIMITS),
    "floods": ("while True: print('x' * 65536)", b"", Limits(cpu_s=5, output_bytes=1 << 20)),
    "floods its error": ("import sys\nsys.stderr.write('e' * 3_000_000)", b"", LIMITS),
    "eats memory": ("x = bytearray(1 << 30)", b"", LIMITS),
    "computes": ("while True: pass", b"", BRIEF),
    "sleeps": ("import time; time.sleep(60)", b"", SHORT),
    "writes a file": ("open('/tmp/x', 'w').write('y'); print(open('/tmp/x').read())", b"", LIMITS),
    "has no network": ("import socket; socket.socket()", b"", LIMITS),
    "sees its environment": ("import os; print(sorted(os.environ.items()), os.getcwd())", b"",
                             LIMITS),
}  # fmt: skip
CALLS = {
    "returns": ("def f(x, *, y): return {x: (y, 2**90)}", (3,), {"y": [1.5]}, LIMITS),
    "is a method": ("class Solution:\n    def f(self, x): return x", ({1: "é"},), {}, LIMITS),
    "prints and returns": ("def f():\n    print('noise')\n    return 1", (), {}, LIMITS),
    "prints no text": ("import os\ndef f(): return os.write(1, b'\\xff')", (), {}, LIMITS),
    "returns much": ("def f(xs): return xs[::-1]", (list(range(200_000)),), {}, LIMITS),
    "raises": ("def f(): 1/0", (), {}, LIMITS),
    "returns nothing": ("def f(): pass", (), {}, LIMITS),
    "is no program": ("def f(", (), {}, LIMITS),
    "leaves": ("import sys\ndef f(): sys.exit(0)", (), {}, LIMITS),
    "leaves at once": ("import os\nos._exit(0)", (), {}, LIMITS),
    "leaves with a code": ("def f(): raise SystemExit(3)", (), {}, LIMITS),
    "dies": ("import ctypes\ndef f(): ctypes.string_at(0)", (), {}, LIMITS),
    "computes": ("def f():\n    while True: pass", (), {}, BRIEF),
    "sleeps": ("import time\ndef f(): time.sleep(60)", (), {}, SHORT),
    "eats memory": ("def f(): return bytearray(1 << 30)", (), {}, LIMITS),
    "recurses deep": (
        "import sys\nsys.setrecursionlimit(10**6)\ndef f(n=20_000): return n and f(n - 1)",
        (), {}, LIMITS),
    "recurses to the limit": (
        "def g(n): return n and g(n - 1)\ndef f(n=900):\n    while True:\n"
        "        try: g(n)\n        except RecursionError: return n\n        n += 1",
        (), {}, LIMITS),
    "does without its streams": (
        "import sys\ndef f():\n    sys.stdout, sys.stderr = None, None\n    return 1",
        (), {}, LIMITS),
    "closes its streams": (
        "import sys\ndef f():\n    sys.stdout.close(), sys.stderr.close()\n    return 1",
        (), {}, LIMITS),
    "has a stream that fails": (
        "import sys\nclass Out:\n    def write(self, text): pass\n    def flush(self): 1 / 0\n"
        "def f():\n    sys.stdout = Out()\n    return 1",
        (), {}, LIMITS),
}  # fmt: skip


def same(here, there):
    """Field by field; measures are there in both, or in neither."""
    for name in MEASURES:
        assert (getattr(here, name) > 0) == (getattr(there, name) > 0), name
    blank = dict.fromkeys((*MEASURES, "waited_s"), 0.0)
    here, there = (dataclasses.replace(one, **blank) for one in (here, there))
    if here.ended == "protocol":
        assert here.why and there.why
        here, there = (dataclasses.replace(one, why="") for one in (here, there))
    if here.ended in CPU_ENDS:
        assert here.why.split()[0] == there.why.split()[0]
        here, there = (dataclasses.replace(one, why="") for one in (here, there))
    assert here == there


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_comes_to_the_same(strong, remote, name):
    source, data, limits = SCRIPTS[name]
    asked = Program(source=source), Stdin(data=data), limits
    here, there = strong.run(*asked), remote.run(*asked)
    same(here, there)
    assert here.ended != "sandbox_error"


@pytest.mark.parametrize("name", CALLS)
def test_a_call_comes_to_the_same(strong, remote, name):
    source, args, kwargs, limits = CALLS[name]
    asked = Program(source=source), Call(function="f", args=args, kwargs=kwargs), limits
    here, there = strong.run(*asked), remote.run(*asked)
    same(here, there)
    assert here.ended != "sandbox_error"


@pytest.mark.parametrize("source", ["def f(): return object()", "f = None", "f = 3"])
def test_where_the_caller_fails_all_but_its_own_frames_comes_to_the_same(strong, remote, source):
    asked = Program(source=source), Call(function="f"), LIMITS
    here, there = strong.run(*asked), remote.run(*asked)
    assert (here.ended, here.exit_code, here.why) == (there.ended, there.exit_code, there.why)


def test_every_way_to_end_was_compared(strong):
    ends = {
        strong.run(Program(source=s), Stdin(data=d), lim).ended for s, d, lim in SCRIPTS.values()
    }
    assert ends >= {"ok", "error", "signal", "output", "memory", "cpu", "wall"}


def test_many_inputs_keep_their_order_and_share_no_state(remote):
    source = "n = 0\ndef f(x):\n    global n\n    n += 1\n    return [x, n]"
    given = [Call(function="f", args=(number,)) for number in range(20)]
    done = remote.run_all(Program(source=source), given, LIMITS)
    assert [one.value for one in done] == [[number, 1] for number in range(20)]


def test_another_language_is_refused_over_there_and_no_verdict_is_drawn(remote):
    done = remote.run(Program(source="x", language="cobol"), Stdin(), LIMITS)
    assert done.ended == "sandbox_error" and "no language 'cobol'" in done.why


def test_limits_that_cannot_be_had_over_there_are_no_verdict_either(remote):
    done = remote.run(Program(source="x"), Stdin(), Limits(cpu_s=5000))
    assert (
        done.ended == "sandbox_error"
        and "timeout must be a number from 0 to 3600, got 15001" in done.why
    )


def test_a_sandbox_that_closes_over_there_is_a_sandbox_error_here():
    box = NamespaceExecutor(slots=1)
    with Service(box) as service, RemoteExecutor(service.url, jitter_s=0) as client:
        assert client.run(Program(source="print(1)"), Stdin(), LIMITS).ended == "ok"
        box.close()
        done = client.run(Program(source="print(1)"), Stdin(), LIMITS)
    assert done.ended == "sandbox_error" and "HTTP status 503" in done.why


NEEDS_DIALOGUE = {"honest/split_long_loop.py"}  # asks more often than a program can be replayed


def travelling(cases):
    """Python is the language of remote calls, and descriptor 3 is no channel of theirs: a right
    program that only spoils its own result there is right. Neighbours are tried where slots are."""
    usable = [one for one in cases if one.language == "python" and not one.run_beside]
    return [
        one for one in usable if "write(3, " not in one.source and one.file not in NEEDS_DIALOGUE
    ]


def outcome(attacks, honest):
    """What got through, and which honest programs were refused, over client and service."""
    honest = travelling(honest)
    with (
        canaries() as targets,
        NamespaceExecutor(slots=2) as box,
        Service(box) as service,
        RemoteExecutor(service.url, slots=2, jitter_s=0) as client,
    ):
        report = run_suite(client, targets, attacks, honest, grade)
    through = [one for one in report.attacks if one.effect != CONTAINED]
    return through, [one for one in report.honest if not one.accepted]


def test_one_attack_of_every_class_fails_over_there_too():
    attacks, honest = load(OWN)
    quick = [one for one in travelling(attacks) if one.must == "no_reward" and not one.run_after]
    sample = list({one.group: one for one in quick}.values())
    assert len(sample) >= 4
    assert outcome(sample, honest[:2]) == ([], [])


@pytest.mark.slow
def test_two_attacks_of_every_class_and_all_honest_programs_end_as_they_should_over_there():
    attacks, honest = load(OWN)
    alone = [one for one in travelling(attacks) if not one.run_after]
    first = {one.group: one for one in reversed(alone)}.values()
    last = {one.group: one for one in alone}.values()
    assert len(first) >= 12
    assert outcome([*first, *last], honest) == ([], [])


CLIENT = """
import sys
from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.remote.client import RemoteExecutor
box = RemoteExecutor(sys.argv[1])
print(box.run(Program(source="print(6 * 7)"), Stdin(), Limits()).stdout.decode(), end="")
"""


def test_a_client_that_is_not_closed_warns_of_nothing_and_keeps_no_process(remote):
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", CLIENT, remote.url]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("42\n", "", 0)
    assert threading.active_count() < 50
