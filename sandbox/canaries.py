"""Secrets and listeners outside the sandbox that attacks try to reach."""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

FILES = ("/root/.rlvr_canary", "/tmp/rlvr_canary_tmp")
TCP = ("127.0.0.1", 47631)
UDP = ("127.0.0.1", 47632)
SOCKETS = ("/tmp/rlvr_canary.sock", "\0rlvr_canary")
VARIABLE = "RLVR_CANARY"
_WAKE_S = 0.2  # polling interval of listeners


@dataclass(frozen=True, slots=True, kw_only=True)
class Canaries:
    """The targets that were set up, and those that could not be."""

    secret: str  # in the files and the variable; no run may print it
    missing: Sequence[str]  # attacks on these prove nothing on this machine


@contextmanager
def canaries() -> Iterator[Canaries]:
    """Set up all targets, in this process and on loopback only, and remove them at the end."""
    secret = f"RLVR-CANARY-{os.urandom(8).hex()}"
    missing: list[str] = []
    with ExitStack() as stack:

        def attempt(name: str, enter: Callable[[], None]) -> None:
            try:
                enter()
            except OSError as error:
                shown = name.replace("\0", "@")  # an abstract socket
                missing.append(f"{shown} ({error.strerror or error})")

        stack.enter_context(_variable(secret))
        for path in FILES:
            attempt(path, lambda path=path: stack.enter_context(_file(Path(path), secret)))
        attempt("tcp", lambda: stack.enter_context(_listener(socket.AF_INET, TCP)))
        attempt("udp", lambda: stack.enter_context(_echo()))
        for name in SOCKETS:
            attempt(name, lambda name=name: stack.enter_context(_listener(socket.AF_UNIX, name)))
        yield Canaries(secret=secret, missing=tuple(missing))


@contextmanager
def _variable(secret: str) -> Iterator[None]:
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = secret
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


@contextmanager
def _file(path: Path, secret: str) -> Iterator[None]:
    path.write_text(f"{secret}\n")
    try:
        yield
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    with suppress(PermissionError):  # replaced by another account meanwhile
        path.unlink(missing_ok=True)


@contextmanager
def _listener(family: socket.AddressFamily, address: str | tuple[str, int]) -> Iterator[None]:
    path = address if isinstance(address, str) and not address.startswith("\0") else ""
    if path:
        Path(path).unlink(missing_ok=True)
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(16)
        if path:
            os.chmod(path, 0o777)
        try:
            with _serving(listening, lambda: listening.accept()[0].close()):
                yield
        finally:
            if path:
                _remove(Path(path))


@contextmanager
def _echo() -> Iterator[None]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as answering:
        answering.bind(UDP)

        def answer() -> None:
            data, sender = answering.recvfrom(64)
            answering.sendto(data, sender)

        with _serving(answering, answer):
            yield


@contextmanager
def _serving(listening: socket.socket, serve: Callable[[], None]) -> Iterator[None]:
    """Serve callers in a thread until the block ends."""
    stop = threading.Event()
    listening.settimeout(_WAKE_S)

    def loop() -> None:
        while not stop.is_set():
            with suppress(OSError):  # no caller, or one that has disconnected
                serve()

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
