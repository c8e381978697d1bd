"""The parent's side of an engine in a separate process, which starts and samples concurrently."""

import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from typing import TYPE_CHECKING, Any

from veriloop.pipeline.errors import StageError
from veriloop.sandbox.child_signals import blocked

if TYPE_CHECKING:  # the process starts before torch is imported
    from torch import Tensor

    from veriloop.pipeline.sampling.sampler import (
        Completion,
        Digest,
        OnComplete,
        OnContinued,
        Sampling,
        Unfinished,
    )
    from veriloop.pipeline.sampling.shared_weights import SharedWeights

OUTPUT_TAIL = 2_000  # characters of the process's output in an error
PATIENCE_S = 20.0  # for the process to end


class EngineGoneError(StageError):
    """The engine's process ended unexpectedly."""


class EngineStuckError(StageError):
    """The engine's process did not reply in time and was killed."""


class EngineProcess:
    """A process that imports `engine` and then waits for requests.

    `cores`: those it may use; empty: all of this process's.
    """

    def __init__(self, engine: str, cores: Collection[int] = ()) -> None:
        self.engine, self.cores = engine, tuple(sorted(cores))
        parent_end, child_end = socket.socketpair()
        life, self._life = os.pipe()
        self._output = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed by stop
        killed = int(threading.current_thread() is threading.main_thread())
        fds = (child_end.fileno(), life)
        arguments = [*map(str, (*fds, killed)), engine, *map(str, self.cores)]
        threads = {"OMP_NUM_THREADS": str(len(self.cores))} if self.cores else {}
        with blocked():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "veriloop.pipeline.sampling.engine_process", *arguments],
                pass_fds=fds,
                env={**os.environ, **threads},
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
            )
        self.pid = self._process.pid
        child_end.close()
        os.close(life)
        self._socket = parent_end
        self._channel = Connection(os.dup(parent_end.fileno()))
        self._requests: deque[str] = deque()  # without a reply yet
        self._interrupted = False
        self._deadline_s = 0.0

    @property
    def idle(self) -> bool:
        """Whether the process was not stopped and every request has its reply."""
        return self._life >= 0 and not self._requests

    def set_deadline(self, seconds: float) -> None:
        """Kill the process when it neither reads nor replies for so long during a request."""
        self._deadline_s = seconds
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, limit)

    def ask(self, method: str, *arguments: Any) -> None:
        """Send a request; replies come in order. Raises EngineGoneError and EngineStuckError."""
        if self._interrupted:  # what it has sent can still be read
            raise self._gone()
        self._requests.append(method)
        self.tell((method, arguments))

    def tell(self, message: Any) -> None:
        """Send what a request waits for. Raises EngineGoneError and EngineStuckError."""
        try:
            self._channel.send(message)
        except BlockingIOError as failure:
            raise self._stuck() from failure
        except OSError as failure:
            raise self._gone() from failure

    def answer(self, part: Callable[[Any], None] | None = None) -> Any:
        """The reply to the oldest open request, or raise its error. `part` is called with each
        partial reply before it. Raises EngineGoneError and EngineStuckError.

        The process is killed if `part` fails or this is interrupted: what is left of the reply
        would answer the next request.
        """
        try:
            outcome, value = self._receive()
            while outcome == "part":
                assert part is not None, "this request has no partial replies"
                part(value)
                outcome, value = self._receive()
        except BaseException:
            self._interrupted = True
            self._process.kill()
            raise
        self._requests.popleft()
        if outcome == "failed":
            raise value
        return value

    def _receive(self) -> tuple[str, Any]:
        try:
            return self._channel.recv()
        except BlockingIOError as failure:  # the deadline has passed
            raise self._stuck() from failure
        except (EOFError, OSError) as failure:
            raise self._gone() from failure

    def hand_over(self, fd: int) -> None:
        """Send the process a file descriptor that it waits for."""
        try:
            send_handle(self._channel, fd, self._process.pid)
        except BlockingIOError as failure:
            raise self._stuck() from failure
        except OSError as failure:
            raise self._gone() from failure

    def stop(self) -> None:
        """End the process; a request in progress in another thread raises EngineGoneError.
        Idempotent."""
        if self._life >= 0:
            os.close(self._life)
            self._life = -1
            self._end()
            self._channel.close()
            self._socket.close()
            self._output.close()

    def kill(self) -> None:
        """`stop`, without waiting for the process to end by itself."""
        self._process.kill()
        self.stop()

    def _end(self) -> int | None:
        """The exit code, of SIGKILL if the process does not end by itself; None if it does not
        even end then."""
        for _ in range(2):
            try:
                return self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return None

    def _gone(self) -> EngineGoneError:
        code = self._end()
        cause = f"ended with exit code {code}"
        if code is not None and code < 0:
            cause = f"was killed by signal {-code}"
        return EngineGoneError(f"the process of the {self.engine} sampler {cause}. {self._tail()}")

    def _stuck(self) -> EngineStuckError:
        self._process.kill()
        return EngineStuckError(
            f"the process of the {self.engine} sampler (pid {self.pid}) was silent for "
            f"{self._deadline_s:g} s (sampler.deadline_s) on the request {self._requests[0]!r}; it "
            f"was killed. {self._tail()}"
        )

    def _tail(self) -> str:
        if self._output.closed:
            return "It was stopped"
        self._output.seek(0)
        output = self._output.read().decode(errors="backslashreplace").strip()[-OUTPUT_TAIL:]
        return f"Its last output: {output or 'none'}"


class ApartSampler:
    """A sampler whose engine runs in another process. Weights are sent through shared memory; that
    is the GPU's if they and the engine are on one."""

    def __init__(
        self,
        process: EngineProcess,
        checkpoint: str,
        *,
        deadline_s: float = 3600.0,
        dtype: str = "float32",
        **settings: Any,
    ) -> None:
        """Returns before the engine is ready; errors of loading are raised at its first use.
        `settings` are those of `start_engine`; `deadline_s` is that of `SamplerConfig`."""
        process.set_deadline(deadline_s)
        self._deadline_s = deadline_s
        self.name, self.dtype = process.engine, dtype
        self.pid: int | None = process.pid
        self.version = 0
        self._process = process
        self._weights: SharedWeights | None = None
        self._loading, self._asleep, self._on_gpu = True, False, False
        process.ask("open", process.engine, checkpoint, {"dtype": dtype, **settings})

    def load_weights(self, weights: "Iterable[tuple[str, Tensor]]", version: int) -> None:
        from veriloop.pipeline.model.device import give_back_unused
        from veriloop.pipeline.sampling.card_weights import peeked

        self._wait_until_loaded()
        if self._asleep:
            give_back_unused()
            self._asleep = False
        device, weights = peeked(weights)
        if self._on_gpu and device is not None and device.type == "cuda":
            self._send_on_card(weights, version)
        else:
            self._send_through_host(weights, version)
        self.version = version

    def _send_on_card(self, weights: "Iterable[tuple[str, Tensor]]", version: int) -> None:
        from veriloop.pipeline.sampling.card_weights import release, staged

        sending = staged(weights)
        self._process.ask("load_from_card", version)
        self._process.answer(lambda _: self._process.tell(next(sending, None)))
        release()

    def _send_through_host(self, weights: "Iterable[tuple[str, Tensor]]", version: int) -> None:
        from veriloop.pipeline.sampling.shared_weights import SharedWeights

        if self._weights is None:
            self._weights = SharedWeights()
        if self._weights.write(weights):
            self._process.ask("map_weights", self._weights.layout)
            self._process.hand_over(self._weights.fd)
            self._process.answer()
        self._process.ask("load_weights", version)
        self._process.answer()

    def digests(self, shapes: "Mapping[str, tuple[int, ...]]") -> "list[tuple[str, Digest]]":
        self._process.ask("digests", dict(shapes))
        return self._process.answer()

    def sample(
        self,
        prompts: "Sequence[Sequence[int]]",
        sampling: "Sampling",
        on_complete: "OnComplete | None" = None,
    ) -> "list[list[Completion]]":
        self._wait_until_loaded()
        groups: dict[int, list[Completion]] = {}

        def part(value: "tuple[int, list[Completion]]") -> None:
            index, groups[index] = value
            if on_complete is not None:
                on_complete(index, groups[index])

        self._process.ask("sample", [tuple(prompt) for prompt in prompts], sampling)
        self._process.answer(part)
        return [groups[index] for index in range(len(prompts))]

    def extend(
        self,
        responses: "Sequence[Unfinished]",
        sampling: "Sampling",
        on_continued: "OnContinued | None" = None,
    ) -> "list[Completion]":
        self._wait_until_loaded()
        continued: dict[int, Completion] = {}

        def part(value: "tuple[int, Completion]") -> None:
            index, continued[index] = value
            if on_continued is not None:
                on_continued(index, continued[index])

        self._process.ask("extend", list(responses), sampling)
        self._process.answer(part)
        return [continued[index] for index in range(len(responses))]

    def sleep(self) -> None:
        self._wait_until_loaded()
        self._process.ask("sleep")
        self._process.answer()
        self._asleep = True

    def close(self) -> None:
        """End the process; without its reply if a request was given up or is still in progress, and
        if an engine that nobody has used does not load soon."""
        try:
            if self._loading:
                self._process.set_deadline(min(PATIENCE_S, self._deadline_s))
                with suppress(EngineStuckError):
                    self._wait_until_loaded()
                self._process.set_deadline(self._deadline_s)
            if self._process.idle:
                self._process.ask("close")
                self._process.answer()
        finally:
            self._process.stop()
            self._close_weights()

    def abandon(self) -> None:
        """Kill the process; a request in another thread raises EngineGoneError. Errors of loading
        are not raised any more."""
        self._loading = False
        self._process.kill()
        self._close_weights()

    @property
    def given_up(self) -> bool:
        """Whether a request was interrupted, which ended the engine."""
        return not (self._loading or self._process.idle)

    def _wait_until_loaded(self) -> None:
        if self._loading:
            self._loading = False
            self._on_gpu = self._process.answer()

    def _close_weights(self) -> None:
        if self._weights is not None:
            self._weights.close()
            self._weights = None
