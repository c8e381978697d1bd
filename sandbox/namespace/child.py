"""The forked child: drops all privileges, reads its payload, and runs untrusted code."""

import atexit
import builtins
import gc
import io
import linecache
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from marshal import dumps, loads
from os import read, write
from types import CodeType, ModuleType
from typing import Any, NamedTuple, NoReturn

from veriloop.sandbox.interpreter import ENVIRONMENT
from veriloop.sandbox.namespace import bounds, linux
from veriloop.sandbox.namespace.protocol import COUNTED, READY, Request, pack_code
from veriloop.sandbox.namespace.syscalls import failure, prepared
from veriloop.sandbox.wire import encode

Payload = tuple[str, bytes, bool, str | None, bytes]  # see `requests.pack_payload`
Step = Callable[[], int]  # a system call; negative if it fails

FILE_NAME = "solution.py"
_FILE_PATH = f"/tmp/{FILE_NAME}"  # where the program would be; there is no such file
_STREAM_PATHS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_RESULT, _PAYLOAD, _FIRST_FREE = 3, 4, 5
_TRACEBACK_FRAMES = 20
_STREAMS = ("stdout", "stderr")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSetup:
    """What the zygote prepares once for all its children."""

    tier: int
    threads_only: Step
    with_processes: Step
    private_memory: Step
    landlock: Step | None
    address_bytes: int  # mapped by the zygote
    open_files: int  # one more than the highest possible descriptor
    ceilings: tuple[int, ...]  # see `bounds.ceilings`


class Steps(NamedTuple):
    """System calls of a child before it runs the program, prepared by its zygote."""

    enclose: tuple[Step, ...]
    bound: tuple[Step, ...]


def child_steps(request: Request, setup: ChildSetup) -> Steps:
    """The steps for these bounds. Created together, they share pages, so that few are touched."""
    return Steps(
        enclose=(
            *((setup.landlock,) if setup.landlock else ()),
            linux.closer(_FIRST_FREE, setup.open_files),
            prepared("setpgid", 0, 0),
            linux.capability_dropper(),
            linux.core_dump_forbidder(),
        ),
        bound=(
            prepared("close", _PAYLOAD),
            *bounds.calls(request, setup.ceilings, setup.address_bytes),
            *((setup.private_memory,) if COUNTED[request.counted] == "data" else ()),
            setup.with_processes if request.processes else setup.threads_only,
            prepared("write", _RESULT, READY, len(READY)),
        ),
    )


def run_child(steps: Steps, payload_bytes: int) -> NoReturn:
    """Turn this fresh fork into the sandboxed program. Never returns.

    Its streams are open: stdin, stdout, stderr, result, payload at 0 to 4. It calls few functions
    and creates few objects, since every page touched here is copied for each execution.
    """
    code = 1
    try:
        for step in steps.enclose:  # own process group, no privileges, no other descriptors
            if step() < 0:
                raise failure("enclosing")
        payload = loads(read(_PAYLOAD, payload_bytes))
        for step in steps.bound:  # the last one reports that the child is set up
            if step() < 0:
                raise failure("bounding")
        code = _run(payload)
    except BaseException:  # noqa: BLE001  no exception may leave this function's frame
        traceback.print_exc()
    finally:
        _exit(code)


def _run(payload: Payload) -> int:
    """Run the program to its end. Returns its exit code; untrusted code runs from here on."""
    solution = ModuleType("__main__" if payload[3] is None else "solution")
    code = _execute(payload, solution)
    if payload[3] is None:  # a script ends like an interpreter, a call when its value is sent
        shutdown = threading._shutdown  # pyright: ignore[reportAttributeAccessIssue]
        for step in (shutdown, atexit._run_exitfuncs, _flush_streams):
            failed = _failed(step)
            code = code or failed
        # Streams of the program, which are flushed, may need what is cleared. What is written from
        # here on is in the original ones.
        for name in _STREAMS:
            setattr(sys, name, getattr(sys, f"__{name}__", None))
        _failed(lambda: _clear(solution.__dict__))
        for name in _STREAMS:
            setattr(sys, name, None)
    return code


def _execute(payload: Payload, solution: ModuleType) -> int:
    source, compiled, share, function, arguments = payload
    solution.__dict__["__builtins__"] = builtins
    solution.__dict__["__file__"] = _FILE_PATH
    sys.modules["__main__"] = sys.modules[solution.__name__] = solution
    sys.setrecursionlimit(sys.getrecursionlimit() + _depth())
    try:
        code = loads(compiled) if compiled else _compile(source, share)
        args, kwargs = loads(arguments)
        exec(code, solution.__dict__)
        if function is not None:
            _send(encode(_callable(solution, function)(*args, **kwargs)))
    except SystemExit as error:
        return _exit_code(error.code)
    except BaseException as error:  # noqa: BLE001  any exception of the program
        frame = error.__traceback__
        while frame and frame.tb_frame.f_code.co_filename == __file__:
            frame = frame.tb_next  # hide the frames of this module
        traceback.print_exception(error.with_traceback(frame), limit=-_TRACEBACK_FRAMES)
        return 1
    return 0


def hide_sandbox_modules(path: Sequence[str]) -> None:
    """Hide the sandbox's modules and state from programs, once in the zygote. Not for security."""
    for name in [name for name in sys.modules if name.split(".")[0] == "veriloop"]:
        del sys.modules[name]
    sys.argv[:] = [FILE_NAME]
    sys.orig_argv[:] = [""]
    sys.path[:] = ["/tmp", *path]
    linecache.clearcache()
    os.umask(0o077)
    os.environ.clear()
    os.environ.update(ENVIRONMENT)


def open_streams_by_path() -> None:
    """Let open() accept the paths of the standard streams, once in the zygote.

    Those paths are links into /proc, which programs do not have.
    """
    open_path = builtins.open

    @wraps(open_path)
    def opened(file: Any, *args: Any, **kwargs: Any) -> Any:
        path = os.fspath(file) if isinstance(file, os.PathLike) else file
        if type(path) is str and path in _STREAM_PATHS:
            file = os.dup(_STREAM_PATHS[path])
        return open_path(file, *args, **kwargs)

    builtins.open = io.open = opened


def _callable(solution: ModuleType, function: str) -> Any:
    """A function of the program, or a method of its class Solution."""
    target = solution.__dict__.get(function)
    if target is None and "Solution" in solution.__dict__:
        target = getattr(solution.__dict__["Solution"](), function, None)
    if target is None:
        raise NameError(f"the program defines no {function!r}")
    return target


def _compile(source: str, share: bool) -> CodeType:
    """The program's code; with `share` it is sent before any of it runs."""
    code = compile(source, FILE_NAME, "exec", dont_inherit=True)
    if share:
        try:
            shared = dumps(code)
        except ValueError:  # nested too deep: every case compiles for itself
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


def _failed(step: Callable[[], object]) -> int:
    """1 if the step raises, else 0."""
    try:
        step()
    except BaseException:  # noqa: BLE001  the program's own threads, functions and streams
        return 1
    return 0


def _depth() -> int:
    """The number of frames below the program, which its recursion limit does not count."""
    frame, depth = sys._getframe(1), 1  # and the call of exec
    while frame:
        frame, depth = frame.f_back, depth + 1
    return depth


def _clear(namespace: dict[str, Any]) -> None:
    """Release what a script's names refer to, as an interpreter does, so that files are written.

    Files in reference cycles, such as those of a class, are flushed one by one.
    """
    for name in list(namespace):
        if name != "__builtins__":
            namespace[name] = None
    for candidate in gc.get_objects():
        if issubclass(type(candidate), io.TextIOWrapper | io.BufferedWriter):
            _failed(candidate.flush)


def _flush_streams() -> None:
    """Flush the original streams, and what the program has made of them. Raises if these fail."""
    for name in _STREAMS:  # closed or detached, perhaps
        _failed(lambda name=name: _flush(f"__{name}__"))
    if any([_failed(lambda name=name: _flush(name)) for name in _STREAMS]):
        raise OSError("a stream cannot be flushed")


def _flush(name: str) -> None:
    stream = getattr(sys, name, None)
    if stream is not None and not getattr(stream, "closed", False):
        stream.flush()


def _exit(code: int) -> NoReturn:
    """Flush the streams, and exit without cleanup."""
    try:
        failed = _failed(_flush_streams)
        code = code or failed
    finally:
        os._exit(code)
