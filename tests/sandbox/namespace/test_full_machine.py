"""Memory that is missing around the sandbox: no program is at fault."""

import os
import subprocess
import sys

import pytest

from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace import cgroup, slot
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.probe import probe

OUTER_MB = 200
RUN = """
import os, sys
from pathlib import Path
for entrance in sys.argv[2:]:
    Path(entrance).write_text(str(os.getpid()))
from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace import cgroup
from veriloop.sandbox.namespace.pool import NamespaceExecutor
if sys.argv[1] == "without":
    cgroup.find = lambda: (None, "")
with NamespaceExecutor(slots=1) as executor:
    for source in ("len(bytearray(300 << 20))", "print(1)"):
        done = executor.run(Program(source=source), Stdin(), Limits(memory_mb=512))
        print(done.ended, done.why)
"""


@pytest.mark.parametrize("own", ["with", "without"])
def test_a_program_within_its_memory_that_the_kernel_ends_for_others_gets_no_verdict(own):
    site, reason = cgroup.find()
    if site is None or probe().tier != 1:
        pytest.skip(f"needs tier 1 and a cgroup: {reason}")
    if own == "with" and site.version == 2:
        pytest.skip("with version 2 a cgroup of processes holds no other")
    outer = cgroup.Cgroup(site, "outer")
    try:
        outer.bound(OUTER_MB << 20, 500)
        command = [sys.executable, "-c", RUN, own, *outer.entrances()]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    finally:
        outer.remove()
    first, second = done.stdout.splitlines() or [done.stderr, ""]
    assert first.startswith("sandbox_error") and "not the program within its 512 MB" in first
    assert second.strip() == "ok"


def test_what_the_kernel_killed_before_a_run_replaces_no_slot(monkeypatch):
    if not probe().tier:
        pytest.skip("needs namespaces")
    killed = [0]
    monkeypatch.setattr(cgroup, "find", lambda: (None, ""))
    monkeypatch.setattr(slot, "kills_of_machine", lambda: cgroup.Kills(killed[0], 0))
    with NamespaceExecutor(slots=1) as executor:
        slots = set()
        for killed[0] in range(3):
            done = executor.run(Program(source="print(1)"), Stdin(), Limits(processes=1))
            assert done.ended == "ok", done.why
            slots.add(executor._holders[0]._slot.number)
    assert len(slots) == 1
