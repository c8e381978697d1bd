"""The forked child: it gives everything up, reads its payload, and runs untrusted code."""

import atexit
import builtins
import linecache
import marshal
import os
import resource
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from sandbox import wire
from sandbox.namespace import account, landlock, linux, mounts, seccomp
from sandbox.namespace.protocol import READY, Request, Streams

Payload = tuple[str, str | None, list[Any], dict[str, Any]]  # source, function, args, kwargs

FILE_NAME = "solution.py"
_RESULT, _PAYLOAD, _FIRST_FREE = 3, 4, 5
_PARKED = 40  # descriptors are moved up here first, so that none is overwritten
_CHUNK = 1 << 20
_TRACEBACK_FRAMES = 20
_MORE_OF_OTHERS = 64  # tasks that an account may start elsewhere meanwhile
_PENDING = 1024  # signals and timers: without a bound they are the kernel's memory, not ours
_ZERO_LIMITS = ("CORE", "MSGQUEUE", "MEMLOCK", "RTPRIO", "NICE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """What the zygote prepared once for all its children."""

    tier: int
    threads_only: bytes  # seccomp filters
    with_processes: bytes
    landlock_rules: int | None
    address_bytes: int  # the zygote's own
    import_path: tuple[str, ...]


def become(request: Request, streams: Streams, walls: Walls) -> NoReturn:
    """Turn this fresh fork into the sandboxed program. Never returns."""
    code = 1
    try:
        if walls.landlock_rules is not None:
            landlock.restrict_self(walls.landlock_rules)
        _take(streams)
        _enclose(request, walls)
        payload = marshal.loads(_read_all(_PAYLOAD))
        os.close(_PAYLOAD)
        _limit(request, walls)
        seccomp.install_for_self(walls.with_processes if request.processes else walls.threads_only)
        os.write(_RESULT, READY)
        code = _run(payload, walls.import_path)
    except BaseException:  # noqa: BLE001  no frame of ours may be left by an exception
        traceback.print_exc()
    finally:
        _leave(code)


def _take(streams: Streams) -> None:
    """Only 0 to 4 stay open: stdin, stdout, stderr, result, payload."""
    ours = (streams.stdin, streams.stdout, streams.stderr, streams.result, streams.payload)
    for place, fd in enumerate(ours):
        os.dup2(fd, _PARKED + place)
    for place in range(len(ours)):
        os.dup2(_PARKED + place, place)


def _enclose(request: Request, walls: Walls) -> None:
    """Own process group, own /tmp, no privileges, no descriptor but ours."""
    os.closerange(_FIRST_FREE, os.sysconf("SC_OPEN_MAX"))
    os.setpgid(0, 0)
    if walls.tier == 1:
        mounts.fresh_tmp(request.disk_mb, request.inodes)
    os.chdir("/tmp" if walls.tier == 1 else "/")
    linux.drop_capabilities()
    linux.die_with_parent()


def _limit(request: Request, walls: Walls) -> None:
    _bound("CPU", request.cpu_s)  # soft is hard: pid 1 would not see SIGXCPU
    _bound("AS", walls.address_bytes + request.address_bytes)
    _bound("FSIZE", request.disk_mb << 20)
    _bound("NOFILE", request.open_files)
    _bound("STACK", request.stack_bytes, for_good=False)  # honest programs raise it; AS is there
    others = account.tasks() + _MORE_OF_OTHERS if request.shared_account else 0
    _bound("NPROC", others + request.tasks)


def forbid_for_all(last_capability: int) -> None:
    """In the zygote, once: what no child ever gets back."""
    linux.bound_capabilities(last_capability)
    linux.no_new_privileges()
    for name in _ZERO_LIMITS:
        _bound(name, 0)
    _bound("SIGPENDING", _PENDING)


def _bound(name: str, wanted: int, *, for_good: bool = True) -> None:
    """Set a limit, or keep the inherited one where that is the tighter."""
    kind = getattr(resource, f"RLIMIT_{name}")
    ceiling = resource.getrlimit(kind)[1]
    allowed = wanted if ceiling == resource.RLIM_INFINITY else min(wanted, ceiling)
    resource.setrlimit(kind, (allowed, allowed if for_good else ceiling))


def _read_all(fd: int) -> bytes:
    chunks = []
    while chunk := os.read(fd, _CHUNK):
        chunks.append(chunk)
    return b"".join(chunks)


def _run(payload: Payload, path: tuple[str, ...]) -> int:
    """Run the program to its end; its exit code. Anything may happen from here on."""
    code = _execute(payload, path)
    if payload[1] is None:  # a script ends as an interpreter does; a call ends with its value
        for step in (threading._shutdown, atexit._run_exitfuncs):  # pyright: ignore[reportAttributeAccessIssue]
            failed = _survives(step)
            code = code or failed
    return code


def _execute(payload: Payload, path: tuple[str, ...]) -> int:
    source, function, args, kwargs = payload
    solution = types.ModuleType("__main__" if function is None else "solution")
    solution.__dict__["__builtins__"] = builtins
    _clear_the_table(solution, path)
    try:
        exec(compile(source, FILE_NAME, "exec", dont_inherit=True), solution.__dict__)
        if function is not None:
            _send(_callable(solution, function)(*args, **kwargs))
    except SystemExit as left:
        return _exit_code(left.code)
    except BaseException as failure:  # noqa: BLE001  the program's own, whatever it is
        below = failure.__traceback__ and failure.__traceback__.tb_next  # without our own frame
        traceback.print_exception(failure.with_traceback(below), limit=-_TRACEBACK_FRAMES)
        return 1
    return 0


def _clear_the_table(solution: types.ModuleType, path: tuple[str, ...]) -> None:
    """Tidiness, not safety: the program finds itself, and nothing of ours."""
    for name in [name for name in sys.modules if name.split(".")[0] == "sandbox"]:
        del sys.modules[name]
    sys.modules["__main__"] = sys.modules[solution.__name__] = solution
    sys.argv[:] = [FILE_NAME]
    sys.path[:] = ["/tmp", *path]
    linecache.clearcache()
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _callable(solution: types.ModuleType, function: str) -> Any:
    """A function of the program, or a method of its class Solution."""
    found = solution.__dict__.get(function)
    if found is None and "Solution" in solution.__dict__:
        found = getattr(solution.__dict__["Solution"](), function, None)
    if found is None:
        raise NameError(f"the program defines no {function!r}")
    return found


def _send(value: Any) -> None:
    frame = memoryview(wire.encode(value))
    while frame:
        frame = frame[os.write(_RESULT, frame) :]


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
