"""The remote executor: programs run on a SandboxFusion-compatible server, verdicts stay here."""

import atexit
import os
import queue
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from veriloop.sandbox.executor import Call, Dialogue, Invocation, Program, Stdin
from veriloop.sandbox.languages.polyglot import COMPILE, compile_seconds
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.remote.connection import Address, BusyError, Connection
from veriloop.sandbox.remote.fields import FieldError, dump, load
from veriloop.sandbox.remote.messages import RunReply, RunRequest, read_reply
from veriloop.sandbox.remote.outcomes import STOCK_OUTPUT_BYTES, FaultError, to_execution
from veriloop.sandbox.remote.script import call_script, with_value
from veriloop.sandbox.result import Execution

ATTEMPTS = 2
SLOTS = 8
_CLOSE_LIMIT_S = 30.0
_ESCAPED = 6  # bytes of JSON for one byte of output, at worst
_REST_OF_REPLY = 1 << 20  # bytes of a response besides its output


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request ready to be sent, and how to read its response."""

    body: bytes
    seconds: float  # for the response
    mark: str  # of a call; "" for a script


def _compile_timeout(language: str) -> float:
    """The seconds that compiling may take: 0 for a language without a compiler.

    A language that only the server knows has as long as one that is compiled here.
    """
    try:
        return compile_seconds(language)
    except ValueError:
        return COMPILE.wall


class RemoteExecutor:
    """Sends programs to the server at `url`, which decides how they are isolated.

    `slots`: requests at a time; None: 8. `token_variable`: environment variable that holds a bearer
    token. `trusted_output_bytes`: an output of this length or more is a `sandbox_error`, because
    stock servers truncate long output; a server that sends `measured` is trusted anyway.
    `connect_s`: to connect. `margin_s`: to answer, beyond the run's own time. `busy_s`: how long
    requests are repeated at a server that has no room for them (status 429). `jitter_s`: new
    connections and retries wait a random part of it, so that many clients spread out.
    Nothing is sent before the first run. Raises ValueError for a bad address or setting.
    """

    backend = "remote"
    tier = 0

    def __init__(
        self,
        url: str,
        slots: int | None = None,
        *,
        token_variable: str = "",
        trusted_output_bytes: int = STOCK_OUTPUT_BYTES,
        connect_s: float = 10.0,
        margin_s: float = 30.0,
        busy_s: float = 300.0,
        jitter_s: float = 0.2,
    ) -> None:
        self.url = url
        address = Address.read(url, token_variable)
        self.slots = SLOTS if slots is None else slots
        if self.slots < 1:
            raise ValueError(f"slots must be at least 1, got {slots}")
        self._trusted_output_bytes = trusted_output_bytes
        self._margin_s = margin_s
        self._busy_s = busy_s
        self._jitter_s = jitter_s
        self._pid = os.getpid()
        self._closed = threading.Event()
        self._connections = [Connection(address, "/run_code", connect_s) for _ in range(self.slots)]
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue()
        for connection in self._connections:
            self._idle.put(connection)
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, program: Program, invocation: Invocation, limits: Limits) -> Execution:
        """One execution; see `veriloop.sandbox.executor.Executor`.

        Raises ValueError for arguments that are not plain data, an input that is no UTF-8 text, or
        a call of a program that is not Python.
        """
        try:
            request = self._request(program, invocation, limits)
        except UnicodeEncodeError:
            return Execution(ended="error", exit_code=1, why="the program is no UTF-8 text")
        connection = self._take()
        try:
            return self._execute(connection, request, limits)
        finally:
            self._idle.put(connection)

    def run_all(
        self, program: Program, invocations: Sequence[Invocation], limits: Limits
    ) -> list[Execution]:
        """One request per input, as many at a time as there are slots; results in order."""
        workers = min(self.slots, len(invocations))
        if workers < 2:
            return [self.run(program, case, limits) for case in invocations]
        with ThreadPoolExecutor(workers) as threads:
            return list(threads.map(lambda case: self.run(program, case, limits), invocations))

    def close(self) -> None:
        """Hang up; runs in progress raise RuntimeError. Harmless when repeated."""
        if self._closed.is_set() or os.getpid() != self._pid:
            return
        self._closed.set()
        atexit.unregister(self.close)
        for connection in self._connections:
            connection.interrupt()
        with ExitStack() as stack:
            for _ in self._connections:
                stack.callback(self._idle.get(timeout=_CLOSE_LIMIT_S).close)
        for connection in self._connections:
            self._idle.put(connection)  # threads that wait for one find the executor closed

    def _request(self, program: Program, invocation: Invocation, limits: Limits) -> _Request:
        source, mark, text = program.source, "", ""
        if isinstance(invocation, Dialogue):
            raise ValueError("a remote server runs one program at a time: no dialogue")
        if isinstance(invocation, Call):
            if program.language != "python":
                raise ValueError(f"calls are for Python, got a program in {program.language!r}")
            script = call_script(program, invocation)
            source, mark = script.source, script.mark
        else:
            text = _as_text(invocation)
        request = RunRequest(
            code=source,
            language=program.language,
            stdin=text,
            compile_timeout=_compile_timeout(program.language) or limits.wall,
            run_timeout=limits.wall,
            memory_limit_MB=limits.memory_mb,
            limits=limits,
        )
        compile_s = 0 if program.language == "python" else request.compile_timeout
        seconds = compile_s + request.run_timeout + self._margin_s
        return _Request(body=dump(request.flat()), seconds=seconds, mark=mark)

    def _take(self) -> Connection:
        if os.getpid() != self._pid:
            raise RuntimeError("this RemoteExecutor was opened in another process")
        connection = self._idle.get()
        if self._closed.is_set():
            self._idle.put(connection)
            raise RuntimeError("this RemoteExecutor is closed")
        return connection

    def _execute(self, connection: Connection, request: _Request, limits: Limits) -> Execution:
        """Send the request; one that fails in transit or on the server is sent once more.

        A server without room is asked again for `busy_s` from now, both attempts together.
        """
        reason = ""
        busy_until = time.monotonic() + self._busy_s
        for attempt in range(ATTEMPTS):
            if attempt or not connection.connected:
                self._closed.wait(random.uniform(0, self._jitter_s))
            try:
                reply = self._exchange(connection, request, limits, busy_until)
                execution = to_execution(reply, limits, self._trusted_output_bytes)
                if request.mark:
                    execution = _with_value(execution, request.mark, limits)
                elif attempt == 0 and _doubtful(reply):
                    continue
            except FaultError as fault:
                reason = str(fault)
            else:
                return execution
            if self._closed.is_set():
                raise RuntimeError("this RemoteExecutor was closed during the run")
        return Execution(ended="sandbox_error", why=reason)

    def _exchange(
        self, connection: Connection, request: _Request, limits: Limits, busy_until: float
    ) -> RunReply:
        """The reply of the server, once it has room for the request."""
        cap = _ESCAPED * (limits.output_bytes + limits.error_bytes) + _REST_OF_REPLY
        while True:
            try:
                raw = connection.post(request.body, request.seconds, cap)
                break
            except BusyError as busy:
                wait = busy.retry_s + random.uniform(0, self._jitter_s)
                if time.monotonic() + wait > busy_until or self._closed.wait(wait):
                    raise
        try:
            return read_reply(load(raw))
        except FieldError as failure:
            raise FaultError(f"the server's answer makes no sense: {failure}") from failure


def _as_text(invocation: Stdin) -> str:
    """Raises ValueError for other bytes: the API carries text only."""
    try:
        return invocation.data.decode("utf-8")
    except UnicodeDecodeError as failure:
        raise ValueError(
            "a remote sandbox takes no input that is not UTF-8 text: "
            f"byte {failure.start} of {len(invocation.data)}"
        ) from failure


def _with_value(execution: Execution, mark: str, limits: Limits) -> Execution:
    called = with_value(execution, mark, limits)
    if called is None:
        end = execution.why or f"{execution.ended} with {len(execution.stdout)} bytes of output"
        raise FaultError(f"the call never began: {end}")
    return called


def _doubtful(reply: RunReply) -> bool:
    """Success without output: the program printed nothing, or the server lost it."""
    result = reply.run_result
    return (
        reply.status == "Success" and result is not None and not (result.stdout or reply.measured)
    )
