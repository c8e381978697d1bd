"""The forked child: it gives everything up, reads its payload, and runs untrusted code."""

import atexit
import builtins
import linecache
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from marshal import dumps, loads
from os import read, write
from types import CodeType, ModuleType
from typing import Any, NamedTuple, NoReturn

from sandbox.namespace import bounds, linux
from sandbox.namespace.interpreter import ENVIRONMENT
from sandbox.namespace.protocol import COUNTED, READY, Request, pack_code
from sandbox.namespace.syscalls import failure, prepared
from sandbox.wire import encode

Payload = tuple[str, bytes, bool, str | None, bytes]  # see `inputs.payload`
Step = Callable[[], int]  # a system call of ours, negative when it fails

FILE_NAME = "solution.py"
_RESULT, _PAYLOAD, _FIRST_FREE = 3, 4, 5
_TRACEBACK_FRAMES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """What the zygote prepared once for all its children."""

    tier: int
    threads_only: Step
    with_processes: Step
    private_memory: Step
    landlock: Step | None
    address_bytes: int  # the zygote's own
    open_files: int  # one more than the highest descriptor there can be
    ceilings: tuple[int, ...]  # see `bounds.ceilings`


class Steps(NamedTuple):
    """What a child does before it runs anything, prepared by its zygote: `become` says when."""

    enclose: tuple[Step, ...]
    bound: tuple[Step, ...]


def steps(request: Request, walls: Walls) -> Steps:
    """For children with these bounds. Made together, they lie together: few pages are touched."""
    return Steps(
        enclose=(
            *((walls.landlock,) if walls.landlock else ()),
            prepared("close_range", _FIRST_FREE, walls.open_files, 0),
            prepared("setpgid", 0, 0),
            linux.drop_capabilities,
        ),
        bound=(
            prepared("close", _PAYLOAD),
            *bounds.calls(request, walls.ceilings, walls.address_bytes),
            *((walls.private_memory,) if COUNTED[request.counted] == "data" else ()),
            walls.with_processes if request.processes else walls.threads_only,
            prepared("write", _RESULT, READY, len(READY)),
        ),
    )


def become(first: Steps, payload_bytes: int) -> NoReturn:
    """Turn this fresh fork into the sandboxed program. Never returns.

    Its streams are in place: stdin, stdout, stderr, result, payload at 0 to 4. Few functions and
    few objects: each page that is touched here is copied for each execution.
    """
    code = 1
    try:
        for step in first.enclose:  # own process group, no privileges, no descriptor but ours
            if step() < 0:
                raise failure("enclosing")
        payload = loads(read(_PAYLOAD, payload_bytes))
        for step in first.bound:  # the last one says that all is set up
            if step() < 0:
                raise failure("bounding")
        code = _run(payload)
    except BaseException:  # noqa: BLE001  no frame of ours may be left by an exception
        traceback.print_exc()
    finally:
        _leave(code)


def _run(payload: Payload) -> int:
    """Run the program to its end; its exit code. Anything may happen from here on."""
    code = _execute(payload)
    if payload[3] is None:  # a script ends as an interpreter does; a call ends with its value
        for step in (threading._shutdown, atexit._run_exitfuncs):  # pyright: ignore[reportAttributeAccessIssue]
            failed = _survives(step)
            code = code or failed
    return code


def _execute(payload: Payload) -> int:
    source, compiled, share, function, packed = payload
    solution = ModuleType("__main__" if function is None else "solution")
    solution.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = sys.modules[solution.__name__] = solution
    try:
        code = loads(compiled) if compiled else _compile(source, share)
        args, kwargs = loads(packed)
        exec(code, solution.__dict__)
        if function is not None:
            _send(encode(_callable(solution, function)(*args, **kwargs)))
    except SystemExit as left:
        return _exit_code(left.code)
    except BaseException as failure:  # noqa: BLE001  the program's own, whatever it is
        below = failure.__traceback__
        while below and below.tb_frame.f_code.co_filename == __file__:
            below = below.tb_next  # nothing of ours is shown
        traceback.print_exception(failure.with_traceback(below), limit=-_TRACEBACK_FRAMES)
        return 1
    return 0


def tidy(path: Sequence[str]) -> None:
    """In the zygote, once: a program finds itself and nothing of ours. Tidiness, not safety."""
    for name in [name for name in sys.modules if name.split(".")[0] == "sandbox"]:
        del sys.modules[name]
    sys.argv[:] = [FILE_NAME]
    sys.orig_argv[:] = [""]
    sys.path[:] = ["/tmp", *path]
    linecache.clearcache()
    os.umask(0o077)
    os.environ.clear()
    os.environ.update(ENVIRONMENT)


def _callable(solution: ModuleType, function: str) -> Any:
    """A function of the program, or a method of its class Solution."""
    found = solution.__dict__.get(function)
    if found is None and "Solution" in solution.__dict__:
        found = getattr(solution.__dict__["Solution"](), function, None)
    if found is None:
        raise NameError(f"the program defines no {function!r}")
    return found


def _compile(source: str, share: bool) -> CodeType:
    """The program's code; handed out, if wanted, before any of it runs."""
    code = compile(source, FILE_NAME, "exec", dont_inherit=True)
    if share:
        try:
            shared = dumps(code)
        except ValueError:  # nested too deep: each compiles for itself
            shared = b""
        _send(pack_code(shared))
    return code


def _send(frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        view = view[write(_RESULT, view) :]


def _exit_code(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _survives(step: Callable[[], object]) -> int:
    """0 when the step ran through, else 1."""
    try:
        step()
    except BaseException:  # noqa: BLE001  the program's own threads, functions and streams
        return 1
    return 0


def _leave(code: int) -> NoReturn:
    """Flush whatever the program calls its streams, and really leave."""
    try:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name, None)
            if stream is not None:
                failed = _survives(stream.flush)
                code = code or failed
    finally:
        os._exit(code)
