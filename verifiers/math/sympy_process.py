"""The process in which sympy runs: started at the first request, killed at its bounds."""

import atexit
import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from multiprocessing import Pipe
from typing import Any

from veriloop.verifiers.math.to_sympy import Reply
from veriloop.verifiers.math.tree import Node

CPU_S = 15.0  # of one request
START_S = 60.0  # of the wall clock, to import sympy on a busy machine
BUSY = 3.0  # the wall clock of a request may be so many times its CPU time
_SERVE = "import sys; from veriloop.verifiers.math.to_sympy import main; main(*sys.argv[1:])"

_lock = threading.Lock()
_processes: dict[int, "_Process"] = {}  # by the id of their parent: a fork must not share one


@lru_cache(maxsize=4096)
def ask(node: Node, point: tuple[tuple[str, Fraction], ...] = (), cpu_s: float = CPU_S) -> Reply:
    """sympy's value of the tree with these values of its symbols, or why there is none.

    Raises RuntimeError if no process can be started.
    """
    with _lock:
        process = _processes.get(os.getpid())
        if process is None:
            process = _processes[os.getpid()] = _Process()
        reply = process.ask(node, point, cpu_s)
        if reply is None:
            process.kill()
            del _processes[os.getpid()]
            return "undecided", f"sympy exceeded {cpu_s:g} s of CPU or its memory", ""
        return reply


class _Process:
    """One process, and the connection to it."""

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        os.set_inheritable(theirs.fileno(), True)
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "SYMPY_GROUND_TYPES": "python",
            "MPMATH_NOGMPY": "1",
        }
        self._popen = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        theirs.close()
        atexit.register(self.kill)
        if self._receive(START_S) != "ready":
            self.kill()
            raise RuntimeError("the process of computer algebra did not start")

    def ask(
        self, node: Node, point: tuple[tuple[str, Fraction], ...], cpu_s: float
    ) -> Reply | None:
        """The reply; None if the process exceeded its bounds."""
        self._connection.send_bytes(pickle.dumps((node, dict(point), cpu_s)))
        return self._receive(BUSY * cpu_s)

    def kill(self) -> None:
        """Harmless when repeated."""
        atexit.unregister(self.kill)
        self._popen.kill()
        self._popen.wait()
        self._connection.close()

    def _receive(self, seconds: float) -> Any:
        with suppress(EOFError, OSError):
            if self._connection.poll(seconds):
                return self._connection.recv()
        return None
