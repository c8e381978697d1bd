"""Inside the container: the embedded executor, served over standard input and output."""

import os
import select
import sys
import threading
from contextlib import suppress
from typing import Any

from sandbox.docker.messages import (
    hello,
    read_request,
    refusal,
    reply,
    run_parts,
)
from sandbox.namespace.pool import NamespaceExecutor
from sandbox.probe import SandboxUnavailableError

_CHUNK = 1 << 20


def main() -> None:
    """Serve until the host hangs up. The first request says how to open the executor."""
    incoming, outgoing = _own_channel()
    threading.Thread(target=_leave_with_the_host, args=(incoming,), daemon=True).start()

    def take(size: int) -> bytes:
        return _exactly(incoming, size)

    (options,) = read_request(take)
    box = _opened(options, outgoing)
    while True:
        _write(outgoing, _answer(box, read_request(take)))


def _opened(options: dict[str, Any], outgoing: int) -> NamespaceExecutor:
    try:
        box = NamespaceExecutor(slots=1, **options)
    except SandboxUnavailableError as refused:
        _write(outgoing, refusal(refused))
        os._exit(0)
    _write(outgoing, hello({"tier": box.tier, "table": str(box.probe)}))
    return box


def _answer(box: NamespaceExecutor, parts: tuple[Any, ...]) -> bytes:
    try:
        program, given, limits = run_parts(parts)
        return reply(box.run_all(program, given, limits), limits)
    except (ValueError, SandboxUnavailableError) as refused:
        return refusal(refused)


def _own_channel() -> tuple[int, int]:
    """Descriptors that no process started from here inherits; 0 and 1 lead nowhere afterwards."""
    incoming, outgoing = os.dup(0), os.dup(1)
    nowhere = os.open("/dev/null", os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return incoming, outgoing


def _leave_with_the_host(incoming: int) -> None:
    """End everything as soon as the other end of our input is closed, even in the middle of a run.

    The container's first process ends with us, and every other one with it.
    """
    hang_up = select.poll()
    hang_up.register(incoming, 0)
    hang_up.poll()
    os._exit(0)


def _exactly(fd: int, size: int) -> bytes:
    chunks = list[bytes]()
    while size:
        chunk = os.read(fd, min(size, _CHUNK))
        if not chunk:
            os._exit(0)
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main()
    sys.exit(0)
