"""A call as a script that runs in any Python, and its value found again."""

import subprocess
import sys

import pytest

from veriloop.sandbox.executor import Call, Program
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.remote.script import call_script, split_output, with_value
from veriloop.sandbox.result import Execution

LIMITS = Limits(output_bytes=10_000)
MARK = "=mark="


def ran(source, *args, function="f", python=(sys.executable, "-I"), **kwargs):
    """What comes of a call in a plain Python without any of our code."""
    script = call_script(Program(source=source), Call(function=function, args=args, kwargs=kwargs))
    done = subprocess.run(
        [*python, "-c", script.source], capture_output=True, check=False, cwd="/", timeout=60
    )
    code = done.returncode
    ended = "ok" if code == 0 else "error"
    raw = Execution(ended=ended, exit_code=code, stdout=done.stdout, stderr=done.stderr)
    return with_value(raw, script.mark, LIMITS)


def test_values_of_every_plain_type_come_back_exactly():
    value = [
        None,
        True,
        2**70,
        -0.0,
        float("inf"),
        1j,
        "é\n\x00'\"\\",
        b"\xff",
        (1,),
        {2},
        {3: [4]},
    ]
    done = ran("def f(x, *, y): return [x, y]", value, y=(value,))
    assert done.ended == "ok" and repr(done.value) == repr([value, (value,)])


def test_what_is_printed_before_and_after_is_apart_from_the_value():
    source = "import sys\nprint('top')\ndef f():\n    sys.stdout.write('in'); return 7"
    done = ran(source)
    assert (done.value, done.stdout, done.stderr) == (7, b"top\nin", b"")


def test_a_program_that_closes_its_output_has_still_answered():
    done = ran("import os\ndef f():\n    os.close(1); return 7")
    assert done.value == 7


def test_the_program_is_a_module_and_finds_nothing_of_ours():
    source = """
import sys
def f():
    names = sorted(name for name in sys.modules if "sandbox" in name or name == "caller")
    return __name__, sys.argv, names, __import__("__main__").__dict__ is globals()
"""
    assert ran(source).value == ("solution", ["solution.py"], [], True)


def test_a_traceback_shows_the_program_alone():
    done = ran("def g():\n    1/0\ndef f(): g()")
    assert (done.ended, done.exit_code) == ("error", 1)
    assert done.stderr.decode().splitlines()[1:] == [
        '  File "solution.py", line 3, in f',
        '  File "solution.py", line 2, in g',
        "ZeroDivisionError: division by zero",
    ]


@pytest.mark.parametrize(
    ("source", "ended", "code"),
    [
        ("def f(): raise SystemExit(3)", "error", 3),
        ("def f(): raise SystemExit('told')", "error", 1),
        ("raise SystemExit", "protocol", 0),
        ("import os\ndef f(): os._exit(0)", "protocol", 0),
        ("def f(", "error", 1),
        ("g = 1", "error", 1),
        ("def f(): return object()", "error", 1),
        ("import sys\ndef f():\n    sys.stdout = object()\n    return 1", "error", 1),
    ],
)
def test_a_call_that_gives_no_value_ends_as_it_should(source, ended, code):
    done = ran(source)
    assert (done.ended, done.exit_code, done.value) == (ended, code, None)


def test_a_method_of_solution_is_found():
    assert ran("class Solution:\n    def f(self, x): return -x", 5).value == -5


def test_shared_arguments_stay_shared():
    shared = [1]
    assert ran("def f(a, b):\n    a.append(2); return b", shared, shared).value == [1, 2]


def test_every_call_has_a_mark_of_its_own_and_expects_nothing():
    one, other = (call_script(Program(source="x"), Call(function="f")) for _ in range(2))
    assert one.mark != other.mark and one.mark in one.source and one.mark not in other.source


def test_a_python_that_cannot_run_the_script_has_not_begun():
    script = call_script(Program(source="x"), Call(function="f"))
    broken = Execution(ended="error", exit_code=1, stderr=b"SyntaxError")
    assert with_value(broken, script.mark, LIMITS) is None


@pytest.mark.parametrize(
    ("stdout", "found", "own", "body"),
    [
        (b"", "never began", b"", b""),
        (b"=mark=", "never began", b"=mark=", b""),
        (b"x=mark=\n", "never began", b"x=mark=\n", b""),
        (b"=mark=\n", "no value", b"", b""),
        (b"=mark=\nnoise", "no value", b"noise", b""),
        (b"=mark=\nnoise\n=mark=1", "several values", b"noise\n=mark=1", b""),
        (b"=mark=\n\n=mark=1=mark=\n", "one value", b"", b"1"),
        (b"=mark=\na\n\n=mark=1=mark=\n\nb", "one value", b"a\n\nb", b"1"),
        (b"=mark=\n=mark=1=mark==mark=2=mark=", "several values", b"=mark=1=mark==mark=2=mark=",
         b""),
    ],
)  # fmt: skip
def test_output_is_taken_apart_at_the_marks(stdout, found, own, body):
    printed = split_output(stdout, MARK)
    assert (printed.frame, printed.stdout, printed.body) == (found, own, body)


def framed(body, ended="ok"):
    stdout = b"=mark=\n\n=mark=" + body + b"=mark=\n"
    return with_value(Execution(ended=ended, stdout=stdout), MARK, LIMITS)


def test_the_value_is_read_strictly():
    assert framed(b'{"i": "0x10"}').value == 16
    for body in (b"", b"x", b"1 2", b'{"i": 3}', b"NaN", b"[" * 5000, b"1" * 20_000):
        done = framed(body)
        assert (done.ended, done.value) == ("protocol", None) and done.why


def test_only_a_run_that_ended_ok_has_a_value():
    for ended in ("error", "signal", "wall", "cpu", "memory", "output", "sandbox_error"):
        assert framed(b"1", ended).ended == ended and framed(b"1", ended).value is None
        never = Execution(ended=ended)
        assert with_value(never, MARK, LIMITS) == (None if ended == "error" else never)


def test_output_that_the_server_could_not_decode_is_the_programs_fault():
    garbled = Execution(ended="ok", exit_code=0, stdout=b"[DecodeError] 'utf-8' codec")
    assert with_value(garbled, MARK, LIMITS).ended == "protocol"
