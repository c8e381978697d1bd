"""The remote executor: programs run on a SandboxFusion-compatible server, verdicts stay here."""

import atexit
import os
import queue
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from sandbox.executor import Call, Given, Program, Stdin
from sandbox.limits import Limits
from sandbox.remote.connection import Address, Connection
from sandbox.remote.ends import STOCK_OUTPUT_BYTES, FaultError, to_execution
from sandbox.remote.fields import FieldError, dump, load
from sandbox.remote.messages import RunReply, RunRequest, read_reply
from sandbox.remote.script import call_script, with_value
from sandbox.result import Execution

ATTEMPTS = 2
SLOTS = 8
_CLOSE_LIMIT_S = 30.0
_ESCAPED = 6  # bytes of JSON for one byte of output, at worst
_REST_OF_REPLY = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """A request ready to be sent, and how its answer is to be read."""

    body: bytes
    seconds: float  # that the answer may take
    mark: str  # of a call; "" for a script


class RemoteExecutor:
    """Sends programs to the server at `url`; how they are isolated is decided there.

    `slots`: requests at a time; None: 8. `token_variable`: name of the variable of the environment
    that holds a bearer token. `trusted_output_bytes`: from here on an output is a `sandbox_error`,
    for stock servers lose what is longer; one that sends `measured` is trusted anyway. `connect_s`
    and `margin_s`: to connect, and to answer beyond the run's own time. `jitter_s`: requests start
    and are repeated within a random part of it, so that many clients do not knock together.
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
        jitter_s: float = 0.2,
    ) -> None:
        self.url = url
        address = Address.read(url, token_variable)
        self.slots = SLOTS if slots is None else slots
        if self.slots < 1:
            raise ValueError(f"slots must be at least 1, got {slots}")
        self._trusted = trusted_output_bytes
        self._margin_s = margin_s
        self._jitter_s = jitter_s
        self._pid = os.getpid()
        self._closed = threading.Event()
        self._lines = [Connection(address, connect_s) for _ in range(self.slots)]
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue()
        for line in self._lines:
            self._idle.put(line)
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, program: Program, given: Given, limits: Limits) -> Execution:
        """One execution; see `sandbox.executor.Executor`.

        Raises ValueError for arguments that are not plain data, an input that is no UTF-8 text, or
        a call of a program that is not Python.
        """
        try:
            question = self._question(program, given, limits)
        except UnicodeEncodeError:
            return Execution(ended="error", exit_code=1, why="the program is no UTF-8 text")
        line = self._take()
        try:
            return self._tried(line, question, limits)
        finally:
            self._idle.put(line)

    def run_all(self, program: Program, given: Sequence[Given], limits: Limits) -> list[Execution]:
        """Each input in a request of its own, as many at a time as there are slots; in order."""
        workers = min(self.slots, len(given))
        if workers < 2:
            return [self.run(program, one, limits) for one in given]
        with ThreadPoolExecutor(workers) as threads:
            return list(threads.map(lambda one: self.run(program, one, limits), given))

    def close(self) -> None:
        """Hang up; runs in progress raise RuntimeError. Harmless when repeated."""
        if self._closed.is_set() or os.getpid() != self._pid:
            return
        self._closed.set()
        atexit.unregister(self.close)
        for line in self._lines:
            line.interrupt()
        with ExitStack() as stack:
            for _ in self._lines:
                stack.callback(self._idle.get(timeout=_CLOSE_LIMIT_S).close)
        for line in self._lines:
            self._idle.put(line)  # whoever still waits for one learns that we are closed

    def _question(self, program: Program, given: Given, limits: Limits) -> _Question:
        source, mark, text = program.source, "", ""
        if isinstance(given, Call):
            if program.language != "python":
                raise ValueError(f"calls are for Python, got a program in {program.language!r}")
            script = call_script(program, given)
            source, mark = script.source, script.mark
        else:
            text = _as_text(given)
        request = RunRequest(
            code=source,
            language=program.language,
            stdin=text,
            compile_timeout=limits.wall,
            run_timeout=limits.wall,
            memory_limit_MB=limits.memory_mb,
            limits=limits,
        )
        compiled = 0 if program.language == "python" else request.compile_timeout
        seconds = compiled + request.run_timeout + self._margin_s
        return _Question(body=dump(request.flat()), seconds=seconds, mark=mark)

    def _take(self) -> Connection:
        if os.getpid() != self._pid:
            raise RuntimeError("this RemoteExecutor was opened in another process")
        line = self._idle.get()
        if self._closed.is_set():
            self._idle.put(line)
            raise RuntimeError("this RemoteExecutor is closed")
        return line

    def _tried(self, line: Connection, question: _Question, limits: Limits) -> Execution:
        """Ask; what fails on the way or over there is asked again, once."""
        why = ""
        for attempt in range(ATTEMPTS):
            if attempt or not line.connected:
                self._closed.wait(random.uniform(0, self._jitter_s))
            try:
                reply = self._asked(line, question, limits)
                ran = to_execution(reply, limits, self._trusted)
                if question.mark:
                    ran = _called(ran, question.mark, limits)
                elif attempt == 0 and _doubtful(reply):
                    continue
            except FaultError as fault:
                why = str(fault)
            else:
                return ran
            if self._closed.is_set():
                raise RuntimeError("this RemoteExecutor was closed during the run")
        return Execution(ended="sandbox_error", why=why)

    def _asked(self, line: Connection, question: _Question, limits: Limits) -> RunReply:
        cap = _ESCAPED * (limits.output_bytes + limits.error_bytes) + _REST_OF_REPLY
        raw = line.post("/run_code", question.body, question.seconds, cap)
        try:
            return read_reply(load(raw))
        except FieldError as failure:
            raise FaultError(f"the server's answer makes no sense: {failure}") from failure


def _as_text(given: Stdin) -> str:
    """Raises ValueError: the API has room for text alone."""
    try:
        return given.data.decode("utf-8")
    except UnicodeDecodeError as failure:
        told = "a remote sandbox takes no input that is not UTF-8 text"
        raise ValueError(f"{told}: byte {failure.start} of {len(given.data)}") from failure


def _called(ran: Execution, mark: str, limits: Limits) -> Execution:
    found = with_value(ran, mark, limits)
    if found is None:
        last = ran.why or f"{ran.ended} with {len(ran.stdout)} bytes of output"
        raise FaultError(f"the call never began: {last}")
    return found


def _doubtful(reply: RunReply) -> bool:
    """Success without output: the program printed nothing, or the server lost it."""
    ran = reply.run_result
    return reply.status == "Success" and ran is not None and not (ran.stdout or reply.measured)
