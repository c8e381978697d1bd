"""The forked child: it gives everything up, reads its payload, and runs untrusted code."""

import atexit
import builtins
import linecache
import marshal
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sandbox import wire
from sandbox.namespace import bounds, landlock, linux, seccomp
from sandbox.namespace.interpreter import ENVIRONMENT
from sandbox.namespace.protocol import COUNTED, READY, Request, pack_code
from sandbox.namespace.syscalls import failure

Code = types.CodeType
Payload = tuple[str, bytes, bool, str | None, bytes]  # see `inputs.payload`
Filter = Callable[[], int] | bytes  # ready to install, or still to be told the process's id

FILE_NAME = "solution.py"
_RESULT, _PAYLOAD, _FIRST_FREE = 3, 4, 5
_TRACEBACK_FRAMES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """What the zygote prepared once for all its children."""

    tier: int
    threads_only: Filter
    with_processes: Filter
    private_memory: Callable[[], int]
    landlock_rules: int | None
    address_bytes: int  # the zygote's own
    open_files: int  # one more than the highest descriptor there can be
    ceilings: tuple[int, ...]  # see `bounds.ceilings`


def hold(request: Request, walls: Walls) -> Code:
    """In a zygote of one program: take its compiled code, and the bounds its cases share."""
    payload = marshal.loads(os.read(_PAYLOAD, request.payload_bytes))
    os.closerange(0, _FIRST_FREE)
    _bound_all(request, walls)
    return marshal.loads(payload[1])


def become(request: Request, walls: Walls, held: Code | None) -> NoReturn:
    """Turn this fresh fork into the sandboxed program. Never returns.

    `held`: its code, where the zygote has that and has set the bounds that all its cases share.
    Its streams are in place: stdin, stdout, stderr, result, payload at 0 to 4. Few functions and
    few objects: each page that is touched here is copied for each execution.
    """
    code = 1
    try:
        _enclose(walls)
        payload = marshal.loads(os.read(_PAYLOAD, request.payload_bytes))
        os.close(_PAYLOAD)
        if held is None:
            _bound_all(request, walls)
        bounds.on_one(request, walls.ceilings)
        _filter_calls(walls.with_processes if request.processes else walls.threads_only)
        os.write(_RESULT, READY)
        code = _run(payload, held)
    except BaseException:  # noqa: BLE001  no frame of ours may be left by an exception
        traceback.print_exc()
    finally:
        _leave(code)


def _enclose(walls: Walls) -> None:
    """Own process group, no privileges, no descriptor but ours."""
    if walls.landlock_rules is not None:
        landlock.restrict_self(walls.landlock_rules)
    os.closerange(_FIRST_FREE, walls.open_files)
    os.setpgid(0, 0)
    linux.drop_capabilities()


def _bound_all(request: Request, walls: Walls) -> None:
    bounds.on_all(request, walls.ceilings, walls.address_bytes)
    if COUNTED[request.counted] == "data" and walls.private_memory() < 0:
        raise failure("seccomp")


def _filter_calls(wanted: Filter) -> None:
    if isinstance(wanted, bytes):
        wanted = seccomp.installer(seccomp.for_process(wanted, os.getpid()))
    if wanted() < 0:
        raise failure("seccomp")


def _run(payload: Payload, held: Code | None) -> int:
    """Run the program to its end; its exit code. Anything may happen from here on."""
    code = _execute(payload, held)
    if payload[3] is None:  # a script ends as an interpreter does; a call ends with its value
        for step in (threading._shutdown, atexit._run_exitfuncs):  # pyright: ignore[reportAttributeAccessIssue]
            failed = _survives(step)
            code = code or failed
    return code


def _execute(payload: Payload, held: Code | None) -> int:
    source, compiled, share, function, packed = payload
    solution = types.ModuleType("__main__" if function is None else "solution")
    solution.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = sys.modules[solution.__name__] = solution
    try:
        code = held or (marshal.loads(compiled) if compiled else _compile(source, share))
        args, kwargs = marshal.loads(packed)
        exec(code, solution.__dict__)
        if function is not None:
            _send(wire.encode(_callable(solution, function)(*args, **kwargs)))
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


def _callable(solution: types.ModuleType, function: str) -> Any:
    """A function of the program, or a method of its class Solution."""
    found = solution.__dict__.get(function)
    if found is None and "Solution" in solution.__dict__:
        found = getattr(solution.__dict__["Solution"](), function, None)
    if found is None:
        raise NameError(f"the program defines no {function!r}")
    return found


def _compile(source: str, share: bool) -> types.CodeType:
    """The program's code; handed out, if wanted, before any of it runs."""
    code = compile(source, FILE_NAME, "exec", dont_inherit=True)
    if share:
        try:
            shared = marshal.dumps(code)
        except ValueError:  # nested too deep: each compiles for itself
            shared = b""
        _send(pack_code(shared))
    return code


def _send(frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        view = view[os.write(_RESULT, view) :]


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
