"""What honest programs expect of a usual system: databases in files, installed packages."""

import os
import subprocess
import sys

import pytest

from veriloop.sandbox import interpreter
from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.pool import NamespaceExecutor

LIMITS = Limits(cpu_s=5, wall_s=30, memory_mb=512)
DATABASE = """
import sqlite3
with sqlite3.connect({path!r}) as base:
    base.execute({setting!r})
    base.execute("create table numbers(x)")
    base.executemany("insert into numbers values (?)", [(1,), (2,), (39,)])
base.close()
print(sqlite3.connect({path!r}).execute("select sum(x) from numbers").fetchone()[0])
"""


@pytest.mark.parametrize(
    "setting", ["pragma journal_mode = delete", "pragma journal_mode = memory"]
)
@pytest.mark.parametrize("path", ["/tmp/numbers.db", "numbers.db"])
def test_a_program_may_keep_a_database_in_its_tmp(strong, path, setting):
    source = DATABASE.format(path=path, setting=setting)
    for _ in range(2):  # the file of the first run is not there for the second
        run = strong.run(Program(source=source), Stdin(), LIMITS)
        assert (run.ended, run.stdout) == ("ok", b"42\n"), run


def test_file_locks_stay_refused(strong):
    source = "import sqlite3, fcntl\nsqlite3.connect('/tmp/x.db').execute('create table t(a)')\n"
    source += "fcntl.lockf(open('/tmp/x.db', 'r+'), fcntl.LOCK_EX)"
    run = strong.run(Program(source=source), Stdin(), LIMITS)
    assert run.ended == "error" and b"Operation not permitted" in run.stderr


def test_a_program_finds_the_packages_of_the_interpreter_that_the_environment_names():
    """In a process of its own, since the probe is kept."""
    script = (
        "from veriloop.sandbox.executor import Program, Stdin\n"
        "from veriloop.sandbox.limits import Limits\n"
        "from veriloop.sandbox.namespace.pool import NamespaceExecutor\n"
        "source = 'import numpy\\nprint(int(numpy.ones((9, 9)).sum()))'\n"
        "with NamespaceExecutor(slots=1) as box:\n"
        "    for preload in ((), ('numpy',)):\n"
        "        program = Program(source=source, preload=preload)\n"
        "        print(box.run(program, Stdin(), Limits(memory_mb=1024)).stdout)\n"
    )
    environment = os.environ | {interpreter.VARIABLE: sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    if "is not available here" in done.stderr or "lies in /tmp" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.stdout == "b'81\\n'\n" * 2, done.stderr


def test_a_missing_package_names_the_interpreter_and_how_to_choose_another():
    with NamespaceExecutor(slots=1, allow_reduced=True) as box:
        python = box.probe.python
        run = box.run(Program(source="import no_such_package"), Stdin(), LIMITS)
        assert (run.ended, interpreter.VARIABLE in run.why) == ("error", True)
        run = box.run(Program(source="", preload=("no_such_package",)), Stdin(), LIMITS)
    assert run.ended == "sandbox_error" and str(python) in run.why
    assert "no_such_package" in run.why and interpreter.VARIABLE in run.why
