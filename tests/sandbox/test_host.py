"""Settings that forbid namespaces are named; without Linux only the sandbox is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox import darwin
from veriloop.sandbox import host
from veriloop.sandbox.probe import Layer, Probe

SCRIPT = Path(darwin.__file__)
PACKAGE = Path(__file__).parents[2] / "src/veriloop"


@pytest.mark.parametrize(
    ("file", "content", "line"),
    [
        (
            "sys/kernel/apparmor_restrict_unprivileged_userns",
            "1\n",
            "kernel.apparmor_restrict_unprivileged_userns = 1: "
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run as root, "
            "or load an AppArmor profile with `userns,` for this Python",
        ),
        (
            "sys/kernel/unprivileged_userns_clone",
            "0\n",
            "kernel.unprivileged_userns_clone = 0: "
            "sysctl -w kernel.unprivileged_userns_clone=1, or run as root",
        ),
        (
            "sys/user/max_user_namespaces",
            "0\n",
            "user.max_user_namespaces = 0: "
            "sysctl -w user.max_user_namespaces=15000, or run as root",
        ),
        (
            "sys/user/max_net_namespaces",
            "0\n",
            "user.max_net_namespaces = 0: sysctl -w user.max_net_namespaces=15000, or run as root",
        ),
        (
            "self/status",
            "Name:\tpython\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n",
            "seccomp filter of this process = 2: "
            "start the container with --security-opt seccomp=unconfined",
        ),
    ],
)
def test_a_restricting_setting_is_named_with_its_fix(tmp_path, file, content, line):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(content)
    found = host.restrictions(tmp_path)
    assert [str(restriction) for restriction in found] == [line]
    probe = Probe(
        layers=(Layer(name="user namespace", works=False, detail="EPERM"),),
        tier=0,
        way="user",
        python=None,
        restrictions=tuple(found),
    )
    assert str(probe).endswith(f"settings that forbid namespaces:\n  {line}")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("sys/kernel/apparmor_restrict_unprivileged_userns", "0"),
        ("sys/kernel/unprivileged_userns_clone", "1"),
        ("sys/user/max_user_namespaces", "15000"),
        ("self/status", "Name:\tpython\nSeccomp:\t0\n"),
        ("version", "nothing else is read"),
    ],
)
def test_a_setting_that_restricts_nothing_is_not_named(tmp_path, file, content):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    assert host.restrictions(tmp_path) == []


def test_cores_are_counted_without_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    assert host.cores() == os.cpu_count()


def on_darwin(*words, **environment):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def test_every_module_of_the_sandbox_can_be_imported_without_linux():
    script = """
import importlib, pathlib, sys
root = pathlib.Path(sys.argv[2])
for path in sorted(root.rglob("*.py")):
    words = path.relative_to(root).with_suffix("").parts
    if "shims" not in words:  # programs of the sandbox
        importlib.import_module(".".join(["veriloop.sandbox", *words]).removesuffix(".__init__"))
print("imported")
"""
    done = on_darwin("-c", script, str(PACKAGE / "sandbox"))
    assert done.stdout.strip() == "imported", done.stderr


def test_without_linux_the_check_refuses_with_a_table_of_what_is_missing():
    done = on_darwin("veriloop.stages.cli", "sandbox", "check", VERILOOP_SANDBOX="")
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "tier 1 is not available here (Linux: this is Darwin 23.6.0)" in done.stderr
    rows = [line.split() for line in done.stderr.splitlines()]
    for name in ("os.memfd_create", "os.pidfd_open", "unshare()", "mount()", "syscall()"):
        assert [name, "no", "not", "in"] in [row[:4] for row in rows]
    assert "VERILOOP_SANDBOX to one of:" in done.stderr and "  docker: " in done.stderr


@pytest.mark.parametrize("backend", ["reduced", "namespace"])
def test_without_linux_the_executor_is_refused(backend):
    done = on_darwin(
        "-c",
        f"from veriloop.sandbox.backends import open_backend\nopen_backend({backend!r})",
    )
    assert "SandboxUnavailableError: tier 1 is not available here" in done.stderr
    assert "AttributeError" not in done.stderr


def test_verifiers_that_run_no_program_work_without_linux(tmp_path):
    """The workers are new processes, so each simulates it at its start."""
    (tmp_path / "darwin.py").write_text(SCRIPT.read_text())
    (tmp_path / "sitecustomize.py").write_text("import darwin\ndarwin.become_darwin()\n")
    script = """
import sys
from veriloop.verifiers.pool import VerifierPool
from veriloop.verifiers.registry import all_verifiers
assert sys.platform == "darwin"
names = [n for n, v in all_verifiers().items() if not v.needs and n != "code_tests"]
with VerifierPool(1) as pool:
    pool.warm(names)
    print(len(names))
    pool.warm(["code_tests"])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    assert int(done.stdout) > 10, done.stderr
    assert "code_tests: SandboxUnavailableError: tier 1 is not available here (Linux:" in (
        done.stderr
    )


def test_the_doctor_names_what_is_missing_without_linux():
    script = """
from veriloop.pipeline.doctor.isolation import sandbox_layers
print(*[f"{f.name}|{f.verdict}|{f.fix}" for f in sandbox_layers(None)], sep="\\n")
"""
    done = on_darwin("-c", script)
    assert "sandbox, unshare()|skipped|run on Linux, or use --backend docker" in done.stdout, (
        done.stderr
    )


def test_a_remote_backend_is_opened_without_linux():
    script = """
from veriloop.sandbox.backends import open_backend
executor = open_backend("remote:http://127.0.0.1:9")
print(executor.backend)
executor.close()
"""
    done = on_darwin("-c", script)
    assert done.stdout.strip() == "remote", done.stderr
