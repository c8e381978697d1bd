"""Who made a result: told where it can be known, "unknown" where not, never an error."""

import platform
import subprocess
from importlib import metadata

import pytest

from veriloop.pipeline.runs import provenance as told


def git(*arguments, at):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    ran = subprocess.run(
        ["git", "-C", str(at), *who, *arguments], check=True, capture_output=True, text=True
    )
    return ran.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "a.py").write_text("1\n")
    git("init", "-q", at=tmp_path)
    git("add", "a.py", at=tmp_path)
    git("commit", "-q", "-m", "one", at=tmp_path)
    return tmp_path


def test_versions_and_machine_are_those_of_this_process():
    found = told.identity()
    assert found["versions"]["python"] == platform.python_version()
    assert found["versions"]["torch"] == metadata.version("torch")
    assert found["versions"]["transformers"] == metadata.version("transformers")
    assert found["machine"]["cores"] >= 1 and found["machine"]["memory_gib"] > 0
    assert found["machine"]["cpu"] and set(found["git"]) == {"commit", "dirty"}


@pytest.mark.parametrize(
    ("lines", "flags", "bfloat16"),
    [
        ("flags\t\t: fpu avx2 avx512_bf16\nflags\t\t: fpu", {"fpu", "avx2", "avx512_bf16"}, True),
        ("model name\t: avx512_bf16\nflags\t\t: fpu avx2", {"fpu", "avx2"}, False),
        ("Features\t: fp asimd bf16", {"fp", "asimd", "bf16"}, True),
        ("Features\t: fp asimd", {"fp", "asimd"}, False),
        ("processor\t: 0", set(), True),
    ],
)
def test_the_flags_of_a_cpu_tell_whether_it_computes_bfloat16(
    tmp_path, monkeypatch, lines, flags, bfloat16
):
    monkeypatch.setattr(told, "CPU_INFO", tmp_path / "cpuinfo")
    assert told.cpu_flags() == set()
    told.CPU_INFO.write_text(lines)
    assert told.cpu_flags() == flags
    assert told.computes_bfloat16(told.cpu_flags()) is bfloat16


def test_a_package_that_is_absent_says_so(monkeypatch):
    monkeypatch.setattr(told, "_DISTRIBUTIONS", {"vllm": ("no-such-distribution-anywhere",)})
    assert told.identity()["versions"]["vllm"] == "not installed"


def test_a_package_is_found_under_its_second_name(monkeypatch):
    names = ("no-such-distribution-anywhere", "numpy")
    monkeypatch.setattr(told, "_DISTRIBUTIONS", {"x": names})
    assert told.identity()["versions"]["x"] == metadata.version("numpy")


def test_the_commit_is_clean_until_a_file_changes_or_appears(checkout):
    commit = git("rev-parse", "HEAD", at=checkout)
    assert told.git(checkout) == {"commit": commit, "dirty": False}
    (checkout / "new.py").write_text("2\n")
    assert told.git(checkout) == {"commit": commit, "dirty": True}
    (checkout / "new.py").unlink()
    (checkout / "a.py").write_text("3\n")
    assert told.git(checkout) == {"commit": commit, "dirty": True}


def test_a_folder_inside_somebody_elses_repository_claims_no_commit(checkout):
    inside = checkout / "site-packages"
    inside.mkdir()
    assert told.git(inside) == {"commit": "unknown", "dirty": "unknown"}


def test_a_git_hook_around_us_does_not_change_the_answer(checkout, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nowhere/.git")
    assert told.git(checkout)["dirty"] is False


def test_without_git_or_a_repository_or_a_commit_it_is_unknown(checkout, tmp_path, monkeypatch):
    bare = tmp_path / "bare"
    bare.mkdir()
    unknown = {"commit": "unknown", "dirty": "unknown"}
    assert told.git(tmp_path / "missing") == unknown
    git("init", "-q", at=bare)
    assert told.git(bare) == unknown
    monkeypatch.setenv("PATH", str(bare))
    assert told.git(checkout) == unknown
    assert told.identity()["git"] == unknown and told.identity()["machine"]["gpus"] == []


def test_a_git_that_hangs_is_unknown(checkout, monkeypatch):
    def hang(command, **options):
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", hang)
    assert told.git(checkout) == {"commit": "unknown", "dirty": "unknown"}


def test_the_hash_of_the_code_is_of_all_packages_and_nothing_else(tmp_path, monkeypatch):
    for name in ("data/a.py", "pipeline/rl/b.py", "tests/c.py", "data/d.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    monkeypatch.setattr(told, "_ROOT", tmp_path)
    hashed = told.code_hash.__wrapped__
    first = hashed()
    for name in ("tests/c.py", "data/d.txt"):
        (tmp_path / name).write_text("2")
        assert hashed() == first
    (tmp_path / "pipeline/rl/b.py").write_text("2")
    assert hashed() != first
