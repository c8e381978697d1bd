"""A child that cannot be walled in runs nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from veriloop.sandbox.namespace.protocol import READY

ROOT = Path(__file__).resolve().parents[3]
CHILD = """
import marshal, os, sys
from veriloop.sandbox.namespace.child import Steps, run_child
failing = sys.argv[1]
payload = os.memfd_create("payload")
work = ("print('it ran')", b"", False, None, marshal.dumps(((), {})))
size = os.write(payload, marshal.dumps(work))
os.lseek(payload, 0, 0)
os.dup2(payload, 4)
ready = lambda: os.write(1, b"\\1")
steps = {name: (lambda bad=name == failing: -bad,) for name in Steps._fields}
run_child(Steps(enclose=steps["enclose"], bound=(*steps["bound"], ready)), size)
"""


@pytest.mark.parametrize(
    ("failing", "code", "out", "told"),
    [
        ("enclose", 1, b"", b"enclosing"),
        ("bound", 1, b"", b"bounding"),
        ("none", 0, READY + b"it ran\n", b""),
    ],
)
def test_a_child_runs_its_program_only_when_every_step_has_worked(failing, code, out, told):
    done = subprocess.run([sys.executable, "-c", CHILD, failing], cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stdout) == (code, out), done.stderr
    assert told in done.stderr
