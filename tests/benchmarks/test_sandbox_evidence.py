"""The scripts that prove the sandbox holds would notice if it did not."""

import importlib
import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.probe import probe

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
MARKED = (BENCHMARKS / "marked_program.py").read_text()
OTHER = "mark-test-000001"


@pytest.fixture
def script(monkeypatch):
    """A benchmark as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.fixture(scope="module")
def box():
    if probe().tier != 1:
        pytest.skip(str(probe()))
    with NamespaceExecutor(slots=1) as executor:
        yield executor


PLANTED = {
    "files": f"open('/tmp/{OTHER}', 'w').close()",
    "environment": f"import os; os.environ['ANY'] = '{OTHER}'",
    "arguments": f"import sys; sys.argv.append('{OTHER}')",
    "thread names": "import ctypes; ctypes.CDLL(None).prctl(15, b'mark000001', 0, 0, 0)",
    "modules": "import builtins; builtins.veriloop_mark = 1",
    "signals": "import signal; signal.signal(signal.SIGUSR1, lambda *_: None)",
    "umask": "import os; os.umask(0)",
    "folder": "import os; os.mkdir('/tmp/d'); os.chdir('/tmp/d')",
    "limits": "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (20, 20))",
    "descriptors": "import os; os.dup2(0, 40)",
    "objects": f"import gc; held = ['{OTHER}']; gc.collect(); gc.freeze()",
    "memory": f"held = b'-' * 50_000 + b'{OTHER}'",
}


@pytest.mark.slow
@pytest.mark.parametrize("channel", PLANTED)
def test_the_marked_program_sees_a_mark_in_every_channel_it_looks_into(box, channel):
    source = f"{PLANTED[channel]}\n{MARKED}"
    ran = box.run(Program(source=source), Stdin(data=b"mark-test-000002\n"), Limits())
    assert ran.ended == "ok", ran.stderr
    assert channel in json.loads(ran.stdout)


def test_the_marked_program_finds_nothing_in_runs_that_follow_each_other(box):
    for number in range(3):
        mark = f"mark-test-{number:06d}\n".encode()
        ran = box.run(Program(source=MARKED), Stdin(data=mark), Limits())
        assert (ran.ended, ran.stdout) == ("ok", b"[]\n"), ran.stderr


@pytest.mark.slow
def test_a_footprint_counts_what_is_held(script):
    footprint = script("footprint").footprint
    before = footprint()
    holds = [sys.executable, "-c", "held = b'x' * (1 << 27); print(flush=True); input()"]
    with subprocess.Popen(holds, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()  # it holds 128 MiB
        after = footprint()
        child.kill()
    assert after["descriptors"] == before["descriptors"] + 2
    assert after["processes"] == before["processes"] + 1
    assert after["mounts"] == before["mounts"] > 0 and after["own_kb"] > 1000
    # Workers of other tests may give memory back meanwhile.
    assert after["slots_kb"] > before["slots_kb"] + 64 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1 << 22, 4096])
def test_memory_is_searched_across_the_seams_of_what_is_read(script, monkeypatch, chunk):
    module = script("footprint")
    monkeypatch.setattr(module, "_CHUNK", chunk)
    text = os.urandom(24)
    with mmap.mmap(-1, 1 << 16) as memory:
        for place in (0, 4096 - 12, 8192 - 24, (1 << 16) - 24):
            memory[place : place + 24] = text
        found = module.scan([os.getpid()], text)
        assert len(found["hits"]) >= 4 and found["processes"] == 1 and found["mib"] > 1
    with subprocess.Popen(["sleep", "60"]) as child:
        found = module.scan([child.pid], text)
        child.kill()
    assert found["hits"] == [] and found["processes"] == 1


SOAKED = {
    "tier": 1,
    "before": {"descriptors": 14, "own_kb": 20_000},
    "after": {"descriptors": 14, "own_kb": 28_000},
    "closed": {"processes": 0, "cgroups": 0, "mounts": 21},
    "marks_seen": {},
    "zygotes": {"processes": 6, "mib": 60.0, "hits": []},
    "own_memory_hits": 3,
    "wrong": [],
}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, []),
        ({"after": {"descriptors": 15, "own_kb": 1}}, ["descriptors grew from 14 to 15"]),
        ({"after": {"descriptors": 1, "own_kb": 40_000}}, ["own_kb grew from 20000 to 40000"]),
        ({"closed": {"processes": 1, "cgroups": 0}}, ["processes left after closing"]),
        ({"marks_seen": {'["files"]': 2}}, ['saw a mark: ["files"]']),
        ({"zygotes": {"processes": 6, "hits": ["process 7"]}}, ["a mark in process 7"]),
        ({"wrong": ["looking: no"]}, ["looking: no"]),
        (
            {"own_memory_hits": 0},
            ["memory could not be searched, so this proves nothing about it"],
        ),
    ],
)
def test_a_soak_fails_on_every_leak(script, change, told):
    assert script("sandbox_soak").missed({**SOAKED, **change}) == [f"tier 1: {one}" for one in told]


def test_one_run_in_five_is_hostile_and_two_in_five_look(script):
    soak = script("sandbox_soak")
    todo = soak.jobs(soak.Record())
    names = [next(todo).__qualname__.split(".")[0] for _ in range(100)]
    counts = {name: names.count(name) for name in names}
    assert counts == {"hostile": 20, "looking": 40, "calling": 20, "honest": 20}


def ran(load, **change):
    fields = {"name": "x", "wanted": "ok", "ended": "ok", "cpu_s": 1.0, "wall_s": 5.0}
    return load.Ran(**{**fields, "cpu_limit_s": 2.0, "wall_limit_s": 7.0, **change})


def test_the_load_script_fails_on_a_wrong_end_and_on_a_sleeper_that_stays(script):
    load = script("sandbox_load")
    late = ran(load, name="z", wanted="wall", ended="wall", wall_s=8.0)
    assert load.missed([ran(load), ran(load, wanted="cpu", ended="cpu"), late]) == [
        "z: ended only after 8.0 s"
    ]
    told = load.missed([ran(load, ended="wall")])
    assert told == ["x: wall, not ok, after 1.00 s of CPU and 5.0 s (2 s of CPU were allowed)"]


def test_the_load_script_says_what_a_wall_limit_would_have_done(script):
    load = script("sandbox_load")
    runs = [ran(load, wall_s=s) for s in (1.0, 5.0, 9.0)] + [ran(load, ended="wall", wall_s=7.1)]
    found = load.summary([*runs, ran(load, wanted="cpu", ended="cpu", wall_s=99.0)])
    assert found == {
        "honest": 4, "refused": 1, "refused_by_wall_of_cpu_limit": 3,
        "refused_by_default_wall": 2, "slowest_s": 9.0,
    }  # fmt: skip


@pytest.mark.slow
def test_busy_loops_run_and_end(script):
    loops = script("busy_loops")
    descendants = script("footprint").descendants
    before = len(descendants(os.getpid()))
    with loops.busy_loops(2):
        assert len(descendants(os.getpid())) == before + 2
    assert len(descendants(os.getpid())) == before


@pytest.mark.slow
def test_the_matrix_names_effects_refusals_and_what_was_skipped(script):
    suite = script("sandbox_suite")
    setting = suite.Setting(name="root", tier=2)
    bad = {"file": "a.py", "effect": "escaped", "why": ""}
    report = {
        "tier": 2,
        "attacks": [bad, {"file": "b.py", "effect": "none"}],
        "honest": [
            {"file": suite.NEEDS_FILES[0], "accepted": False, "why": ""},
            {"file": "honest/x.py", "accepted": False, "why": "wrong"},
        ],
        "missing": ["tcp (in use)"],
    }
    found = suite.row(setting, Path("/s/cases"), report, 1.0)
    assert suite.cells(found)[:7] == ["cases", "root", "2", "2", "1", "2", "1"]
    notes = f"needs files: {suite.NEEDS_FILES[0]}; no target: tcp (in use)"
    assert suite.cells(found)[7] == notes
    assert suite.missed(found) == [
        "cases, root, tier 2: a.py: escaped",
        "cases, root, tier 2: honest/x.py refused: wrong",
    ]
    skipped = suite.row(setting, Path("/s/cases"), {"skipped": "no daemon"}, 1.0)
    assert suite.cells(skipped)[3:] == ["-", "-", "-", "-", "skipped: no daemon"]
    assert suite.missed(skipped) == []
    strict = suite.row(suite.Setting(name="root", tier=1), Path("/s/c"), {**report, "tier": 1}, 1.0)
    assert len(strict["refused"]) == 2  # with a file tree there is no excuse


@pytest.mark.slow
def test_what_another_account_reads_is_whole_and_readable(script):
    suite = script("sandbox_suite")
    with suite.readable(suite.OWN, quick=True) as place:
        words = [str(place), str(place / "suite")]
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
            "from veriloop.sandbox.suite import load; import veriloop.verifiers.code.tests\n"
            "print([len(many) for many in load(Path(sys.argv[2]))])"
        )
        done = subprocess.run(
            [sys.executable, "-S", "-P", "-c", code, *words], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        attacks, honest = json.loads(done.stdout)
        assert 10 < attacks < 60 and honest >= 10
        assert all(path.stat().st_mode & 0o044 == 0o044 for path in place.rglob("*"))
    assert not place.exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sandbox_soak.py", "sandbox_suite.py"])
def test_a_quick_run_holds_here(name, tmp_path):
    if not probe().tier:
        pytest.skip(str(probe()))
    file = tmp_path / "out.json"
    words = [sys.executable, str(BENCHMARKS / name), "--quick", "--json", str(file)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert json.loads(file.read_text())["failed"] == []
