"""The Python interpreter that runs untrusted code, and how a sandbox module is started in it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

VARIABLE = "VERILOOP_SANDBOX_PYTHON"  # environment variable with the path of another interpreter
PACKAGE = Path(__file__).parent  # the folder of veriloop.sandbox
OLDEST = (3, 11)
HIDDEN = "/tmp"  # replaced by each program's own
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",  # each arena would reserve 64 MB of the limited address space
}
_CHECK = """
import sys, json, ctypes, fcntl, marshal, resource, select, socket, decimal, hashlib
from importlib.util import find_spec
prefixes = [sys.prefix, sys.base_prefix, sys.base_exec_prefix]
print(json.dumps([sys.version_info[:2], find_spec("numpy") is not None, *prefixes]))
"""
# Only veriloop.sandbox.* can be imported from our installation: its parent folder, which may be a
# whole site-packages, is never on sys.path, and no other module of it can replace a standard one.
_BOOT = """
import sys, importlib, types
for name, path in ("veriloop", []), ("veriloop.sandbox", [sys.argv[1]]):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
importlib.import_module("veriloop.sandbox." + sys.argv[2]).main(sys.argv[3:])
"""
_CHECK_LIMIT_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python executable and the folders it needs."""

    path: str
    read_only: tuple[str, ...]
    numpy: bool = False  # whether programs can import numpy

    def __str__(self) -> str:
        return f"{self.path} {'with' if self.numpy else 'without'} numpy ({VARIABLE} names another)"

    def command(self, module: str, *arguments: str) -> list[str]:
        """The command that calls main(arguments) of the module veriloop.sandbox.`module`."""
        flags = ["-P", "-s", "-B", "-X", "utf8"]  # not -I, which would ignore PYTHONHASHSEED
        return [self.path, *flags, "-c", _BOOT, str(PACKAGE), module, *arguments]


@cache
def find() -> Interpreter:
    """The Python that VERILOOP_SANDBOX_PYTHON names, with its environment; without the variable the
    system's Python, else the base of our environment. Raises OSError if none works."""
    own = f"{sys.base_prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    chosen = os.environ.get(VARIABLE)
    reasons = []
    for path in [_real_folder(chosen)] if chosen else ["/usr/bin/python3", own]:
        interpreter = _examine(path)
        if isinstance(interpreter, Interpreter):
            return interpreter
        reasons.append(f"{path}: {interpreter}")
    source = f"{VARIABLE}={chosen}: " if chosen else ""
    raise OSError(f"no Python for the sandbox: {source}" + "; ".join(reasons))


def _real_folder(path: str) -> str:
    """The path with its folder resolved; the file may be a link that identifies an environment."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def _examine(path: str) -> Interpreter | str:
    """The interpreter, or the reason why it cannot be used."""
    command = [path, "-P", "-s", "-B", "-c", _CHECK]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=_CHECK_LIMIT_S, env=ENVIRONMENT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if process.returncode:
        return (process.stderr.strip().splitlines() or ["it failed"])[-1]
    version, numpy, *prefixes = json.loads(process.stdout)
    if tuple(version) < OLDEST:
        return f"is {version[0]}.{version[1]}, older than {OLDEST[0]}.{OLDEST[1]}"
    outside = [os.path.realpath(p) for p in prefixes if not Path(p).is_relative_to("/usr")]
    hidden = [p for p in outside if Path(p).is_relative_to(HIDDEN)]
    if hidden:
        return f"{hidden[0]} lies in {HIDDEN}, where programs see only their own files"
    return Interpreter(path=path, read_only=("/usr", *_outermost(outside)), numpy=numpy)


def _outermost(folders: Iterable[str]) -> list[str]:
    """The folders without those that lie in another one."""
    known = dict.fromkeys(folders)
    return [
        one for one in known if not any(other in Path(one).parents for other in map(Path, known))
    ]
