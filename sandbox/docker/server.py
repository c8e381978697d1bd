"""The server inside the container: serves the embedded executor over standard input and output."""

import os
import select
import sys
import threading
from contextlib import suppress
from typing import Any

from veriloop.sandbox.docker.messages import hello, read_request, refusal, reply, run_parts
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.probe import SandboxUnavailableError

_CHUNK = 1 << 20


def main() -> None:
    """Serve until the host disconnects. The first request has the executor's options."""
    incoming, outgoing = _own_channel()
    threading.Thread(target=_exit_with_host, args=(incoming,), daemon=True).start()

    def take(size: int) -> bytes:
        return _exactly(incoming, size)

    (options,) = read_request(take)
    executor = _open_executor(options, outgoing)
    while True:
        _write(outgoing, _answer(executor, read_request(take)))


def _open_executor(options: dict[str, Any], outgoing: int) -> NamespaceExecutor:
    try:
        executor = NamespaceExecutor(slots=1, **options)
    except SandboxUnavailableError as error:
        _write(outgoing, refusal(error))
        os._exit(0)
    _write(outgoing, hello({"tier": executor.tier, "table": str(executor.probe)}))
    return executor


def _answer(executor: NamespaceExecutor, parts: tuple[Any, ...]) -> bytes:
    try:
        program, invocations, limits = run_parts(parts)
        return reply(executor.run_all(program, invocations, limits), limits)
    except (ValueError, SandboxUnavailableError) as error:
        return refusal(error)


def _own_channel() -> tuple[int, int]:
    """Move standard input and output to descriptors that no child inherits; 0 and 1 become
    /dev/null."""
    incoming, outgoing = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return incoming, outgoing


def _exit_with_host(incoming: int) -> None:
    """Exit as soon as the host closes our input, even during a run.

    The container's first process then ends too, and with it all others.
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
