"""Which Python runs untrusted code, and how one of our modules is started in it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OLDEST = (3, 11)
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",  # an arena reserves 64 MB of address space, which is bounded
}
_CHECK = """
import sys, json, ctypes, fcntl, marshal, resource, select, socket, decimal, hashlib
print(json.dumps([sys.version_info[:2], sys.base_prefix, sys.base_exec_prefix]))
"""
_BOOT = """
import sys, importlib
sys.path.insert(0, sys.argv[1])
entry = importlib.import_module(sys.argv[2])
sys.path.pop(0)
entry.main(sys.argv[3:])
"""
_CHECK_LIMIT_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python and the folders it needs."""

    path: str
    read_only: tuple[str, ...]

    def command(self, module: str, *arguments: str) -> list[str]:
        """Start `module`.main(arguments); not -I, which would forget the hash seed."""
        flags = ["-P", "-s", "-B", "-X", "utf8"]
        return [self.path, *flags, "-c", _BOOT, str(ROOT), module, *arguments]


@cache
def find() -> Interpreter:
    """The system's Python, else the one below our own environment. Raises OSError for neither."""
    own = f"{sys.base_prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    reasons = []
    for path in ("/usr/bin/python3", own):
        found = _examine(path)
        if isinstance(found, Interpreter):
            return found
        reasons.append(f"{path}: {found}")
    raise OSError("no Python for the sandbox: " + "; ".join(reasons))


def _examine(path: str) -> Interpreter | str:
    """The interpreter, or why it will not do."""
    command = [path, "-P", "-s", "-B", "-c", _CHECK]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=_CHECK_LIMIT_S, env=ENVIRONMENT
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return str(failure)
    if ran.returncode:
        return (ran.stderr.strip().splitlines() or ["it failed"])[-1]
    version, *prefixes = json.loads(ran.stdout)
    if tuple(version) < OLDEST:
        return f"is {version[0]}.{version[1]}, older than {OLDEST[0]}.{OLDEST[1]}"
    outside = [os.path.realpath(p) for p in prefixes if not Path(p).is_relative_to("/usr")]
    return Interpreter(path=path, read_only=("/usr", *dict.fromkeys(outside)))
