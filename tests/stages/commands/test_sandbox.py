"""`veriloop sandbox check`: the matrix, the file and the exit code; refusals name what is known."""

import json
import os
import shutil
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from veriloop.pipeline.errors import RecipeError, StageError
from veriloop.sandbox import probe
from veriloop.sandbox.canaries import Canaries
from veriloop.sandbox.docker.image import BuiltImage
from veriloop.sandbox.result import Execution
from veriloop.sandbox.suite import AttackResult, HonestResult, SuiteReport, load
from veriloop.stages import cli as command
from veriloop.stages.commands import sandbox as sandbox_command
from veriloop.stages.commands.sandbox import grade, matrix, open_backend

LIMITS = {"wall_s": 3, "cpu_s": 2, "mem_mb": 64, "disk_mb": 8, "procs": 3, "out_mb": 1}
DOUBLE = {"args": [4], "expected": 8}


class Answering:
    """An executor that answers 8 to the source "right", and fails on our side for "lost"."""

    backend, tier, table = "answering", 2, "sandbox: tier 2\n  seccomp  yes"

    def __init__(self, allow_reduced=False):
        self.allow_reduced = allow_reduced
        self.limits = []
        self.closed = False

    def run_all(self, program, given, limits):
        self.limits.append(limits)
        ended = "sandbox_error" if program.source == "lost" else "ok"
        value = 8 if program.source == "right" else 7
        return [Execution(ended=ended, value=value, why="gone")] * len(given)

    def close(self):
        self.closed = True


@pytest.fixture
def boxes(monkeypatch):
    """Backends that answer; every one that was opened."""
    opened = []

    def opening(**options):
        assert options.pop("slots") is None
        opened.append(Answering(**options))
        return opened[-1]

    module = SimpleNamespace(NamespaceExecutor=opening)
    monkeypatch.setitem(sys.modules, "veriloop.sandbox.namespace.pool", module)
    return opened


@pytest.fixture
def suite(tmp_path):
    def make(attacks, honest):
        for name, sources in (("manifest", attacks), ("honest_manifest", honest)):
            rows = []
            for file, source in sources.items():
                (tmp_path / file).write_text(source)
                row = {"file": file, "kind": "function", "fn_name": "f", "tests": [DOUBLE]}
                rows.append({**row, "must": "no_reward", "class": file[0], "limits": LIMITS})
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (tmp_path / f"{name}.jsonl").write_text(text)
        return str(tmp_path)

    return make


@pytest.fixture(autouse=True)
def no_targets(monkeypatch):
    """Without listeners and files outside: they have tests of their own."""

    class Nothing:
        def __enter__(self):
            return Canaries(secret="RLVR-CANARY-x", missing=("tcp (in use)",))

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(sandbox_command, "canaries", Nothing)


def test_a_clean_suite_is_exit_code_0(boxes, suite, tmp_path, capsys):
    folder = suite({"a.py": "wrong", "b.py": "wrong"}, {"h.py": "right"})
    file = tmp_path / "found.json"
    words = ["sandbox", "check", "--suite", folder, "--json", str(file)]
    assert sandbox_command.command(words) == 0 == command.main(words)
    said = capsys.readouterr().out
    assert "answering, tier 2: 2 attacks, 1 honest" in said and "seccomp  yes" in said
    assert "could not be tried: tcp (in use)" in said
    found = json.loads(file.read_text())
    assert {name: found[name] for name in ("tier", "backend", "missing")} == {
        "tier": 2, "backend": "answering", "missing": ["tcp (in use)"]
    }  # fmt: skip
    assert found["attacks"][0] == {
        "file": "a.py", "effect": "none", "reward": 0.0, "ended": "ok",
        "why": "0 of 1 tests passed; ended otherwise: 1 wrong",
    }  # fmt: skip
    assert found["honest"] == [{"file": "h.py", "accepted": True, "why": "1 of 1 tests passed"}]
    assert all(box.closed and not box.allow_reduced for box in boxes) and len(boxes) == 2


@pytest.mark.parametrize(
    ("attacks", "honest", "said"),
    [
        ({"a.py": "right"}, {}, "a.py: rewarded (reward 1.0, 1 of 1 tests passed)"),
        ({"a.py": "lost"}, {}, "a.py: no verdict (reward None, sandbox_error: gone;"),
        ({"a.py": "wrong"}, {"h.py": "wrong"}, "h.py: refused (0 of 1 tests passed;"),
    ],
)
def test_whatever_gets_through_is_reported_and_exit_code_1(
    boxes, suite, capsys, attacks, honest, said
):
    assert sandbox_command.command(["sandbox", "check", "--suite", suite(attacks, honest)]) == 1
    assert said in capsys.readouterr().out and boxes[0].closed


def test_limits_of_the_suite_reach_the_runs(boxes, suite):
    folder = suite({"a.py": "wrong"}, {})
    words = ["sandbox", "check", "--suite", folder]
    sandbox_command.command([*words, "--processes", "--allow-reduced"])
    sandbox_command.command(words)
    sandbox_command.command([*words, "--backend", "reduced"])
    first, second, _ = (box.limits[0] for box in boxes)
    assert (first.cpu_s, first.wall_s, first.memory_mb, first.disk_mb) == (2, 3, 64, 8)
    assert (first.processes, second.processes) == (3, 0)
    assert [box.allow_reduced for box in boxes] == [True, False, True]


def test_an_executor_that_breaks_is_closed(boxes, suite, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("out of the blue")

    monkeypatch.setattr(sandbox_command, "run_suite", broken)
    with pytest.raises(RuntimeError, match="out of the blue"):
        sandbox_command.command(["sandbox", "check", "--suite", suite({"a.py": "x"}, {})])
    assert boxes[0].closed


def test_the_matrix_has_a_line_for_each_class(suite):
    cases, _ = load_from(suite({"a.py": "x", "a2.py": "x", "b.py": "x"}, {}))
    effects = ["none", "rewarded", "none"]
    report = SuiteReport(
        tier=1,
        backend="x",
        attacks=[
            AttackResult(file=case.file, effect=effect, reward=0.0, ended="ok", why="")
            for case, effect in zip(cases, effects, strict=True)
        ],
        honest=[
            HonestResult(file="", accepted=accepted, why="") for accepted in (True, False, True)
        ],
        missing=(),
    )
    lines = [line.split() for line in matrix(report, cases).splitlines()]
    assert lines == [
        ["class", "attacks", "through"], ["a", "2", "1"], ["b", "1", "0"], ["all", "3", "1"],
        ["honest", "programs:", "3,", "refused:", "1"],
    ]  # fmt: skip


def load_from(folder):
    return load(Path(folder))


def test_grading_is_the_verifiers(suite):
    cases, _ = load_from(suite({"a.py": "right", "b.py": "wrong", "c.py": "lost"}, {}))
    assert [grade(Answering(), case)[0] for case in cases] == [1.0, 0.0, None]


def test_a_folder_without_a_suite_is_a_mistake(tmp_path, capsys):
    assert command.main(["sandbox", "check", "--suite", str(tmp_path)]) == 2
    assert "is not a suite: it has no manifest.jsonl" in capsys.readouterr().err


def test_an_unknown_backend_names_the_nearest(capsys):
    assert command.main(["sandbox", "check", "--backend", "namespaces"]) == 2
    assert "no backend 'namespaces'. Did you mean 'namespace'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--backend", "remote"], "backend 'remote' must be written remote:URL"),
        (["--backend", "remote:nowhere"], "'nowhere' is no address of a server"),
        (["--backend", "remote:http://127.0.0.1:9", "--allow-reduced"],
         "--allow-reduced means --backend reduced, not 'remote:http://127.0.0.1:9'"),
    ],
)  # fmt: skip
def test_a_backend_that_is_written_wrong_is_a_mistake(suite, capsys, flags, said):
    assert command.main(["sandbox", "check", "--suite", suite({"a.py": "x"}, {}), *flags]) == 2
    assert said in capsys.readouterr().err


def served(boxes, flags, capsys, ask):
    """Serve until `ask` has been called with the address; (exit code, what was printed)."""
    said = []

    def interrupt_when_told():
        while not (text := capsys.readouterr().out):
            time.sleep(0.01)
        said.append(text)
        try:
            ask(text.split()[0].rstrip(":"))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    asking = threading.Thread(target=interrupt_when_told)
    asking.start()
    try:
        code = command.main(["sandbox", "serve", "--port", "0", *flags])
    finally:
        asking.join()
        signal.signal(signal.SIGTERM, before)
    return code, said[0]


def test_a_sandbox_is_lent_until_an_interrupt(boxes, capsys):
    health = []

    def ask(url):
        with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
            health.append(json.load(answer))

    code, said = served(boxes, [], capsys, ask)
    assert code == 0 and said.endswith(": answering, tier 2; Ctrl-C ends it\n")
    assert health == [{"backend": "answering", "tier": 2}] and boxes[0].closed


def test_a_token_of_the_environment_guards_it(boxes, capsys, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    found = []

    def ask(url):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{url}/health", timeout=10)
        found.append(refused.value.code)
        refused.value.close()

    assert served(boxes, ["--token-variable", "MY_TOKEN"], capsys, ask)[0] == 0
    assert found == [401]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--host", "0.0.0.0"], "cannot serve on 0.0.0.0:8080: host '0.0.0.0' is not loopback"),
        (["--port", "99999"], "cannot serve on 127.0.0.1:99999"),
        (["--token-variable", "NOT_SET"], "--token-variable NOT_SET holds no token"),
        (["--backend", "dokcer"], "Did you mean 'docker'?"),
    ],
)
def test_what_cannot_be_lent_is_a_mistake_and_leaves_nothing_open(boxes, capsys, flags, said):
    assert command.main(["sandbox", "serve", *flags]) == 2
    assert said in capsys.readouterr().err
    assert all(box.closed for box in boxes)


def test_a_machine_that_cannot_isolate_is_refused_with_the_table(suite, monkeypatch, capsys):
    def refusing(**_):
        raise probe.SandboxUnavailableError("tier 1 is not to be had here\n  seccomp  no")

    module = SimpleNamespace(NamespaceExecutor=refusing)
    monkeypatch.setitem(sys.modules, "veriloop.sandbox.namespace.pool", module)
    with pytest.raises(sandbox_command.SandboxRefusedError, match="seccomp  no"):
        open_backend("namespace")
    folder = suite({"a.py": "x"}, {})
    assert command.main(["sandbox", "check", "--suite", folder]) == 1
    assert "SandboxRefusedError: tier 1 is not to be had here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sandbox"], "Expected one of {check, serve, build-image}"),
        (["sandbox", "chekc"], "no command 'sandbox chekc'. Did you mean 'check'?"),
        (["sandbox", "run", "x"], "no command 'sandbox run'. Allowed: check, serve, build-image"),
    ],
)
def test_an_unknown_verb_names_the_allowed_ones(words, message, capsys):
    assert command.main(words) == 2
    assert message in capsys.readouterr().err


def test_help_is_there_on_both_levels(capsys):
    assert command.main(["sandbox", "--help"]) == 0
    assert "usage: veriloop sandbox [-h] {check,serve,build-image}" in capsys.readouterr().out
    assert command.main(["sandbox", "check", "--help"]) == 0
    assert "--allow-reduced" in capsys.readouterr().out
    assert command.main(["sandbox", "serve", "--help"]) == 0
    assert "--token-variable" in capsys.readouterr().out


@pytest.mark.slow
def test_a_part_of_the_projects_own_suite_is_contained_here(tmp_path, capsys, monkeypatch):
    """All of it is tried beside the sandbox, at each tier."""
    monkeypatch.undo()
    suite, file = tmp_path / "suite", tmp_path / "found.json"
    shutil.copytree(sandbox_command.SUITE, suite)
    for name in ("manifest.jsonl", "honest_manifest.jsonl"):
        rows = (suite / name).read_text().splitlines(keepends=True)
        alone = [row for row in rows if "run_after" not in row and "run_beside" not in row]
        (suite / name).write_text("".join(alone[::9]))
    words = ["sandbox", "check", "--suite", str(suite), "--json", str(file)]
    assert command.main(words) == 0, capsys.readouterr().out
    found = json.loads(file.read_text())
    assert len(found["attacks"]) >= 20 and len(found["honest"]) >= 3
    assert {one["effect"] for one in found["attacks"]} == {"none"}
    ends = {one["ended"] for one in found["attacks"]}
    assert {"ok", "error", "protocol"} <= ends and "sandbox_error" not in ends


@pytest.fixture
def builds(monkeypatch):
    """Calls of the image builder, which raises the first element if it is an exception."""
    calls = []

    def build(tag, base):
        calls.append((tag, base))
        if isinstance(calls[0], Exception):
            raise calls[0]
        return BuiltImage(tag="veriloop-sandbox:abc", size_mb=50.4)

    monkeypatch.setattr(sandbox_command, "build", build)
    return calls


def test_the_image_of_this_machine_is_kind_by_its_name(builds, capsys):
    assert sandbox_command.command(["sandbox", "build-image"]) == 0
    assert capsys.readouterr().out == "veriloop-sandbox:abc: 50 MB\n"
    assert builds == [("", None)]


def test_a_name_and_a_base_are_passed_on(builds, tmp_path):
    base = tmp_path / "base.tar"
    base.touch()
    words = ["--tag", "mine:1", "--from-rootfs", str(base)]
    assert sandbox_command.command(["sandbox", "build-image", *words]) == 0
    assert builds == [("mine:1", base)]


def test_a_base_that_is_not_there_is_refused(builds):
    with pytest.raises(RecipeError, match=r"--from-rootfs /nowhere\.tar: no such file"):
        sandbox_command.command(["sandbox", "build-image", "--from-rootfs", "/nowhere.tar"])
    assert not builds


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (probe.SandboxUnavailableError("no daemon"), StageError),
        (ValueError("no python"), RecipeError),
        (OSError("no libraries"), StageError),
    ],
)
def test_a_failure_is_kind_in_one_line(builds, raised, kind):
    builds.append(raised)
    with pytest.raises(kind, match=str(raised)):
        sandbox_command.command(["sandbox", "build-image"])
