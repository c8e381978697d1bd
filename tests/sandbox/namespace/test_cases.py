"""The cases of one program: what one plants, the next must not find, on one slot and in a row."""

import pytest

from veriloop.sandbox.executor import Call, Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace import requests, slot
from veriloop.sandbox.namespace.pool import NamespaceExecutor

LIMITS = Limits(cpu_s=2, wall_s=10, memory_mb=256)


@pytest.fixture(scope="module")
def single(sandbox):
    """One slot, so that all cases follow each other on it."""
    with NamespaceExecutor(slots=1, tier=sandbox.tier) as executor:
        yield executor


def cases(executor, source, *data, limits=LIMITS):
    given = [Stdin(data=one) for one in data]
    return executor.run_all(Program(source=source), given, limits)


# What a case may change; and an expression that must tell each case the same as the one before.
CHANNELS = {
    "module state": ("import json; json.mark = 1", "hasattr(__import__('json'), 'mark')"),
    "builtins": ("import builtins; builtins.mark = 1", "hasattr(__builtins__, 'mark')"),
    "interned constants": ("CELL.append(1)", "len(CELL)"),
    "function defaults": ("keep(1)", "len(keep.__defaults__[1])"),
    "code object": ("keep.__code__ = (lambda: 7).__code__", "keep.__code__.co_name"),
    "modules": ("import sys; sys.modules['mark'] = sys", "'mark' in __import__('sys').modules"),
    "import path": ("import sys; sys.path.append('mark')", "__import__('sys').path"),
    "random state": ("import random; random.seed(input())", "__import__('random').random()"),
    "decimal context": (
        "import decimal; decimal.getcontext().prec = 5",
        "__import__('decimal').getcontext().prec",
    ),
    "recursion limit": ("import sys; sys.setrecursionlimit(77)", "sys_limit()"),
    "environment": ("import os; os.environ['MARK'] = '1'", "__import__('os').environ.get('MARK')"),
    "environment of C": ("import os; os.putenv('MARK', '1')", "c_getenv()"),
    "folder": ("import os; os.chdir('/usr')", "__import__('os').getcwd()"),
    "umask": ("import os; os.umask(0)", "umask()"),
    "files": ("attempt(lambda: open('/tmp/mark', 'w').close())", "os_listdir('/tmp')"),
    "shared memory": ("attempt(lambda: open('/dev/shm/mark', 'w').close())", "os_listdir('/tmp')"),
    "nice value": ("import os; attempt(lambda: os.nice(5))", "__import__('os').getpriority(0, 0)"),
    "affinity": (
        "import os; attempt(lambda: os.sched_setaffinity(0, {0}))",
        "__import__('os').sched_getaffinity(0)",
    ),
    "signal handlers": (
        "import signal; signal.signal(15, signal.SIG_IGN)",
        "__import__('signal').getsignal(15)",
    ),
    "signal mask": (
        "import signal; signal.pthread_sigmask(0, {10})",
        "__import__('signal').pthread_sigmask(0, ())",
    ),
    "timers": ("import signal; signal.setitimer(1, 9)", "__import__('signal').getitimer(1)"),
    "limits": (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (9, 9))",
        "__import__('resource').getrlimit(7)",
    ),
    "limit of CPU time": (
        "import resource as r; r.setrlimit(r.RLIMIT_CPU, (1, 1))",
        "__import__('resource').getrlimit(0)",
    ),
    "input position": ("import os; os.lseek(0, 5, 0)", "os_lseek(0)"),
    "flags of streams": (
        "import fcntl\nfor fd in range(4): fcntl.fcntl(fd, 4, 0o4000)",
        "[__import__('fcntl').fcntl(fd, 3) for fd in range(4)]",
    ),
    "open descriptors": ("import os; os.dup2(1, 30)", "is_open(30)"),
    "closed streams": ("import os; os.close(0); os.close(3)", "[is_open(fd) for fd in range(4)]"),
    "process group": (
        "import os; attempt(os.setsid)",
        "__import__('os').getpgid(0) == __import__('os').getpid()",
    ),
    "threads": (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "__import__('threading').active_count()",
    ),
    "trace": ("import sys; sys.settrace(lambda *_: None)", "__import__('sys').gettrace()"),
    "name of the process": ("prctl(15, b'mark')", "name()"),
    "personality": ("syscall(135, 0x40000)", "syscall(135, 0xFFFFFFFF)"),
    "memory map": ("prctl(41, b'')", "prctl(42, None)"),
    "keyring": (
        "syscall(248, b'user', b'mark', b'x', 1, -3)",
        "syscall(249, b'user', b'mark', 0, 0)",
    ),
    "message queue": ("syscall(68, 4242, 0o1600)", "syscall(68, 4242, 0)"),
}
TOOLS = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
CELL = []
def keep(x=None, seen=[]):
    seen.append(x)
def attempt(step):
    try:
        step()
    except OSError:
        pass
def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
def os_listdir(path):
    try:
        return os.listdir(path)
    except OSError:
        return []
def os_lseek(fd):
    return os.lseek(fd, 0, 1)
def umask():
    found = os.umask(0)
    os.umask(found)
    return found
def sys_limit():
    return sys.getrecursionlimit()
def c_getenv():
    libc.getenv.restype = ctypes.c_char_p
    return libc.getenv(b"MARK")
def prctl(what, word):
    return libc.prctl(what, word, 0, 0, 0)
def syscall(number, *words):
    return libc.syscall(number, *words)
def name():
    buffer = ctypes.create_string_buffer(16)
    libc.prctl(16, buffer)
    return buffer.value != b"mark"
"""


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_case_leaves_no_trace_for_the_next(single, channel):
    plant, look = CHANNELS[channel]
    seen = f"import sys\nprint({look})\nsys.stdout.flush()\n"
    planting = "\n".join(f"    {line}" for line in plant.splitlines())
    source = f"{TOOLS}\n{seen}if os.pread(0, 5, 0) == b'plant':\n{planting}\n    print({look})"
    clean, planted, after, again = cases(
        single, source, b"look\n", b"plant\n", b"look\n", b"look\n"
    )
    told = [one.stdout.splitlines() for one in (clean, planted, after, again)]
    assert clean.ended == after.ended == again.ended == "ok", clean.why
    assert planted.ended in ("ok", "protocol"), planted.why
    assert told[0] == told[2] == told[3] == told[1][:1]


def test_the_body_runs_for_every_case_and_is_compiled_for_the_first_alone(sandbox, monkeypatch):
    sent = []
    genuine = requests.open_streams

    def watched(work, *rest):
        sent.append(b"a telling comment" in work)
        return genuine(work, *rest)

    monkeypatch.setattr(requests, "open_streams", watched)
    source = "# a telling comment\nseen = []\ndef f(x):\n    seen.append(x)\n    return seen"
    with NamespaceExecutor(slots=1, tier=sandbox.tier) as executor:
        given = [Call(function="f", args=[i]) for i in range(4)]
        done = executor.run_all(Program(source=source), given, LIMITS)
    assert [one.value for one in done] == [[0], [1], [2], [3]]
    assert sent == [True, False, False, False]


@pytest.mark.parametrize(
    ("source", "ended", "why"),
    [
        ("def f(x) return x", "error", "SyntaxError"),
        ("x = '\ud800'", "error", "UnicodeEncodeError"),
        ("(" * 300, "error", "SyntaxError"),
    ],
)
def test_a_program_that_does_not_compile_ends_all_cases_alike(single, source, ended, why):
    done = cases(single, source, b"1", b"2", b"3")
    assert [one.ended for one in done] == [ended] * 3
    assert all(why in one.why or why in one.stderr.decode() for one in done)


def test_a_compile_bomb_is_met_once(single):
    bomb = "x = (" + "+".join(f"({'-' * 60}{n})" for n in range(60_000)) + ")"
    limits = Limits(cpu_s=1, wall_s=30, memory_mb=128)
    done = cases(single, bomb, b"1", b"2", b"3", limits=limits)
    assert {one.ended for one in done} <= {"cpu", "memory", "error", "signal"}
    assert done[1] is done[2]


def test_code_too_large_to_hand_out_is_compiled_by_each_case(single):
    source = f"data = '{'x' * 1_200_000}'\nprint(len(data), input())"
    done = cases(single, source, b"1", b"2")
    assert [one.stdout for one in done] == [b"1200000 1\n", b"1200000 2\n"], done[1].why


def test_a_first_case_that_cannot_hold_its_input_does_not_end_the_others(single):
    source = "def f(x): return len(x)"
    given = [Call(function="f", args=[bytes(n)]) for n in (80 << 20, 1, 2)]
    done = single.run_all(Program(source=source), given, Limits(cpu_s=2, memory_mb=32))
    assert [one.ended for one in done] == ["memory", "ok", "ok"], done[0]
    assert [one.value for one in done] == [None, 1, 2]


def test_a_case_cannot_speak_for_the_code_of_the_next(single):
    forged = "(len(code)).to_bytes(8, 'big') + code"
    source = (
        "import marshal, os\ncode = marshal.dumps(compile('print(666)', 'x', 'exec'))\n"
        f"os.write(3, {forged}); os.write(3, b'\\1' + {forged})\nprint(input())"
    )
    done = cases(single, source, b"1", b"2", b"3")
    assert [one.stdout for one in done] == [b"1\n", b"2\n", b"3\n"]


def test_the_traceback_of_a_later_case_is_that_of_the_first(single):
    done = cases(single, "def g():\n    return 1 / 0\ng()", b"", b"")
    assert done[0].stderr == done[1].stderr and b"line 2, in g" in done[1].stderr


def test_each_case_has_limits_and_an_end_of_its_own(single):
    source = (
        "import time, sys\nword = input()\n"
        "if word == 'spin':\n    while True: pass\n"
        "if word == 'sleep': time.sleep(60)\n"
        "if word == 'hog': x = bytearray(1 << 30)\n"
        "if word == 'flood': print('x' * 3_000_000)\n"
        "if word == 'die': 1/0\n"
        "print(word)"
    )
    words = [b"a", b"spin", b"b", b"sleep", b"hog", b"c", b"flood", b"die", b"d"]
    limits = Limits(cpu_s=1, wall_s=3, memory_mb=256, output_bytes=1 << 20)
    done = cases(single, source, *words, limits=limits)
    ends = ["ok", "cpu", "ok", "wall", "memory", "ok", "output", "error", "ok"]
    assert [one.ended for one in done] == ends
    assert [one.stdout for one in done if one.ended == "ok"] == [b"a\n", b"b\n", b"c\n", b"d\n"]
    assert done[1].cpu_s > 0.8 and done[2].cpu_s < 0.5


def test_a_failure_of_ours_in_one_case_is_tried_again_by_itself(sandbox, monkeypatch):
    genuine, failed = slot.Slot._await_end, []

    def failing(self, ticket, deadline):
        if ticket.invocation.data == b"2" and not failed:
            failed.append(self)
            raise OSError("gone")
        return genuine(self, ticket, deadline)

    monkeypatch.setattr(slot.Slot, "_await_end", failing)
    with NamespaceExecutor(slots=1, tier=sandbox.tier) as executor:
        done = cases(executor, "print(input())", b"1", b"2", b"3")
    assert [one.stdout for one in done] == [b"1\n", b"2\n", b"3\n"] and failed


def test_a_failure_of_ours_in_the_first_case_does_not_doom_the_others(sandbox, monkeypatch):
    genuine = slot.Slot._await_end

    def failing(self, ticket, deadline):
        if ticket.invocation.data == b"1":
            raise OSError("gone")
        return genuine(self, ticket, deadline)

    monkeypatch.setattr(slot.Slot, "_await_end", failing)
    with NamespaceExecutor(slots=1, tier=sandbox.tier) as executor:
        done = cases(executor, "print(input())", b"1", b"2", b"3")
    assert [one.ended for one in done] == ["sandbox_error", "ok", "ok"]
    assert [one.stdout for one in done[1:]] == [b"2\n", b"3\n"]


def test_every_execution_draws_the_same_random_numbers(sandbox):
    done = cases(sandbox, "import random; print(random.random())", b"", b"", b"", b"")
    assert len({one.stdout for one in done}) == 1


def test_executions_that_follow_each_other_have_each_its_own_limits(single):
    source = "import resource as r; print(*[r.getrlimit(kind)[0] for kind in (0, 1, 3, 7)])"
    wide = Limits(cpu_s=2, memory_mb=256, disk_mb=3, stack_mb=9, open_files=30)
    narrow = Limits(cpu_s=1, memory_mb=256, disk_mb=2, stack_mb=8, open_files=20)
    told = [cases(single, source, b"", limits=one)[0].stdout for one in (wide, narrow, wide)]
    assert told[0] == told[2] == f"4 {3 << 20} {9 << 20} 30\n".encode()
    assert told[1] == f"3 {2 << 20} {8 << 20} 20\n".encode()
