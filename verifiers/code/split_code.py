"""The code of `verifiers/code/split`, as it is sent into the sandboxes."""

import importlib.util
import marshal
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from veriloop.sandbox import wire
from veriloop.sandbox.executor import Call, Program

_FOLDER = Path(__file__).parent / "split"
_PATHS = {"wire": Path(wire.__file__)}
_SHARED = ("wire", "values", "protocol", "proxies", "channel")  # in order of import
_TESTS = (*_SHARED, "pytest_stub", "names", "unusable", "collected", "tests_side")
_PROGRAM = (*_SHARED, "program_side")
_FILES = {"trial": _TESTS, "live_trial": _TESTS, "replay": _PROGRAM, "serve": _PROGRAM}
_PACKAGE_IMPORT = re.compile(r"^from veriloop\.\S+ import (\([^)]*\)|[^\n]*)\n", re.MULTILINE)
LOADER = """
import importlib.util, marshal

def run(magic, files, entry, args):
    names = {}
    for code, source in files:  # each file sees the public names of the files before it
        names = {name: value for name, value in names.items() if not name.startswith("_")}
        names["__name__"] = "split"
        same = magic == importlib.util.MAGIC_NUMBER
        exec(marshal.loads(code) if same else compile(source, "split.py", "exec"), names)
    return names[entry](*args)
"""


def side_program(preload: Sequence[str]) -> Program:
    """The program of a sandbox that runs one side."""
    return Program(source=LOADER, preload=tuple(preload))


def side_call(entry: str, *args: Any) -> Call:
    """Call a function of `tests_side` or `program_side`."""
    files = [shipped(name) for name in _FILES[entry]]
    return Call(function="run", args=(importlib.util.MAGIC_NUMBER, files, entry, args))


@cache
def shipped(name: str) -> tuple[bytes, str]:
    """A file as marshalled code for this Python version, and as source for others."""
    text = (_PATHS.get(name) or _FOLDER / f"{name}.py").read_text(encoding="utf-8")
    source = _PACKAGE_IMPORT.sub("", text)
    return marshal.dumps(compile(source, "split.py", "exec", dont_inherit=True)), source
