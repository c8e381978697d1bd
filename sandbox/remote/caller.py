"""Runs on the other side: calls one function and prints its value on a line between two marks.

It travels as source, together with `sandbox/wire.py`, so it imports the standard library alone.
"""

import base64
import builtins
import linecache
import marshal
import os
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, NoReturn

FILE_NAME = "solution.py"
_TRACEBACK_FRAMES = 20


def main(payload: str, mark: str, encode: Callable[[Any], bytes], length_bytes: int) -> NoReturn:
    """Say that the call begins, make it, leave. `encode` makes frames, as in `sandbox/wire.py`."""
    source, function, args, kwargs = marshal.loads(base64.b64decode(payload))
    out = os.dup(1)  # the program may close its standard output
    _write(out, f"{mark}\n".encode())
    code = 1
    try:
        code = _execute(
            source,
            function,
            args,
            kwargs,
            lambda value: _write(
                out, b"\n%b%b%b\n" % (mark.encode(), encode(value)[length_bytes:], mark.encode())
            ),
        )
    finally:
        _leave(code)


def _execute(
    source: str, function: str, args: Any, kwargs: Any, send: Callable[[Any], None]
) -> int:
    """Exit code of the program, as the embedded executor makes it."""
    solution = types.ModuleType("solution")
    solution.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = sys.modules["solution"] = solution
    sys.argv[:] = [FILE_NAME]
    linecache.clearcache()
    try:
        exec(compile(source, FILE_NAME, "exec", dont_inherit=True), solution.__dict__)
        send(_callable(solution, function)(*args, **kwargs))
    except SystemExit as left:
        return _exit_code(left.code)
    except BaseException as failure:  # noqa: BLE001  the program's own, whatever it is
        below = failure.__traceback__ and failure.__traceback__.tb_next  # without our own frame
        traceback.print_exception(failure.with_traceback(below), limit=-_TRACEBACK_FRAMES)
        return 1
    return 0


def _callable(solution: types.ModuleType, function: str) -> Any:
    """A function of the program, or a method of its class Solution."""
    found = solution.__dict__.get(function)
    if found is None and "Solution" in solution.__dict__:
        found = getattr(solution.__dict__["Solution"](), function, None)
    if found is None:
        raise NameError(f"the program defines no {function!r}")
    return found


def _exit_code(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def _leave(code: int) -> NoReturn:
    """Flush whatever the program calls its streams, and really leave."""
    try:
        for name in ("stdout", "stderr"):
            try:
                getattr(sys, name).flush()
            except BaseException:  # noqa: BLE001  the program's own streams
                code = code or 1
    finally:
        os._exit(code)
