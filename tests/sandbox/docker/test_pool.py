"""Containers give what the embedded executor gives, and none is ever left behind."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from docker.errors import APIError

from veriloop.sandbox.backends import open_backend
from veriloop.sandbox.docker import container, ownership
from veriloop.sandbox.docker import engine as engine_code
from veriloop.sandbox.docker.pool import DockerExecutor
from veriloop.sandbox.executor import Call, Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.probe import SandboxUnavailableError

pytestmark = pytest.mark.docker
ROOT = Path(__file__).resolve().parents[3]
LIMITS = Limits(cpu_s=2, memory_mb=256)
ECHO = Program(source="print(input())")


def script(executor, source, data=b"", limits=LIMITS):
    return executor.run(Program(source=source), Stdin(data=data), limits)


def ours(client, pid=None):
    """Ids of the containers that a process started."""
    label = f"{ownership.LABEL}={ownership.owner_label(pid)}"
    return {one["Id"] for one in client.api.containers(all=True, filters={"label": label})}


def gone(client, ids):
    """Whether all of them have gone; their removal may take a moment."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if not ids & {one["Id"] for one in client.api.containers(all=True)}:
            return True
        time.sleep(0.1)
    return False


RUNS = {
    "input": ("print(input()[::-1])", Stdin(data=b"abc\n")),
    "silence": ("", Stdin()),
    "exit code": ("import sys; print('x'); sys.exit(7)", Stdin()),
    "exception": ("1/0", Stdin()),
    "syntax": ("def broken(", Stdin()),
    "crash": ("import ctypes; ctypes.string_at(0)", Stdin()),
    "cpu": ("while True: pass", Stdin()),
    "memory": ("x = bytearray(1 << 30)", Stdin()),
    "flood": ("while True: print('x' * 65536)", Stdin()),
    "forks": ("import os\nos.fork()", Stdin()),
    "call": (
        "def f(x, *, y): return {x: (y, 2**90)}",
        Call(function="f", args=[3], kwargs={"y": [1.5]}),
    ),
    "bytes": ("def f(x): print('noise'); return x[::-1]", Call(function="f", args=[b"\xff\x00"])),
    "no function": ("", Call(function="f")),
    "no value": ("import os\ndef f(): os._exit(0)", Call(function="f")),
    "no data": ("def f(): return object()", Call(function="f")),
    "deep": ("def f():\n x = 1\n for _ in range(200): x = [x]\n return x", Call(function="f")),
    "nan": ("def f(): return [float('inf'), -0.0, 1j, {1}, None, True]", Call(function="f")),
}


@pytest.fixture(scope="session")
def embedded(docked):
    try:
        with NamespaceExecutor(slots=1, tier=docked.tier) as executor:
            yield executor
    except SandboxUnavailableError as refusal:
        pytest.skip(str(refusal))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_ends_as_in_the_embedded_executor(docked, embedded, name):
    source, given = RUNS[name]
    limits = Limits(cpu_s=0.6, wall_s=60, memory_mb=256, output_bytes=1 << 20)
    here, there = (one.run(Program(source=source), given, limits) for one in (docked, embedded))
    told = [
        (one.ended, one.exit_code, one.signal, one.stdout, one.value, type(one.value))
        for one in (here, there)
    ]
    last = [one.stderr.strip().splitlines()[-1:] for one in (here, there)]
    assert last[0] == last[1]
    assert told[0] == told[1] and here.ended != "sandbox_error", (here.why, there.why)
    assert here.cpu_s > 0 and here.wall_s > 0 and here.peak_mb > 1


def test_the_backend_says_what_it_is(docked):
    assert docked.backend == "docker" and docked.tier in (1, 2)
    assert "seccomp" in docked.table


def test_the_setting_docker_opens_it(image):
    box = open_backend("docker", slots=1)
    try:
        assert box.backend == "docker" and box.tier == 1
        assert box.run(ECHO, Stdin(data=b"hello"), LIMITS).stdout == b"hello\n"
    finally:
        box.close()


def test_results_come_in_order_from_all_containers(docked):
    source = "import time\ndef f(i):\n time.sleep(0.2 if i == 0 else 0)\n return i"
    given = [Call(function="f", args=[i]) for i in range(7)]
    done = docked.run_all(Program(source=source), given, LIMITS)
    assert [one.value for one in done] == list(range(7))
    assert docked.run_all(ECHO, [], LIMITS) == []


def test_wall_time_runs_out(docked):
    done = script(docked, "import time; time.sleep(60)", limits=Limits(cpu_s=1, wall_s=0.6))
    assert done.ended == "wall" and done.wall_s < 3


def test_large_inputs_and_outputs_arrive_whole(docked):
    data = b"0123456789abcde\n" * 100_000
    done = script(docked, "import sys; sys.stdout.write(sys.stdin.read() * 2)", data)
    assert done.ended == "ok" and done.stdout == data * 2
    value = docked.run(
        Program(source="def f(x): return x * 2"), Call(function="f", args=[data]), LIMITS
    ).value
    assert value == data * 2


def test_temporary_files_work_in_tier_1_and_vanish(docked):
    source = "import os; open('/tmp/f', 'x').write('a'); print(os.listdir('/tmp'))"
    ends = [script(docked, source) for _ in range(3)]
    if docked.tier == 1:
        assert [one.stdout for one in ends] == [b"['f']\n"] * 3
    else:
        assert {one.ended for one in ends} == {"error"}


def test_a_program_that_names_modules_finds_them_imported(docked):
    source = "import sys\ndef f(): return 'plistlib' in sys.modules"
    call = Call(function="f")
    assert docked.run(Program(source=source), call, LIMITS).value is False
    assert docked.run(Program(source=source, preload=("plistlib",)), call, LIMITS).value is True


def test_what_cannot_be_run_is_refused_and_the_container_lives_on(docked, engine):
    before = ours(engine)
    with pytest.raises(ValueError, match=r"no language 'cobol'\. Known: python"):
        docked.run(Program(source="", language="cobol"), Stdin(), LIMITS)
    with pytest.raises(SandboxUnavailableError, match=r"in the container: Limits.processes=3"):
        docked.run(ECHO, Stdin(), Limits(processes=3))
    with pytest.raises(ValueError, match="arguments of 'f' are not plain data"):
        docked.run(ECHO, Call(function="f", args=[object()]), LIMITS)
    assert script(docked, "print(1)").stdout == b"1\n"
    assert ours(engine) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"slots": 0}, "slots must be at least 1, got 0"),
        ({"recycle_after": 0}, "recycle_after must be at least 1, got 0"),
        ({"tier": 3}, "tier must be 1, 2 or None, got 3"),
    ],
)
def test_impossible_options_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        DockerExecutor(**options)


def test_a_container_is_replaced_after_so_many_runs(image, engine):
    others = ours(engine)
    with DockerExecutor(slots=1, recycle_after=2) as box:
        seen = []
        for _ in range(5):
            assert script(box, "print(1)").ended == "ok"
            seen.append(ours(engine) - others)
    assert seen[0] == seen[1] and seen[2] == seen[3] and len(set.union(*seen)) == 3
    assert [len(one) for one in seen] == [1] * 5
    assert gone(engine, set.union(*seen))


def test_a_program_that_needs_more_memory_gets_a_container_that_has_it(image, engine):
    others = ours(engine)
    with DockerExecutor(slots=1) as box:
        script(box, "")
        (first,) = ours(engine) - others
        source = "x = bytearray(1500 << 20); print(len(x) >> 20)"
        done = script(box, source, limits=Limits(cpu_s=10, memory_mb=2000))
        assert done.stdout == b"1500\n", done
        (second,) = ours(engine) - others
        assert script(box, "print(1)").stdout == b"1\n"
        assert ours(engine) - others == {second} != {first}
        assert engine.containers.get(second).attrs["HostConfig"]["Memory"] > 2000 << 20


def test_nothing_is_left_after_close_and_a_closed_one_says_so(image, engine):
    others = ours(engine)
    box = DockerExecutor(slots=1)
    script(box, "")
    started = ours(engine) - others
    box.close()
    box.close()
    assert len(started) == 1 and gone(engine, started)
    with pytest.raises(RuntimeError, match="is closed"):
        script(box, "")


def test_closing_ends_the_runs_in_progress(image, engine):
    others = ours(engine)
    box = DockerExecutor(slots=1)
    raised = []

    def wait():
        with pytest.raises(RuntimeError, match="closed during the run") as caught:
            script(box, "import time; time.sleep(60)", limits=Limits(cpu_s=1, wall_s=60))
        raised.append(caught)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.5)
    started = ours(engine) - others
    began = time.monotonic()
    box.close()
    thread.join()
    assert raised and time.monotonic() - began < 20
    assert len(started) == 1 and gone(engine, started)


def test_a_container_that_hangs_is_killed_and_the_run_done_on_a_fresh_one(
    image, engine, monkeypatch
):
    monkeypatch.setattr(container, "GRACE_S", 1.0)
    monkeypatch.setattr(container, "PATIENCE", 1)
    others = ours(engine)
    with DockerExecutor(slots=1) as box:
        (frozen,) = ours(engine) - others
        engine.api.pause(frozen)
        done = script(box, "print(1)", limits=Limits(cpu_s=1, wall_s=2))
        assert done.stdout == b"1\n" and gone(engine, {frozen})


def test_a_container_that_dies_twice_is_an_error_of_ours(image, engine, monkeypatch):
    others = ours(engine)
    with DockerExecutor(slots=1) as box:
        over = threading.Event()

        def reap():
            while not over.wait(0.05):
                for one in ours(engine) - others:
                    with suppress(APIError):  # not started yet, or removed meanwhile
                        engine.api.kill(one)

        thread = threading.Thread(target=reap)
        thread.start()
        done = box.run_all(
            Program(source="import time; time.sleep(5)"), [Stdin()] * 2, Limits(cpu_s=1, wall_s=9)
        )
        over.set()
        thread.join()
        assert [one.ended for one in done] == ["sandbox_error"] * 2
        assert "container" in done[0].why
        assert script(box, "print(1)").stdout == b"1\n"


PARENT = """
import sys, threading, time
from veriloop.sandbox.docker.pool import DockerExecutor
from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
box = DockerExecutor(slots=1)
threading.Timer(1, lambda: print("busy", flush=True)).start()
box.run(Program(source="import time; time.sleep(60)"), Stdin(), Limits(cpu_s=1, wall_s=60))
"""


def test_nothing_is_left_after_the_kill_of_its_owner_in_the_middle_of_a_run(image, engine):
    words = [sys.executable, "-c", PARENT]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"busy\n"
        started = ours(engine, parent.pid)
        parent.send_signal(signal.SIGKILL)
    assert len(started) == 1 and gone(engine, started)


def test_what_a_crash_left_is_swept_when_the_next_executor_opens(image, engine):
    with subprocess.Popen(["sleep", "60"]) as process:
        label = {ownership.LABEL: ownership.owner_label(process.pid)}
        made = engine.containers.create(image, ["/usr/bin/python3"], labels=label)
        assert ownership.remove_stale_containers(engine) == 0  # its owner lives
        process.kill()
    box = DockerExecutor(slots=1)
    box.close()
    assert gone(engine, {made.id})


def test_a_fork_of_ours_neither_uses_nor_closes_the_containers(image, engine):
    others = ours(engine)
    with DockerExecutor(slots=1) as box:
        pid = os.fork()
        if pid == 0:
            try:
                box.close()
                script(box, "")
            except RuntimeError as failure:
                os._exit(7 if "another process" in str(failure) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert len(ours(engine) - others) == 1 and script(box, "print(1)").stdout == b"1\n"


def test_no_image_is_refused_with_the_command_that_makes_one(engine, monkeypatch):
    monkeypatch.setattr(engine_code, "code_digest", lambda: "of-no-image")
    with pytest.raises(SandboxUnavailableError, match="veriloop sandbox build-image"):
        DockerExecutor(slots=1)
    with pytest.raises(SandboxUnavailableError, match="no image 'nothing:here'"):
        DockerExecutor(slots=1, image="nothing:here")


def test_an_image_with_another_sandbox_is_refused(image, monkeypatch):
    monkeypatch.setattr(engine_code, "code_digest", lambda: "mine")
    with pytest.raises(SandboxUnavailableError, match=r"holds sandbox \w+, this is mine"):
        DockerExecutor(slots=1, image=image)


def test_without_a_daemon_it_is_refused_with_the_command_that_starts_one(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(SandboxUnavailableError, match=r"sh requirements/docker\.sh"):
        DockerExecutor(slots=1)
    gc.collect()  # a socket left open would warn, and a warning is an error


def test_a_runtime_that_is_not_here_is_refused(image):
    with pytest.raises(SandboxUnavailableError, match="nosuch"):
        DockerExecutor(slots=1, runtime="nosuch")


def test_a_container_has_nothing_to_work_with(docked, engine):
    own = engine.containers.get(min(ours(engine))).attrs
    host, config = own["HostConfig"], own["Config"]
    assert host["NetworkMode"] == "none" and host["IpcMode"] == "none" and host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"] and not host["CapAdd"] and not host["Privileged"]
    assert not host["Binds"] and not own["Mounts"] and host["LogConfig"]["Type"] == "none"
    assert host["Memory"] == host["MemorySwap"] > 0 and 0 < host["PidsLimit"] < 200
    assert "size=" in host["Tmpfs"]["/tmp"] and "nr_inodes=" in host["Tmpfs"]["/tmp"]
    assert "no-new-privileges" in host["SecurityOpt"] and host["AutoRemove"] and host["Init"]
    assert int(config["User"].split(":")[0]) >= 1_000_000_000
    assert not [one for one in config["Env"] if not one.startswith(("PATH=", "PYTHONPATH="))]
