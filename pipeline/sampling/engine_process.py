"""Start a sampling engine by name, in this process or as a process that serves one.

    python -m veriloop.pipeline.sampling.engine_process SOCKET LIFE KILLED ENGINE [CORE ...]

Requests arrive one at a time over the socket, each a method name and its arguments. The reply is
("done", value) or ("failed", error), preceded by any number of ("part", value). The process ends
when the other end of LIFE is closed. If KILLED is 1, the kernel also kills it when the thread that
started it ends, since a process that hangs cannot end itself.
"""

import ctypes
import importlib
import os
import pickle
import signal
import sys
import threading
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import TYPE_CHECKING, Any

from veriloop.pipeline.training.gc_freeze import lasting
from veriloop.sandbox.child_signals import leave_to_parent
from veriloop.sandbox.host import bind

if TYPE_CHECKING:  # torch is imported under `lasting`
    from veriloop.pipeline.sampling.sampler import Sampler


def import_early(engine: str) -> None:
    """Import what the engine needs before its checkpoint is known. A missing package is reported
    by `start_engine`."""
    if engine == "vllm":
        from veriloop.pipeline.sampling.vllm_engine import imported

        imported()
    else:
        importlib.import_module("veriloop.pipeline.sampling.torch_engine")


def start_engine(
    engine: str,
    checkpoint: str,
    *,
    max_length: int,
    dtype: str,
    cache_gib: float,
    max_batch: int,
    sleep: bool = False,
    graphs: bool = True,
    device: str = "cpu",
) -> "Sampler":
    """Load the checkpoint into an engine in this process; settings as in `SamplerConfig`. The
    device is for the torch engine."""
    if engine == "vllm":
        from veriloop.pipeline.sampling.vllm_engine import VllmSampler

        return VllmSampler(
            checkpoint,
            max_length=max_length,
            dtype=dtype,
            cache_gib=cache_gib,
            max_batch=max_batch,
            sleep=sleep,
            graphs=graphs,
        )
    from veriloop.pipeline.sampling.torch_engine import TorchSampler

    if device == "cpu":
        return TorchSampler(checkpoint, max_batch=max_batch)
    import torch

    from veriloop.pipeline.sampling.static_engine import StaticSampler

    return StaticSampler(
        checkpoint,
        device=torch.device(device),
        dtype=dtype,
        cache_gib=cache_gib,
        max_batch=max_batch,
        graphs=graphs,
    )


_PR_SET_PDEATHSIG = 1


class _Engine:
    """The methods that the parent process may call."""

    def __init__(self, channel: Connection) -> None:
        self._channel = channel
        self._sampler: Any = None
        self._weights: Any = None

    def open(self, engine: str, checkpoint: str, settings: dict[str, Any]) -> bool:
        """Whether the engine computes on a GPU."""
        self._sampler = start_engine(engine, checkpoint, **settings)
        return self._sampler.on_gpu

    def map_weights(self, layout: Any) -> None:
        from veriloop.pipeline.sampling.shared_weights import mapped

        fd = recv_handle(self._channel)
        try:
            self._weights = mapped(fd, layout)
        finally:
            os.close(fd)

    def load_weights(self, version: int) -> None:
        self._sampler.load_weights(self._weights, version)

    def load_from_card(self, version: int) -> None:
        """Ask for each weight by a part of the reply."""
        from veriloop.pipeline.sampling.card_weights import received

        def next_one() -> Any:
            self._channel.send(("part", None))
            return self._channel.recv()

        self._sampler.load_weights(received(next_one), version)

    def digests(self, shapes: Any) -> Any:
        return self._sampler.digests(shapes)

    def sample(self, prompts: Any, sampling: Any) -> None:
        """Send each prompt's completions as a part of the reply."""

        def send(index: int, completions: Any) -> None:
            self._channel.send(("part", (index, completions)))

        self._sampler.sample(prompts, sampling, send)

    def extend(self, responses: Any, sampling: Any) -> None:
        """Send each response as a part of the reply."""

        def send(index: int, completion: Any) -> None:
            self._channel.send(("part", (index, completion)))

        self._sampler.extend(responses, sampling, send)

    def sleep(self) -> None:
        self._sampler.sleep()

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()


def serve(channel: Connection) -> None:
    """Answer requests until `close`, or until the channel is closed."""
    engine = _Engine(channel)
    method = ""
    while method != "close":
        try:
            method, arguments = channel.recv()
        except EOFError:
            return
        try:
            reply = ("done", getattr(engine, method)(*arguments))
        except Exception as failure:  # noqa: BLE001 - the parent raises it
            reply = ("failed", _picklable(failure))
        channel.send(reply)


def _picklable(failure: Exception) -> Exception:
    """The error, or one with its text if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(failure))
    except Exception:  # noqa: BLE001 - pickling may raise anything
        return RuntimeError(f"{type(failure).__name__}: {failure}")
    return failure


def _exit_with_parent(life: int) -> None:
    os.read(life, 1)  # returns when the parent closes its end or dies
    os._exit(1)


def _kill_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(words: list[str]) -> None:
    leave_to_parent()
    socket, life, engine = int(words[0]), int(words[1]), words[3]
    if words[2] == "1":
        _kill_with_parent()
    threading.Thread(target=_exit_with_parent, args=(life,), daemon=True).start()
    cores = {int(core) for core in words[4:]}
    if cores:
        bind(cores)
    with lasting():
        import_early(engine)
    serve(Connection(socket))


if __name__ == "__main__":
    main(sys.argv[1:])
