"""Signals of a run: the first SIGINT or SIGTERM stops it in order, the second ends it at once."""

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

NUMBERS = (signal.SIGINT, signal.SIGTERM)
ENDED = 130  # exit code after either signal
NOTICE = (
    "\nstopping: the current step is finished and saved first; a second Ctrl-C stops at once and "
    "loses the step\n"
)
ORPHANED = "veriloop: torchrun (process {}), which started rank {}, has ended; the run stops\n"
WATCH_S = 1.0  # between two looks at the launcher
_MESSAGE = b"veriloop: ended at once; checkpoints written before are complete\n"


class _Handlers:
    """Handles both signals while open, in the main thread; elsewhere it changes nothing."""

    def __init__(self) -> None:
        self._previous: dict[int, object] = {}
        self.requested = False

    def __enter__(self) -> Self:
        for number in NUMBERS:
            try:
                self._previous[number] = signal.signal(number, self._handle)
            except ValueError:  # not the main thread, which alone may set signal handlers
                break
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        raise NotImplementedError


class CommandSignals(_Handlers):
    """While open, the first signal raises KeyboardInterrupt; a second one ends the process.

    The children of a run end with it.
    """

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.requested:
            self.end()
        self.requested = True
        raise KeyboardInterrupt

    def end(self) -> None:
        """End the process without any cleanup."""
        os.write(2, _MESSAGE)
        os._exit(ENDED)


class StopRequest(_Handlers):
    """While open, the first SIGINT or SIGTERM sets `requested` and prints NOTICE on stderr.

    A second one ends the process inside `CommandSignals`, else it raises KeyboardInterrupt.
    """

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.requested:
            command = getattr(self._previous.get(number), "__self__", None)
            if isinstance(command, CommandSignals):
                command.end()
            raise KeyboardInterrupt
        self.requested = True
        # Unbuffered: a handler must not re-enter a stream that the main program is writing to.
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, NOTICE.encode())


def stop_with_launcher(rank: int) -> Callable[[], None]:
    """Stop the run when torchrun, the process that started this rank, ends: whoever killed it means
    the run, which would go on unseen.

    Until the function that is returned is called, the ranks meet, and this one ends at once: it
    waits for the others where no signal is handled. Then rank 0 stops, and the others end with it.
    """
    met = threading.Event()
    arguments = os.getppid(), rank, met
    threading.Thread(target=_stop_with, args=arguments, daemon=True).start()
    return met.set


def _stop_with(launcher: int, rank: int, met: threading.Event) -> None:
    while os.getppid() == launcher:
        time.sleep(WATCH_S)
    if rank and met.is_set():
        return
    os.write(2, ORPHANED.format(launcher, rank).encode())
    if not met.is_set():
        os._exit(ENDED)
    handler = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if not (isinstance(handler, _Handlers) and handler.requested):  # a second one ends it at once
        os.kill(os.getpid(), signal.SIGTERM)


class ProcessEnd:
    """Ends the process after the exit handlers registered from now on, with `code`, in place of the
    finalization of the interpreter.

    Threads of torch may still release tensors then, as those of gloo do after the last collective,
    and a thread that waits for the interpreter in its finalization aborts the process
    (pytorch/pytorch#190489).
    """

    def __init__(self) -> None:
        self.code = 1  # of an uncaught exception
        atexit.register(self._end)

    def _end(self) -> None:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(OSError, ValueError):  # a broken pipe, or closed
                stream.flush()
        os._exit(self.code)


def uninterrupted_exit(code: int) -> int:
    """For after a command: the first signal from here on is ignored, a second one ends the process.

    While an interpreter closes what is still open, a KeyboardInterrupt prints tracebacks.
    Returns the exit code.
    """

    def ignore(number: int, frame: FrameType | None) -> None:
        del number, frame
        for each in NUMBERS:
            signal.signal(each, lambda *_: os._exit(code))

    for each in NUMBERS:
        signal.signal(each, ignore)
    return code
