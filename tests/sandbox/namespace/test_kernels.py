"""Without newer system calls a run is isolated the same; the kernel itself refuses the calls."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.conftest import SUITES
from tests.sandbox.namespace.refuse_calls import INITRAMFS, LINUX_5_4, command
from veriloop.sandbox import host
from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace import requests
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.probe import probe

HERE = Path(__file__).parent
FILE_ATTACKS = ("kernel", "host", "race", "persistence", "side_channel")
WITHOUT = {
    "linux 5.4": (LINUX_5_4, "pivot_root, remount"),
    "initramfs": (INITRAMFS, "MS_MOVE and chroot, mount_setattr"),
    "both": (LINUX_5_4 | INITRAMFS, "MS_MOVE and chroot, remount"),
    "old filter": (  # of a container: EPERM for calls that it does not know
        dict.fromkeys(("mount_setattr", "close_range", "pivot_root"), "EPERM"),
        "MS_MOVE and chroot, remount",
    ),
}

pytestmark = pytest.mark.skipif(probe().tier != 1, reason="needs tier 1")


def survey(way, refused):
    """What a program sees and can change of the file tree, and the probe's details."""
    words = command(refused, sys.executable, str(HERE / "survey.py"), way)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module", params=["root", "user"])
def way(request):
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("not root")
    return request.param


@pytest.fixture(scope="module")
def usual(way):
    return survey(way, {})


def test_the_usual_tree_is_read_only_and_hides_the_host(way, usual):
    facts, details = usual
    assert details[f"file tree as {way}"] == "pivot_root, mount_setattr"
    changes = {facts[key] for key in facts if key.startswith(("make ", "call ", "write /usr"))}
    assert changes <= {"EROFS", "EPERM", "EACCES"}
    assert not any(facts[key] for key in facts if key.startswith("exists "))
    assert facts["list /usr/src/a b"] == ["file"] and facts["list /"] == facts["above"]


@pytest.mark.parametrize(("refused", "calls"), WITHOUT.values(), ids=WITHOUT)
def test_a_fallback_gives_the_same_tree(way, usual, refused, calls):
    facts, details = survey(way, refused)
    assert details[f"file tree as {way}"] == calls
    assert facts == usual[0]


def check(refused, suite):
    """`veriloop sandbox check` without these calls: (exit status, output)."""
    words = ["-m", "veriloop.stages.cli", "sandbox", "check", "--suite", str(suite)]
    done = subprocess.run(
        command(refused, sys.executable, *words), capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def write_part(cases, part):
    """A suite with the attacks on files of `cases` and its honest programs; the attacks' number."""
    numbers = []
    for name in ("manifest.jsonl", "honest_manifest.jsonl"):
        rows = [json.loads(line) for line in (cases / name).read_text().splitlines()]
        chosen = [row for row in rows if row.get("class", "kernel") in FILE_ATTACKS]
        chosen = [row for row in chosen if not row.get("run_beside")]
        (part / name).write_text("".join(json.dumps(row) + "\n" for row in chosen))
        numbers.append(len(chosen))
    for path in cases.iterdir():
        if not (part / path.name).exists():
            (part / path.name).symlink_to(path)
    return numbers[0]


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_file_attacks_fail_and_honest_programs_pass_with_the_fallbacks(tmp_path, suite):
    if not SUITES[suite].is_dir():
        pytest.skip(f"no suite at {SUITES[suite]}")
    attacks = write_part(SUITES[suite], tmp_path)
    status, output = check(WITHOUT["both"][0], tmp_path)
    assert status == 0 and f"tier 1: {attacks} attacks" in output, output


@pytest.mark.parametrize(
    ("refused", "row"),
    [
        ({"unshare": "EPERM"}, "seccomp filter of this process = 2: start the container with"),
        ({"unshare": "EPERM"}, "unshare(0x5c020000): Operation not permitted"),
        ({"seccomp": "ENOSYS"}, "seccomp: Function not implemented"),
        ({"pidfd_open": "ENOSYS"}, "Function not implemented"),  # Linux before 5.3
        ({"mount": "EPERM"}, "mount None on / (bind): Operation not permitted"),
    ],
)
def test_what_has_no_fallback_is_refused_with_the_table(refused, row):
    script = (
        "from veriloop.sandbox.backends import open_backend\n"
        "try:\n    open_backend('namespace')\nexcept RuntimeError as refusal:\n    print(refusal)"
    )
    done = subprocess.run(
        command(refused, sys.executable, "-c", script), capture_output=True, text=True, check=True
    )
    assert "tier 1 is not available here" in done.stdout and row in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ("5.4.0-42-generic", (5, 4)),
        ("6.18.44-fc-v657", (6, 18)),
        ("6.1", (6, 1)),
        ("5.10+deb11", (5, 10)),
        ("22.6.0", (22, 6)),
        ("", (0, 0)),
        ("rolling", (0, 0)),
        ("7.x", (0, 0)),
    ],
)
def test_the_version_of_the_kernel(monkeypatch, release, version):
    monkeypatch.setattr(host.platform, "release", lambda: release)
    assert host.kernel() == version


THREADS = """
import threading
started = [threading.Thread(target=print, args=(n,)) for n in range(20)]
for thread in started: thread.start()
for thread in started: thread.join()
"""


@pytest.mark.parametrize(
    ("version", "way", "shared"),
    [((5, 13), "user", 1), ((5, 14), "user", 0), ((5, 4), "root", 0), ((6, 1), "user", 0)],
)
def test_tasks_of_the_account_are_added_where_a_user_namespace_does_not_count_its_own(
    monkeypatch, version, way, shared
):
    monkeypatch.setattr(requests, "kernel", lambda: version)
    setup = requests.Setup(python=probe().python, tier=1, way=way, site=None)
    run = requests.prepare_run(setup, b"", Stdin(), Limits(), share=False)
    run.close()
    assert run.request.shared_account == shared


def test_honest_threads_start_where_tasks_are_counted_per_account(monkeypatch):
    monkeypatch.setattr(requests, "kernel", lambda: (5, 4))
    with NamespaceExecutor(slots=1) as executor:
        executor._setup = executor._holders[0]._setup = requests.Setup(
            python=probe().python, tier=1, way="user", site=None
        )
        executor._holders[0].close()
        run = executor.run(Program(source=THREADS), Stdin(), Limits())
    assert run.ended == "ok" and len(run.stdout.split()) == 20, (run.why, run.stderr)
