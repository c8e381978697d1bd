"""A script ends as under a plain interpreter: what it wrote arrives, and it may call as deep."""

import pytest

from veriloop.sandbox.executor import Call, Program, Stdin
from veriloop.sandbox.limits import Limits

LIMITS = Limits(cpu_s=2, memory_mb=256)
# Of many solutions to programming contests: streams whose methods need globals of the program.
CONTEST = """
import io, os, sys

class FastIO(io.IOBase):
    def __init__(self, file):
        self.file, self.buffer = file.fileno(), io.BytesIO()
        self.write = self.buffer.write

    def flush(self):
        os.write(self.file, self.buffer.getvalue())
        self.buffer.truncate(0), self.buffer.seek(0)

class Wrapper(io.IOBase):
    def __init__(self, file):
        self.buffer = FastIO(file)
        self.flush = self.buffer.flush
        self.write = lambda text: self.buffer.write(text.encode("ascii"))

sys.stdout = Wrapper(sys.stdout)
print(5)
"""
DEEP = "def f(n): return n and f(n - 1)\n"


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nprint(5)\nsys.stdout.close()",
        "import io, sys\nsys.stdout = io.StringIO()\nprint(5)\n"
        "sys.__stdout__.write(sys.stdout.getvalue())",
        "out = open(1, 'w')\nprint(5, file=out)",
        "class Box:\n    out = open(1, 'w')\nprint(5, file=Box.out)",
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach(), 'utf-8')\nprint(5)",
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, 'utf-8')\nprint(5)",
        "import sys\nsys.stdout.reconfigure(encoding='utf-8')\nprint(5)",
        "import os, sys\nprint(5)\nsys.stdout = open(os.devnull, 'w')",
        "import sys\nout = open(1, 'w')\ndel sys.stdout, sys.stderr\nout.write('5\\n')",
        "class Last:\n    def __del__(self): print(5)\nlast = Last()",
        CONTEST,
        f"{CONTEST}sys.exit(0)",
        "import sys\nclass Out:\n    def write(self, text): sys.__stdout__.write(text)\n"
        "    def flush(self): sys.__stdout__.flush()\nsys.stdout = Out()\nprint(5)",
    ],
)
def test_what_a_script_has_written_is_its_output(sandbox, source):
    done = sandbox.run(Program(source=source), Stdin(), LIMITS)
    assert (done.ended, done.exit_code, done.stdout) == ("ok", 0, b"5\n"), done.stderr


def test_a_stream_that_cannot_be_flushed_fails_and_loses_no_output_of_others(sandbox):
    source = (
        "import sys\nreal = sys.stdout\nclass Out:\n    def write(self, text): real.write(text)\n"
        "sys.stdout = Out()\nprint(5)"
    )
    done = sandbox.run(Program(source=source), Stdin(), LIMITS)
    assert (done.ended, done.stdout) == ("error", b"5\n")


def test_recursion_is_as_deep_as_in_plain_python(sandbox):
    done = sandbox.run(Program(source=f"{DEEP}print(f(997))"), Stdin(), LIMITS)
    assert (done.ended, done.stdout) == ("ok", b"0\n"), done.stderr
    assert sandbox.run(Program(source=DEEP), Call(function="f", args=[997]), LIMITS).value == 0
    assert sandbox.run(Program(source=f"{DEEP}f(1010)"), Stdin(), LIMITS).ended == "error"
