import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from veriloop.sandbox.executor import Call, Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.namespace.requests import host_id
from veriloop.sandbox.namespace.slot import Slot
from veriloop.sandbox.probe import SandboxUnavailableError, probe

LIMITS = Limits(cpu_s=2, memory_mb=256)
SHORT = Limits(cpu_s=1, wall_s=0.6)


def script(executor, source, data=b"", limits=LIMITS):
    return executor.run(Program(source=source), Stdin(data=data), limits)


def call(executor, source, *args, limits=LIMITS, **kwargs):
    return executor.run(
        Program(source=source), Call(function="f", args=args, kwargs=kwargs), limits
    )


def answer(done):
    assert done.ended == "ok", (done.why, done.stderr[-2000:])
    return done.stdout.decode().strip()


def test_a_script_reads_its_input_and_prints(sandbox):
    done = script(sandbox, "print(input()[::-1])", b"abc\n")
    assert (done.ended, done.stdout, done.exit_code) == ("ok", b"cba\n", 0)
    assert done.value is None and 0 < done.cpu_s < 1 and done.wall_s >= 0 and done.peak_mb > 1


def test_a_script_is_main_and_a_called_program_is_not(sandbox):
    source = "print(__name__)\ndef f(): return __name__"
    assert answer(script(sandbox, source)) == "__main__"
    assert call(sandbox, source).value == "solution"


@pytest.mark.parametrize(
    "source",
    [
        "def f(x, *, y): return {x: (y, 2**90)}",
        "class Solution:\n    def f(self, x, y): return {x: (y, 2**90)}",
    ],
)
def test_a_call_returns_plain_data_of_exact_type(sandbox, source):
    done = call(sandbox, source, 3, y=[1.5])
    assert (done.ended, done.value) == ("ok", {3: ([1.5], 2**90)})
    assert type(done.value[3]) is tuple


def test_what_a_call_prints_is_not_its_value(sandbox):
    done = call(sandbox, "def f():\n    print('noise')\n    return 1")
    assert (done.value, done.stdout) == (1, b"noise\n")


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("1/0", 1),
        ("import sys; sys.exit(7)", 7),
        ("raise SystemExit('no')", 1),
        ("def broken(", 1),
        ("print('right'); raise KeyboardInterrupt", 1),
        ("import sys; print('x'); sys.stdout.close(); sys.exit(3)", 3),
        ("import atexit, os; atexit.register(lambda: os._exit(9))", 9),
    ],
)
def test_a_failing_script_ends_in_error_with_its_exit_code(sandbox, source, code):
    done = script(sandbox, source)
    assert (done.ended, done.exit_code) == ("error", code)


def test_the_traceback_shows_the_program_and_nothing_of_ours(sandbox):
    done = script(sandbox, "def g():\n    1/0\ng()")
    assert b'"solution.py", line 2, in g' in done.stderr and b"sandbox" not in done.stderr
    assert "ZeroDivisionError" in done.why


@pytest.mark.parametrize(
    "source", ["", "def f(): 1/0", "f = 3", "def f(): return object()", "import sys; sys.exit(1)"]
)
def test_a_call_without_a_value_is_an_error(sandbox, source):
    assert call(sandbox, source).ended == "error"


@pytest.mark.parametrize(
    "source",
    [
        "import os\ndef f(): os._exit(0)",
        "import os\nos._exit(0)",
        "import sys\ndef f(): sys.exit(0)",
        "import os\ndef f(): os.write(3, b'junk'); os._exit(0)",
        "import os\ndef f():\n    os.write(3, (1).to_bytes(8, 'big') + b'1')\n    return 1",
        "import os\ndef f(): os.close(3); os._exit(0)",
    ],
)
def test_leaving_without_exactly_one_value_breaks_the_protocol(sandbox, source):
    done = call(sandbox, source)
    assert done.ended == "protocol" and done.value is None and done.why


def test_a_forged_frame_is_no_more_than_an_answer(sandbox):
    source = "import os\ndef f(): os.write(3, (2).to_bytes(8, 'big') + b'42'); os._exit(0)"
    assert call(sandbox, source).value == 42


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("import os; os.abort()", signal.SIGABRT),
        ("import ctypes; ctypes.string_at(0)", signal.SIGSEGV),
        ("import os; os.kill(os.getpid(), 15)", signal.SIGTERM),
        ("import signal; signal.raise_signal(11)", signal.SIGSEGV),
        ("import signal, time; signal.setitimer(0, 0.01); time.sleep(9)", signal.SIGALRM),
        ("import os; os.kill(os.getpid(), 40)", 40),
        ("import threading, os; threading.Thread(target=os.abort).start()", signal.SIGABRT),
        (
            "def f(x): return sorted([1], key=f)\nimport sys; sys.setrecursionlimit(1 << 30)\nf(1)",
            11,
        ),
    ],
)
def test_death_by_signal_is_reported_by_its_name(sandbox, source, number):
    done = script(sandbox, source)
    assert (done.ended, done.signal, done.exit_code) == ("signal", number, None)
    name = signal.Signals(number).name if number < 32 else "signal 40"
    assert done.why == f"died of {name}"


def test_a_signal_that_the_program_handles_or_ignores_is_its_own_affair(sandbox):
    source = "import signal as s\ns.signal(15, lambda *_: print('heard'))\ns.raise_signal(15)\n"
    source += "s.signal(10, s.SIG_IGN); s.raise_signal(10); s.raise_signal(17); print('on')"
    assert answer(script(sandbox, source)).split() == ["heard", "on"]
    assert script(sandbox, "import sys; sys.exit(127)").exit_code == 127


@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        "print(sum(range(10**12)))",
    ],
)
def test_cpu_time_runs_out(sandbox, source):
    done = script(sandbox, source, limits=Limits(cpu_s=1, wall_s=30))
    assert done.ended == "cpu" and 0.8 < done.cpu_s < 1.7, done


def test_cpu_time_is_judged_by_the_fraction_that_was_asked_for(sandbox):
    source = "import time\nwhile time.process_time() < 0.4: pass"
    assert script(sandbox, source, limits=Limits(cpu_s=0.2, wall_s=30)).ended == "cpu"
    assert script(sandbox, source, limits=Limits(cpu_s=0.9, wall_s=30)).ended == "ok"


@pytest.mark.parametrize(
    "source",
    [
        "import time; time.sleep(60)",
        "import signal, time; signal.pthread_sigmask(0, range(1, 60)); time.sleep(60)",
        "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()",
        "import atexit, time; atexit.register(time.sleep, 60)",
        "import os, time; os.closerange(0, 9); time.sleep(60)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)\nimport time; time.sleep(60)",
    ],
)
def test_wall_time_runs_out(sandbox, source):
    done = script(sandbox, source, limits=SHORT)
    assert done.ended == "wall" and 0.5 < done.wall_s < 2, done


def test_a_slow_drip_of_output_buys_no_time(sandbox):
    source = "import time\nwhile True: print(1, flush=True); time.sleep(0.05)"
    assert script(sandbox, source, limits=SHORT).ended == "wall"


@pytest.mark.parametrize(
    "source",
    [
        "x = bytearray(1 << 30)",
        "x = []\nwhile True: x.append(bytearray(1 << 20))",
        "x = 'a' * (1 << 33)",
    ],
)
def test_memory_runs_out(sandbox, source):
    done = script(sandbox, source)
    assert done.ended == "memory" and done.peak_mb < 300, done


def test_memory_that_is_allowed_is_there(sandbox):
    assert answer(script(sandbox, "x = bytearray(200 << 20); print(len(x))")) == str(200 << 20)


@pytest.mark.parametrize("fd", [1, 3])
def test_too_much_output_ends_the_run(sandbox, fd):
    source = f"import os\nwhile True: os.write({fd}, b'x' * 65536)"
    done = script(sandbox, source, limits=Limits(cpu_s=5, output_bytes=1 << 20))
    assert done.ended == "output" and len(done.stdout) <= 1 << 20 and done.wall_s < 3


def test_three_megabytes_of_output_arrive_whole(sandbox):
    done = script(sandbox, "print('0123456789abcde\\n' * 200_000, end='')")
    assert done.ended == "ok" and done.stdout == b"0123456789abcde\n" * 200_000


def test_output_at_its_cap_is_no_offence(sandbox):
    limits = Limits(cpu_s=2, output_bytes=100_000)
    assert script(sandbox, "print('x' * 99_999)", limits=limits).ended == "ok"
    assert script(sandbox, "print('x' * 100_000)", limits=limits).ended == "output"


def test_a_large_value_and_a_large_input_pass(sandbox):
    done = call(sandbox, "def f(xs): return xs[::-1]", list(range(200_000)))
    assert done.value == list(range(199_999, -1, -1))
    data = b"7 " * 750_000
    assert answer(script(sandbox, "print(len(input().split()))", data)) == "750000"


def test_a_flood_of_standard_error_is_dropped_and_is_no_end(sandbox):
    source = "import sys\nfor _ in range(50): sys.stderr.write('e' * 65536)\nprint('done')"
    done = script(sandbox, source)
    assert answer(done) == "done" and len(done.stderr) == LIMITS.error_bytes


def test_a_giant_exception_costs_nothing(sandbox):
    done = script(sandbox, "raise ValueError('x' * 20_000_000)")
    assert done.ended == "error" and len(done.stderr) <= LIMITS.error_bytes
    assert len(done.why) < 400


def test_the_environment_is_the_same_every_time(sandbox):
    source = "import os; print(sorted(os.environ.items()), {'a', 'b', 'c', 'd'}, os.getcwd())"
    os.environ["SANDBOX_SECRET"] = "tell nobody"
    try:
        texts = {answer(script(sandbox, source)) for _ in range(3)}
    finally:
        del os.environ["SANDBOX_SECRET"]
    assert len(texts) == 1 and "SECRET" not in texts.pop()


def test_hashes_do_not_depend_on_the_slot(sandbox):
    with NamespaceExecutor(slots=1, tier=sandbox.tier) as other:
        source = "print(hash('veriloop'), {'x', 'y', 'z'})"
        assert answer(script(other, source)) == answer(script(sandbox, source))


def test_nothing_of_ours_is_importable_or_loaded(sandbox):
    source = "import sys; print([m for m in sys.modules if 'sandbox' in m])\nimport sandbox"
    done = script(sandbox, source)
    assert done.ended == "error" and done.stdout == b"[]\n" and b"ModuleNotFound" in done.stderr


def test_state_does_not_pass_between_cases(sandbox):
    plant = """
import builtins, sys, json
builtins.marker = json.marker = sys.marker = "MARK"
try:
    open("/tmp/marker", "w").write("MARK")
    open("/tmp/json.py", "w").write("MARK")
except OSError:
    pass
"""
    look = """
import builtins, sys, json, os
print([hasattr(x, "marker") for x in (builtins, json, sys)])
print(os.listdir("/tmp") if os.access("/tmp", os.R_OK) and "TIER1" in sys.argv else [])
print(os.path.exists("/tmp/marker"))
"""
    for _ in range(3):
        assert script(sandbox, plant).ended == "ok"
        assert answer(script(sandbox, look)).splitlines() == [
            "[False, False, False]",
            "[]",
            "False",
        ]


SCAN = """
import ctypes, os
libc, page, hits = ctypes.CDLL(None), 4096, 0
reader, writer = os.pipe()
near = id(object()) & ~0xFFFFF
for address in range(near - (64 << 20), near + (64 << 20), page):
    if libc.write(writer, ctypes.c_void_p(address), page) == page:  # unreadable pages fail
        data = os.read(reader, page)
        at = data.find(b"ER-K5309")
        hits += at >= 4 and data[at - 4 : at] == b"MARK"  # never spelled out in this program
print(hits)
"""


def test_no_byte_of_one_run_is_in_the_memory_of_the_next(strong):
    marked = "x = 'MARKER-K5309-' + str(input())\n" + SCAN
    seen = answer(script(strong, marked, b"MARKER-K5309-in"))
    assert int(seen) > 0, "the scan must be able to see a marker"
    for _ in range(4):
        assert answer(script(strong, SCAN)) == "0"


def test_the_zygote_never_holds_a_payload(strong):
    for _ in range(20):
        script(strong, "x = '''MARKER-PAYLOAD-77'''", b"MARKER-PAYLOAD-77")
    for place in strong._holders:
        if place._slot is not None:
            for pid in family(place._slot.process.pid):
                assert b"MARKER-PAYLOAD-77" not in memory(pid)


def memory(pid):
    """All private memory of a process we may read."""
    if os.geteuid() != 0:
        pytest.skip("only root reads the memory of another process")
    parts = []
    with open(f"/proc/{pid}/mem", "rb", 0) as stream:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_, name = [*line.split(maxsplit=5), ""][:7]
            if rights.startswith("rw") and "vvar" not in name:
                start, end = (int(x, 16) for x in span.split("-"))
                stream.seek(start)
                parts.append(stream.read(end - start))
    return b"".join(parts)


def family(pid):
    """A process and all below it."""
    below = [
        int(p)
        for t in Path(f"/proc/{pid}/task").iterdir()
        for p in (t / "children").read_text().split()
    ]
    return [pid, *(q for p in below for q in family(p))]


def test_there_is_no_proc_and_no_way_to_see_other_processes(strong):
    source = "import os; print(os.path.exists('/proc/self'), os.getpid(), os.getppid())"
    assert answer(script(strong, source)) == "False 1 0"


def test_other_processes_cannot_be_signalled(sandbox):
    source = f"""
import os
for pid in ({os.getpid()}, 1, -1, 0):
    for number in (0, 19):
        try:
            if pid not in (1, 0, -1) or os.getpid() != 1:
                os.kill(pid, number)
                print("reached", pid)
        except OSError:
            pass
print("end")
"""
    assert answer(script(sandbox, source)) == "end"


@pytest.mark.parametrize("path", ["/etc/shadow", "/root", "/home", "/proc/1/environ", "/sys"])
def test_files_of_the_host_cannot_be_read(sandbox, path):
    source = (
        f"import os\nos.listdir({path!r}) if os.path.isdir({path!r}) else open({path!r}).read()"
    )
    assert script(sandbox, source).ended == "error"


def test_our_own_source_and_files_are_not_there(sandbox, tmp_path):
    (tmp_path / "secret").write_text("s")
    for path in (__file__, tmp_path / "secret"):
        assert script(sandbox, f"open({str(path)!r}).read()").ended == "error"


@pytest.mark.parametrize("path", ["/usr/x", "/etc/passwd", "/x", "/dev/x", "/usr/bin/python3"])
def test_the_system_is_read_only(sandbox, path):
    done = script(sandbox, f"open({path!r}, 'a').write('x')")
    assert done.ended == "error" and not Path("/usr/x").exists()


@pytest.mark.parametrize("act", ["os.utime(p)", "os.chmod(p, 0o666)", "os.chown(p, -1, -1)"])
def test_what_slots_share_cannot_carry_a_mark_from_one_to_the_other(sandbox, act):
    for path in ("/dev/null", "/dev/urandom", "/usr", "/usr/bin/python3"):
        assert script(sandbox, f"import os; p = {path!r}; {act}").ended == "error", path


def test_the_devices_work(strong):
    source = "open('/dev/null', 'w').write('x'); print(open('/dev/zero', 'rb').read(2))"
    assert answer(script(strong, source)) == r"b'\x00\x00'"


FAMILIES = "AF_INET AF_INET6 AF_UNIX AF_NETLINK AF_PACKET AF_VSOCK AF_ALG AF_BLUETOOTH".split()  # noqa: SIM905


@pytest.mark.parametrize("family", FAMILIES)
def test_no_socket_can_be_made(sandbox, family):
    source = f"import socket; socket.socket(socket.{family}, socket.SOCK_STREAM)"
    assert script(sandbox, source).ended == "error"


def test_the_self_pipe_that_event_loops_need_works(sandbox):
    source = (
        "import asyncio\nasync def g(): await asyncio.sleep(0); return 5\nprint(asyncio.run(g()))"
    )
    assert answer(script(sandbox, source)) == "5"


def test_threads_work_and_processes_do_not_unless_allowed(sandbox):
    source = (
        "import threading\nts = [threading.Thread(target=print, args=(i,)) for i in range(8)]\n"
    )
    source += "[t.start() for t in ts]; [t.join() for t in ts]"
    assert len(answer(script(sandbox, source)).split()) == 8
    for fork in (
        "os.fork()",
        "os.system('true') and 1/0",
        "os.posix_spawn('/bin/true', ['x'], {})",
    ):
        assert script(sandbox, f"import os; {fork}").ended in ("error", "ok")
    assert script(sandbox, "import os; os.fork(); print(1)").ended == "error"


def test_processes_need_a_cgroup_and_tier_1(sandbox):
    limits = Limits(cpu_s=2, processes=4)
    source = "import os\nif os.fork(): print(os.wait()[1])"
    if sandbox.tier == 1 and sandbox.probe.cgroup:
        assert answer(script(sandbox, source, limits=limits)) == "0"
    else:
        with pytest.raises(SandboxUnavailableError, match="processes=4 needs tier 1 and a cgroup"):
            script(sandbox, source, limits=limits)


def test_memory_that_only_a_cgroup_counts_needs_one(sandbox):
    limits = Limits(cpu_s=2, counted="group", memory_mb=64)
    if sandbox.tier == 1 and sandbox.probe.cgroup:
        assert answer(
            script(sandbox, "import mmap; mmap.mmap(-1, 1 << 30); print(1)", limits=limits)
        )
        assert script(sandbox, "x = bytearray(1 << 30)", limits=limits).ended == "memory"
    else:
        with pytest.raises(SandboxUnavailableError, match="counted='group' needs tier 1 and a cg"):
            script(sandbox, "print(1)", limits=limits)


def test_reserved_memory_is_free_where_private_writable_memory_is_counted(sandbox):
    limits = Limits(cpu_s=2, counted="data", memory_mb=64)
    reserve = "import mmap; m = mmap.mmap(-1, 1 << 40, flags={}, prot={}); print(m[0])"
    for flags, rights, fine in (("2 | 32", 1, True), ("2 | 32", 3, False), ("1 | 32", 1, False)):
        done = script(sandbox, reserve.format(flags, rights), limits=limits)
        assert (done.ended == "ok") is fine, (flags, rights, done)
    assert script(sandbox, "x = bytearray(1 << 30)", limits=limits).ended == "memory"
    deeper = "import resource as r; r.setrlimit(r.RLIMIT_STACK, (r.RLIM_INFINITY,) * 2)"
    assert script(sandbox, deeper, limits=limits).ended == "error"


needs_cgroup = pytest.mark.skipif(not probe().cgroup, reason="no cgroup with memory and pids here")


@needs_cgroup
def test_many_processes_share_one_bound_of_memory_and_number(strong):
    limits = Limits(cpu_s=4, wall_s=6, processes=8, memory_mb=200, threads=4)
    hog = "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n"
    hog += "        x = bytearray(b'x') * (90 << 20); time.sleep(3); os._exit(0)\n"
    hog += "while True: os.wait()"
    assert script(strong, hog, limits=limits).ended in ("memory", "error")
    bomb = (
        "import os, time\nn = 0\ntry:\n    while True:\n        if os.fork() == 0: time.sleep(9)\n"
    )
    bomb += "        n += 1\nexcept OSError: print(n)"
    assert 0 < int(answer(script(strong, bomb, limits=limits))) <= 16


@needs_cgroup
def test_no_process_survives_its_run(strong):
    source = "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n"
    source += "        if os.fork() == 0: time.sleep(77)\n        os._exit(0)\nprint('left')"
    limits = Limits(cpu_s=2, processes=12)
    before = len(children_of_slots(strong))
    done = script(strong, source, limits=limits)
    assert answer(done) == "left" and done.wall_s < 2
    assert len(children_of_slots(strong)) == before


def children_of_slots(executor):
    slots = [place._slot for place in executor._holders if place._slot]
    return [pid for slot in slots for pid in family(slot.process.pid)]


def test_disk_and_inodes_are_bounded(strong):
    limits = Limits(cpu_s=2, disk_mb=4, inodes=50)
    fill = "n = 0\ntry:\n    while True:\n        open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))\n"
    fill += "        n += 1\nexcept OSError as e: print(n, e.errno)"
    assert answer(script(strong, fill, limits=limits)) in ("3 28", "4 28")
    many = fill.replace("bytes(1 << 20)", "b''")
    count, code = answer(script(strong, many, limits=limits)).split()
    assert 40 < int(count) <= 50 and code == "28"
    assert (
        script(strong, "open('/tmp/a', 'w').write('x'); print(open('/tmp/a').read())").ended == "ok"
    )


def test_one_file_cannot_exceed_the_disk_sparse_or_not(strong):
    source = "import os; f = open('/tmp/a', 'wb'); os.ftruncate(f.fileno(), 1 << 30)"
    assert script(strong, source).ended == "error"


def test_open_files_are_bounded(sandbox):
    source = "fs = []\ntry:\n    while True: fs.append(open('/dev/null'))\n"
    source += "except OSError: print(len(fs))"
    assert 20 < int(answer(script(sandbox, source, limits=Limits(open_files=32)))) <= 32


def test_a_descriptor_of_ours_is_never_inherited(sandbox):
    source = "import os\nfds = []\nfor fd in range(256):\n    try: os.fstat(fd); fds.append(fd)\n"
    source += "    except OSError: pass\nprint(fds)"
    assert answer(script(sandbox, source)) == "[0, 1, 2, 3]"


def test_privileges_are_gone(sandbox):
    source = (
        "import os; print(os.getuid() != 0, os.getgroups() in ([], [65534], [1000]))\nos.setuid(0)"
    )
    done = script(sandbox, source)
    assert done.ended == "error" and done.stdout.startswith(b"True")


@pytest.mark.parametrize("name", ["CPU", "AS", "NOFILE", "FSIZE"])
def test_limits_cannot_be_raised(sandbox, name):
    source = f"import resource as r; k = r.RLIMIT_{name}; a, b = r.getrlimit(k)\n"
    assert script(sandbox, source + "r.setrlimit(k, (b, b + 1))").ended == "error"
    assert script(sandbox, source + "r.setrlimit(k, (r.RLIM_INFINITY,) * 2)").ended == "error"


def test_an_honest_program_may_ask_for_a_deeper_stack(sandbox):
    source = "import resource as r, sys, threading\n"
    source += "r.setrlimit(r.RLIMIT_STACK, (r.RLIM_INFINITY, r.RLIM_INFINITY))\n"
    source += "sys.setrecursionlimit(10**6)\ndef g(n): return n and 1 + g(n - 1)\nprint(g(50_000))"
    assert answer(script(sandbox, source)) == "50000"


def test_every_slot_of_every_process_has_an_account_of_its_own():
    whole = "         0          0 4294967295\n"
    ids = {host_id(whole, pid, n) for pid in (7, 8, 99_999) for n in range(256)}
    assert len(ids) == 3 * 256 and min(ids) >= 10**9 and max(ids) < 2**31


def test_in_a_container_the_account_is_one_of_the_containers():
    rootless = "0 1000 1\n1 100000 65536\n"
    ids = {host_id(rootless, 7, n) for n in range(100)}
    assert len(ids) == 100 and min(ids) > 30_000 and max(ids) == 65536
    assert host_id("0 1000 1\n", 7, 3) == 0


def test_a_slot_that_cannot_be_bounded_is_our_failure(sandbox, monkeypatch):
    if not sandbox.probe.cgroup:
        pytest.skip("no cgroup here")

    def refused(*_):
        raise OSError("Device or resource busy")

    with NamespaceExecutor(slots=1, tier=sandbox.tier) as executor:
        monkeypatch.setattr("veriloop.sandbox.namespace.cgroup.Cgroup.bound", refused)
        done = script(executor, "print(1)")
        assert done.ended == "sandbox_error" and "busy" in done.why


def test_results_come_in_order_and_each_case_starts_fresh(sandbox):
    source = "seen = []\ndef f(x):\n    seen.append(x)\n    return [x, len(seen)]"
    given = [Call(function="f", args=[i]) for i in range(6)]
    done = sandbox.run_all(Program(source=source), given, LIMITS)
    assert [one.value for one in done] == [[i, 1] for i in range(6)]
    assert sandbox.run_all(Program(source=source), [], LIMITS) == []


def test_cases_of_one_program_share_the_slots(sandbox):
    with NamespaceExecutor(slots=2, tier=sandbox.tier) as executor:
        assert len(slots_of(executor)) == 1
        given = [Stdin(data=b"%d" % i) for i in range(4)]
        source = "import time; time.sleep(0.2); print(input())"
        done = executor.run_all(Program(source=source), given, LIMITS)
        assert [answer(one) for one in done] == ["0", "1", "2", "3"]
        assert len(slots_of(executor)) == 2


def test_runs_of_several_threads_do_not_mix(sandbox):
    results = {}

    def one(i):
        results[i] = answer(script(sandbox, "print(input())", str(i).encode()))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: str(i) for i in range(12)}


def slots_of(executor):
    return [place._slot for place in executor._holders if place._slot is not None]


def test_a_killed_zygote_is_replaced(sandbox):
    with NamespaceExecutor(slots=1, tier=sandbox.tier) as executor:
        assert script(executor, "print(1)").ended == "ok"
        (first,) = slots_of(executor)
        for pid in family(first.process.pid)[1:]:
            os.kill(pid, signal.SIGKILL)
        assert answer(script(executor, "print(2)")) == "2"
        (second,) = slots_of(executor)
        assert second is not first


def test_a_zygote_that_dies_under_every_attempt_gives_no_verdict(sandbox, monkeypatch):
    with NamespaceExecutor(slots=1, tier=sandbox.tier) as executor:
        attempts = []

        def dying(slot, *_):
            attempts.append(slot)
            raise OSError("gone")

        monkeypatch.setattr(Slot, "_await_end", dying)
        done = script(executor, "print(1)")
        assert done.ended == "sandbox_error" and "gone" in done.why
        assert len(attempts) == 2 and attempts[0] is not attempts[1]
        monkeypatch.undo()
        assert script(executor, "print(1)").ended == "ok"


def test_a_set_up_that_fails_is_our_failure_not_the_programs(sandbox, monkeypatch):
    with NamespaceExecutor(slots=1, tier=sandbox.tier) as executor:
        monkeypatch.setattr(
            "veriloop.sandbox.namespace.cases.pack_payload", lambda *_, **__: b"no marshal"
        )
        assert script(executor, "print(1)").ended == "sandbox_error"


@pytest.mark.parametrize("limits", [LIMITS, SHORT])
def test_close_leaves_no_process_no_cgroup_and_ends_a_run_in_progress(sandbox, limits):
    executor = NamespaceExecutor(slots=2, tier=sandbox.tier)
    failures = []

    def busy():
        try:
            script(executor, "import time; time.sleep(60)", limits=Limits(wall_s=50))
        except RuntimeError as failure:
            failures.append(str(failure))

    thread = threading.Thread(target=busy)
    thread.start()
    time.sleep(0.5)
    pids = [pid for slot in slots_of(executor) for pid in family(slot.process.pid)]
    groups = [p for s in slots_of(executor) if s.cgroup for p in s.cgroup.folders.values()]
    assert len(pids) >= 2
    executor.close()
    thread.join(10)
    assert failures and "closed" in failures[0]
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not [path for path in groups if path.exists()]
    executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        script(executor, "print(1)", limits=limits)


def test_the_slots_die_with_a_parent_that_is_killed(sandbox):
    source = f"""
import os, sys, time
from veriloop.sandbox.namespace.requests import host_id
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
e = NamespaceExecutor(slots=1, tier={sandbox.tier})
print(e._holders[0]._slot.process.pid, flush=True)
e.run(Program(source="import time; time.sleep(50)"), Stdin(), Limits(wall_s=40))
"""
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", source], cwd=root, stdout=subprocess.PIPE
    ) as parent:
        watchman = int(parent.stdout.readline())
        time.sleep(0.4)
        pids = family(watchman)
        assert len(pids) >= 3
        parent.kill()
    deadline = time.monotonic() + 5
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [pid for pid in pids if alive(pid)]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_two_hundred_runs_leave_everything_as_it_was(strong):
    assert answer(script(strong, "print(1)")) == "1"

    def count(pid):
        """Descriptors and mounts; None for an ordinary user, who may not read a zygote's."""
        try:
            mounts = Path(f"/proc/{pid}/mounts").read_text().splitlines()
            return len(os.listdir(f"/proc/{pid}/fd")), len(mounts)
        except PermissionError:
            assert os.geteuid() != 0
            return None

    def census():
        gc.collect()  # of what earlier tests left open
        watchmen = [slot.process.pid for slot in slots_of(strong)]
        own = len(os.listdir("/proc/self/fd"))
        return own, [count(pid) for watchman in watchmen for pid in family(watchman)]

    before = census()
    for n in range(200):
        if n % 50 == 49:
            script(strong, "import time; time.sleep(9)", limits=Limits(wall_s=0.1))
        script(strong, "open('/tmp/x', 'w'); print(1)")
    script(strong, "print(1)")  # it leaves a /tmp that need not be replaced
    assert census() == before


def test_another_language_and_odd_arguments_are_the_callers_mistake(sandbox):
    with pytest.raises(ValueError, match=r"no language 'cobol'\. Known: python, c, "):
        sandbox.run(Program(source="", language="cobol"), Stdin(), LIMITS)
    with pytest.raises(ValueError, match="arguments of 'f' are not plain data"):
        call(sandbox, "def f(x): return x", object())
    with pytest.raises(ValueError, match="slots must be at least 1, got 0"):
        NamespaceExecutor(slots=0)


def test_preloaded_modules_are_there_before_the_clock_starts(sandbox):
    with NamespaceExecutor(slots=1, tier=sandbox.tier, preload=("asyncio",)) as executor:
        source = "import sys; print('asyncio' in sys.modules, 'unittest' in sys.modules)"
        assert answer(script(executor, source)) == "True False"
        (first,) = slots_of(executor)
        more = Program(source=source, preload=("unittest",))
        assert answer(executor.run(more, Stdin(), LIMITS)) == "True True"
        (second,) = slots_of(executor)
        assert second is not first
        assert answer(executor.run(more, Stdin(), LIMITS)) == "True True"
        assert slots_of(executor) == [second]


def test_a_module_that_cannot_be_preloaded_gives_no_verdict_and_says_which(sandbox):
    with NamespaceExecutor(slots=1, tier=sandbox.tier) as executor:
        done = executor.run(Program(source="", preload=("no_such_module",)), Stdin(), LIMITS)
        assert done.ended == "sandbox_error" and "no_such_module" in done.why


def test_a_slot_is_replaced_at_once_while_a_fork_holds_a_copy_of_its_connection(sandbox):
    with NamespaceExecutor(slots=1, tier=sandbox.tier) as executor:
        assert script(executor, "print(1)").ended == "ok"
        (slot,) = slots_of(executor)
        copy = os.dup(slot.control.fileno())
        began = time.monotonic()
        executor._holders[0].close()
        assert time.monotonic() - began < 10 and slot.process.returncode == 0
        os.close(copy)
        assert answer(script(executor, "print(2)")) == "2"


def test_an_executor_does_not_work_in_a_fork_of_its_process(sandbox, monkeypatch):
    monkeypatch.setattr(sandbox, "_pid", os.getpid() + 1)
    with pytest.raises(RuntimeError, match="opened in another process"):
        script(sandbox, "print(1)")
    sandbox.close()
    monkeypatch.undo()
    assert script(sandbox, "print(1)").ended == "ok"


def test_a_deeply_nested_source_and_a_compile_bomb_are_the_programs_own_failure(sandbox):
    assert script(sandbox, "(" * 100_000).ended in ("error", "memory")
    assert script(sandbox, "x = " + "-" * 200_000 + "1").ended in ("error", "memory", "signal")
    bomb = "x = " + "(" * 90 + "'a' * 4000" + ")*4000" * 90
    assert script(sandbox, bomb).ended in ("error", "memory", "cpu")


def test_surrogates_and_null_bytes_in_a_source_are_the_programs_own_failure(sandbox):
    assert script(sandbox, "print('\ud800')").ended == "error"
    assert script(sandbox, "print('\x00')").ended in ("error", "ok")


def test_the_standard_streams_have_their_paths(sandbox):
    source = "with open('/dev/stdin') as file: print(file.read(), end='')\n"
    source += "import pathlib; print(pathlib.Path('/dev/stdin').read_text() == '', flush=True)\n"
    source += "with open('/dev/stdout', 'w') as file: file.write('end')"
    assert answer(script(sandbox, source, b"one\ntwo\n")) == "one\ntwo\nTrue\nend"
    assert answer(script(sandbox, "print(open.__name__, open('/dev/null').read() == '')")) == (
        "open True"
    )


def test_a_program_has_a_file_name_beside_which_nothing_lies(sandbox):
    source = "import os; print(__file__, os.path.exists(os.path.dirname(__file__) + '/input.txt'))"
    assert answer(script(sandbox, source)) == "/tmp/solution.py False"


DEEP = """
#include <stdio.h>
static long down(long depth) {
  volatile char frame[1000]; frame[0] = 1;
  return depth ? down(depth - 1) + frame[0] : 0;
}
int main(void) { printf("%ld", down(100000)); }
"""


def test_a_native_program_may_use_its_memory_as_stack(strong):
    if not strong.probe.cgroup:
        pytest.skip("compilers need a cgroup")
    program = Program(source=DEEP, language="c")
    assert answer(strong.run(program, Stdin(), Limits(memory_mb=256))) == "100000"
    assert strong.run(program, Stdin(), Limits(memory_mb=70)).ended in ("memory", "signal")


PAGE_TABLES = """
#include <sys/mman.h>
int main(void) {
  unsigned long size = 1UL << 45;
  char *p = mmap(0, size, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  volatile char c = 0;
  for (unsigned long i = 0; i < size; i += 2UL << 20) c += p[i];
}
"""


def test_the_memory_of_a_killed_program_is_not_charged_to_the_next(strong):
    """The kernel kills it before it has all its memory back, and may then kill the zygote."""
    if not strong.probe.cgroup:
        pytest.skip("compilers need a cgroup")
    with NamespaceExecutor(slots=1) as executor:
        for _ in range(4):
            killed = executor.run(Program(source=PAGE_TABLES, language="c"), Stdin(), LIMITS)
            assert killed.ended == "memory"
            following = [script(executor, "print('fine')") for _ in range(2)]
            assert [done.stdout for done in following] == [b"fine\n"] * 2, following


def test_a_zygote_that_died_between_two_runs_is_no_fault_of_the_second(sandbox):
    with NamespaceExecutor(slots=1, tier=sandbox.tier) as executor:
        assert answer(script(executor, "print(1)")) == "1"
        slot = executor._holders[0]._slot
        slot._memory_kill = lambda: "own"
        slot.process.kill()
        slot.process.wait()
        assert slot._poll.poll(20_000), "the zygote ends with its supervisor"
        assert answer(script(executor, "print(2)")) == "2"


def test_a_crash_starts_no_handler_and_writes_no_core(sandbox):
    source = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))"
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    most = 1 if hard else 0  # a limit of 0 cannot be raised
    assert answer(script(sandbox, source)) == str((most, most))
    dumpable = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    assert answer(script(sandbox, dumpable)) == "0"
