"""Runs on the server: calls one function and prints its value on a line between two marks.

It is sent as source, together with `sandbox/wire.py`, so it imports only the standard library.
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
    """Print the mark, call the function, exit. `encode` is that of `sandbox/wire.py`."""
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
    """Run the program and return its exit code, as the embedded executor does."""
    solution = types.ModuleType("solution")
    solution.__dict__["__builtins__"] = builtins
    solution.__dict__["__file__"] = f"/tmp/{FILE_NAME}"
    sys.modules["__main__"] = sys.modules["solution"] = solution
    sys.argv[:] = [FILE_NAME]
    linecache.clearcache()
    try:
        exec(compile(source, FILE_NAME, "exec", dont_inherit=True), solution.__dict__)
        send(_callable(solution, function)(*args, **kwargs))
    except SystemExit as exit_request:
        return _exit_code(exit_request.code)
    except BaseException as failure:  # noqa: BLE001  the program may raise anything
        below = failure.__traceback__ and failure.__traceback__.tb_next  # without this frame
        traceback.print_exception(failure.with_traceback(below), limit=-_TRACEBACK_FRAMES)
        return 1
    return 0


def _callable(solution: types.ModuleType, function: str) -> Any:
    """A function of the program, or a method of its class Solution."""
    target = solution.__dict__.get(function)
    if target is None and "Solution" in solution.__dict__:
        target = getattr(solution.__dict__["Solution"](), function, None)
    if target is None:
        raise NameError(f"the program defines no {function!r}")
    return target


def _exit_code(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _leave(code: int) -> NoReturn:
    """Flush the program's streams and exit, even if it replaced them."""
    try:
        for name in ("stdout", "stderr"):
            try:
                getattr(sys, name).flush()
            except BaseException:  # noqa: BLE001  the program may have replaced the stream
                code = code or 1
    finally:
        os._exit(code)
