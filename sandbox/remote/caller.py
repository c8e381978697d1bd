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
_STREAMS = ("stdout", "stderr")


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
    sys.setrecursionlimit(sys.getrecursionlimit() + _depth())
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


def _depth() -> int:
    """The number of frames of this script below the program, and the call of exec: the recursion
    limit of the program does not count them."""
    frame, depth = sys._getframe(1), 2
    while frame and frame.f_code.co_name != "<module>":
        frame, depth = frame.f_back, depth + 1
    return depth


def _leave(code: int) -> NoReturn:
    """Flush the original streams, and what the program has made of them, and exit.

    Original ones may be closed or detached; of the others one that cannot be flushed is an error.
    """
    try:
        for name in _STREAMS:
            _failed(f"__{name}__")
        if any([_failed(name) for name in _STREAMS]):
            code = code or 1
    finally:
        os._exit(code)


def _failed(name: str) -> bool:
    """Whether a stream of `sys` that exists and is open cannot be flushed."""
    try:
        stream = getattr(sys, name, None)
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()
    except BaseException:  # noqa: BLE001  the program may have replaced the stream
        return True
    return False
