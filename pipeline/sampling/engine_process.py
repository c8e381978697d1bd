"""The process that an engine has to itself: python -m pipeline.sampling.engine_process SOCKET LIFE

Requests come one at a time over the socket, each a method's name and its arguments; the answer is
("done", value) or ("failed", error), after any parts of it as ("part", value). The process ends
when the other end of LIFE is closed.
"""

import os
import pickle
import signal
import sys
import threading
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

from pipeline.imports import lasting


class _Engine:
    """Methods that the other process may ask for."""

    def __init__(self, channel: Connection) -> None:
        self._channel = channel
        self._sampler: Any = None
        self._weights: Any = None

    def open(self, engine: str, checkpoint: str, settings: dict[str, Any]) -> None:
        from pipeline.sampling.engines import start

        self._sampler = start(engine, checkpoint, **settings)

    def map_weights(self, layout: Any) -> None:
        from pipeline.sampling.shared_weights import mapped

        fd = recv_handle(self._channel)
        try:
            self._weights = mapped(fd, layout)
        finally:
            os.close(fd)

    def load_weights(self, version: int) -> None:
        self._sampler.load_weights(self._weights, version)

    def sample(self, prompts: Any, sampling: Any) -> None:
        """Each prompt's completions as they come; the answer comes after all of them."""

        def told(place: int, completions: Any) -> None:
            self._channel.send(("part", (place, completions)))

        self._sampler.sample(prompts, sampling, told)

    def sleep(self) -> None:
        self._sampler.sleep()

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()


def serve(channel: Connection) -> None:
    """Answer until asked to close, or until nobody asks any more."""
    engine = _Engine(channel)
    method = ""
    while method != "close":
        try:
            method, arguments = channel.recv()
        except EOFError:
            return
        try:
            answer = ("done", getattr(engine, method)(*arguments))
        except Exception as failure:  # noqa: BLE001 - for who asked to deal with
            answer = ("failed", _portable(failure))
        channel.send(answer)


def _portable(failure: Exception) -> Exception:
    """The error as the other process can read it."""
    try:
        pickle.loads(pickle.dumps(failure))
    except Exception:  # noqa: BLE001 - an error may hold anything
        return RuntimeError(f"{type(failure).__name__}: {failure}")
    return failure


def _end_with(life: int) -> None:
    os.read(life, 1)  # returns when the other end is closed, by its process's death at the latest
    os._exit(1)


def main(words: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    socket, life, engine = int(words[0]), int(words[1]), words[2]
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()
    cores = {int(core) for core in words[3:]}
    if cores:
        os.sched_setaffinity(0, cores)
    with lasting():
        from pipeline.sampling.engines import import_early

        import_early(engine)
    serve(Connection(socket))


if __name__ == "__main__":
    main(sys.argv[1:])
