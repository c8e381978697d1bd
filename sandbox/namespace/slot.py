"""The parent's side of one zygote: runs one execution at a time, monitored from outside."""

import itertools
import json
import math
import os
import select
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from veriloop.sandbox.interpreter import ENVIRONMENT
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace import signals
from veriloop.sandbox.namespace.cgroup import Cgroup, Kills, kills_of_machine
from veriloop.sandbox.namespace.classify import MemoryKill, classify
from veriloop.sandbox.namespace.deadline import Deadline, tree_usage, usage
from veriloop.sandbox.namespace.protocol import (
    GET_HANDLE,
    KILL,
    Report,
    receive_handle,
    receive_report,
    send_request,
    split_code,
)
from veriloop.sandbox.namespace.requests import SPARE_TASKS, PreparedRun, Setup, host_id
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.result import Execution

_START_LIMIT_S = 60.0
_REPLY_LIMIT_S = 20.0  # for the zygote's own work, which takes milliseconds
_FIRST_WAIT_MS = 5  # before pipes are read; a child that fills one waits at most this long
_SPARE_BYTES = 64 << 20  # the slot's own memory
_OTHERS_END_S = 0.25  # between the first and the last process of a run that a signal reaches
_STOPS = {getattr(signal, f"SIG{name}") for name in ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2")}
_INTERRUPTED = b"KeyboardInterrupt"  # the end of a program's traceback after SIGINT
_BIND_NOW = {"LD_BIND_NOW": "1"}  # resolve C functions once, not in every fork

_numbers = itertools.count()


class LostSlotError(RuntimeError):
    """The zygote died or stopped responding: an infrastructure failure."""

    def __init__(self, why: str, *, out_of_memory: bool = False) -> None:
        super().__init__(why)
        self.out_of_memory = out_of_memory


class Slot:
    """A running zygote. Raises SandboxUnavailableError if it cannot be started."""

    def __init__(self, setup: Setup, preload: tuple[str, ...] = ()) -> None:
        self.setup = setup
        self.preload = preload
        self._cpu_before_s: float | None = None  # of the cgroup when the current run started
        self.spent = False  # may still be charged for a program killed for memory
        self.number = next(_numbers)
        with ExitStack() as on_error:
            self.cgroup = Cgroup(setup.site, str(self.number)) if setup.site else None
            if self.cgroup is not None:
                on_error.callback(self.cgroup.remove)
            self.control, zygote_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            on_error.callback(self.control.close)
            with zygote_end:
                self.process = self._spawn(zygote_end)
            on_error.pop_all()
            on_error.callback(self._end)
            self._await_start()
            on_error.pop_all()
        self.control.settimeout(_REPLY_LIMIT_S)
        self._poll = select.poll()
        self._poll.register(self.control, select.POLLIN)
        self._kills = self._count_kills()  # seen so far

    def _await_start(self) -> None:
        self.control.settimeout(_START_LIMIT_S)
        try:
            hello = self.control.recv(16)
        except OSError as error:
            hello = str(error).encode()
        if hello != b"READY":
            output = self._end().strip().splitlines() or [repr(hello)]
            raise SandboxUnavailableError(
                f"zygote did not start in {self.setup.python}: {output[-1]}"
            )

    def _spawn(self, zygote_end: socket.socket) -> "subprocess.Popen[bytes]":
        settings = {
            "control": zygote_end.fileno(),
            "parent": os.getpid(),
            "tier": self.setup.tier,
            "way": self.setup.way,
            "host_id": host_id(Path("/proc/self/uid_map").read_text(), os.getpid(), self.number),
            "entrances": self.cgroup.entrances() if self.cgroup else [],
            "read_only": self.setup.python.read_only,
            "preload": self.preload,
        }
        return subprocess.Popen(
            self.setup.python.command("namespace.zygote", json.dumps(settings)),
            pass_fds=[zygote_end.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # no file, so that programs cannot take theirs for one
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**ENVIRONMENT, **_BIND_NOW},
            cwd="/",
        )

    def run(self, run: PreparedRun) -> Execution:
        """One execution. Raises LostSlotError for an infrastructure failure."""
        started = time.monotonic()
        deadline = Deadline(started, run.limits, run.shared)
        try:
            self._start(run)
            stopped, report = self._await_end(run, deadline)
            out, err, result = run.pipes.finish()
        except OSError as error:
            full = self._memory_kill() == "own"
            raise LostSlotError(f"zygote: {error}", out_of_memory=full) from error
        finally:
            run.pipes.close()
        if not stopped and self._ended_from_outside(report, err):
            raise LostSlotError("the sandbox was sent a signal that ends it")
        if run.share:
            run.compiled, result = split_code(result)
        limits = run.limits
        memory_kill = self._memory_kill() if report.killed or limits.processes else ""
        self.spent = memory_kill != ""
        tree_s = self._tree_cpu_s() if limits.processes else None
        return classify(
            run.invocation,
            limits,
            replace(report, cpu_s=max(report.cpu_s, tree_s or 0.0)),
            stopped=stopped or ("output" if run.pipes.overflowed else ""),
            memory_kill=memory_kill,
            stdout=out,
            stderr=err,
            result=result,
            wall_s=time.monotonic() - started,
            waited_s=deadline.waited_s,
        )

    def stop(self) -> None:
        """Kill the current program from another thread; the slot remains usable."""
        with suppress(OSError):
            self.control.send(KILL)

    def interrupt(self) -> None:
        """End the current run from another thread. The slot cannot be used afterwards."""
        with suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the zygote and all it started, and remove its cgroup. May be called again."""
        self._end()

    def _set_bounds(self, limits: Limits) -> None:
        if self.cgroup is None:
            self._kills = self._count_kills()  # those of others before this run
            return
        memory = (limits.memory_mb + limits.disk_mb << 20) + _SPARE_BYTES
        self.cgroup.bound(memory, limits.processes + limits.threads + SPARE_TASKS)

    def _count_kills(self) -> Kills:
        """Those in its cgroup; without one those of the machine, where others count as well."""
        return kills_of_machine() if self.cgroup is None else self.cgroup.kills()

    def _memory_kill(self) -> MemoryKill:
        """At whose bound the kernel has killed a process of the slot for memory since the last
        call: "own", that of its cgroup; "outer", any other; "": it has killed none."""
        before, self._kills = self._kills, self._count_kills()
        if self._kills.killed <= before.killed:
            return ""
        return "own" if self._kills.at_limit > before.at_limit else "outer"

    def _start(self, run: PreparedRun) -> None:
        """Bound the slot and send the request. Raises LostSlotError if the zygote has ended."""
        try:
            if self._poll.poll(0):
                raise LostSlotError("the zygote ended between two runs")
            self._set_bounds(run.limits)
            self._cpu_before_s = self.cgroup.cpu_s() if self.cgroup else None
            send_request(self.control, run.request, run.streams)
        finally:
            run.streams.close()

    def _await_end(self, run: PreparedRun, deadline: Deadline) -> tuple[str, Report]:
        """Wait until the child ends, or end it. The reason for ending it or "", and its report.

        Most programs end within the first wait: their output fits into the pipes.
        """
        stopped = ""
        if not self._poll.poll(min(_FIRST_WAIT_MS, 1000 * run.limits.wall)):
            stopped = self._read_pipes(run, deadline)
        if stopped:
            self.control.send(KILL)
        return stopped, self._report()

    def _read_pipes(self, run: PreparedRun, deadline: Deadline) -> str:
        """Read all pipes until the child ends. The reason why it must be ended, or ""."""
        poll, pipes = select.poll(), run.pipes
        for fd in (self.control, *pipes.read):
            poll.register(fd, select.POLLIN)
        while True:
            left = deadline.left()
            if left <= 0:
                if self._check_usage(deadline, run.limits) or deadline.verdict:
                    return deadline.verdict
                continue
            ready = [fd for fd, _ in poll.poll(math.ceil(left * 1000))]
            for fd in ready:
                if fd != self.control.fileno() and not pipes.drain(fd):
                    poll.unregister(fd)
            if pipes.overflowed:
                return "output"
            if self.control.fileno() in ready:
                return ""

    def _ended_from_outside(self, report: Report, stderr: bytes) -> bool:
        """Whether a signal reached the whole slot: then the program is not at fault for its end.

        systemd and Slurm send SIGTERM and others to every process of a run, one after the other.
        The supervisor ignores none of them, and no program can reach it. A program that such a
        signal ended may have received it first.
        """
        number = -os.waitstatus_to_exitcode(report.status)
        interrupted = stderr.rstrip().endswith(_INTERRUPTED)
        if number not in _STOPS and not interrupted:
            return self.process.poll() is not None
        try:
            self.process.wait(_OTHERS_END_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _tree_cpu_s(self) -> float | None:
        """CPU time of the current run and all that it started; None if it is not counted."""
        if self.cgroup is None or self._cpu_before_s is None:
            return None
        return (self.cgroup.cpu_s() or 0.0) - self._cpu_before_s

    def _check_usage(self, deadline: Deadline, limits: Limits) -> bool:
        """Update the deadline with the child's resource usage. True if the child has ended."""
        self.control.send(GET_HANDLE)
        self._await_answer()
        handle = receive_handle(self.control)
        if handle is None:
            return True
        try:
            if limits.processes and self.cgroup is not None:
                pids = self.cgroup.processes()
                deadline.update(*tree_usage(handle, pids, self._tree_cpu_s()))
            else:
                deadline.update(*usage(handle))
        finally:
            os.close(handle)
        return False

    def _report(self) -> Report:
        """The zygote's report after it has reaped the child. Raises OSError if none comes."""
        self._await_answer()
        report = receive_report(self.control)
        if report is None:
            raise OSError("hung up before the child was reaped")
        if self.setup.tier == 1:
            report = replace(report, status=signals.signalled_status(report.status))
        return report

    def _await_answer(self) -> None:
        if not self._poll.poll(1000 * _REPLY_LIMIT_S):
            raise OSError(f"silent for {_REPLY_LIMIT_S:g} s")

    def _end(self) -> str:
        """Close the connection, wait for the zygote and clean up. Returns its output.

        A process that another thread has forked may hold a copy of the connection.
        """
        self.interrupt()
        self.control.close()
        try:
            output, _ = self.process.communicate(timeout=_REPLY_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            output, _ = self.process.communicate()
        except ValueError:  # closed already
            output = b""
        if self.cgroup is not None:
            self.cgroup.remove()
        return output.decode(errors="replace")
