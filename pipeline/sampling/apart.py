"""An engine in a process of its own: it starts while the caller is busy, and samples beside it."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from typing import TYPE_CHECKING, Any

from pipeline.failures import StageError

if TYPE_CHECKING:  # a process is started long before torch is needed
    from torch import Tensor

    from pipeline.sampling.sampler import Completion, Sampling, Told
    from pipeline.sampling.shared_weights import SharedWeights

TOLD = 2_000  # characters of what the process last said, in an error
PATIENCE_S = 20.0  # for an engine to close


class EngineGoneError(StageError):
    """The process of the engine ended by itself."""


class EngineProcess:
    """A process that imports `engine` at once and waits to be told more.

    `cores`: the ones it may use; with none named, all of this process's.
    """

    def __init__(self, engine: str, cores: Collection[int] = ()) -> None:
        self.engine, self.cores = engine, tuple(sorted(cores))
        ours, theirs = socket.socketpair()
        life, self._life = os.pipe()
        self._said = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed by stop
        words = [str(theirs.fileno()), str(life), engine, *map(str, self.cores)]
        threads = {"OMP_NUM_THREADS": str(len(self.cores))} if self.cores else {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.sampling.engine_process", *words],
            pass_fds=(theirs.fileno(), life),
            env={**os.environ, **threads},
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
        )
        self.pid = self._process.pid
        theirs.close()
        os.close(life)
        self._channel = Connection(ours.detach())

    def ask(self, method: str, *arguments: Any) -> None:
        """Send a request; each is answered in its turn. Raises EngineGoneError."""
        try:
            self._channel.send((method, arguments))
        except OSError as failure:
            raise self._gone() from failure

    def answer(self, part: Callable[[Any], None] | None = None) -> Any:
        """What the earliest unanswered request gave, or raises what it raised. `part` is given the
        parts that come before it."""
        while True:
            try:
                outcome, value = self._channel.recv()
            except (EOFError, OSError) as failure:
                raise self._gone() from failure
            if outcome == "failed":
                raise value
            if outcome == "done":
                return value
            assert part is not None, "this request is answered at once"
            part(value)

    def hand_over(self, fd: int) -> None:
        """Lend the process a descriptor, which it is waiting for."""
        send_handle(self._channel, fd, self._process.pid)

    def stop(self) -> None:
        """End the process, whatever it does. Harmless when repeated."""
        if self._life >= 0:
            os.close(self._life)
            self._life = -1
            self._channel.close()
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._said.close()

    def _gone(self) -> EngineGoneError:
        code = self._process.wait()
        self._said.seek(0)
        told = self._said.read().decode(errors="backslashreplace").strip()[-TOLD:]
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return EngineGoneError(
            f"the process of the {self.engine} sampler {how}. It last said: {told or 'nothing'}"
        )


class ApartSampler:
    """A sampler whose engine is in another process. The weights go over by shared memory."""

    def __init__(self, process: EngineProcess, checkpoint: str, **settings: Any) -> None:
        """Returns before the engine is ready; what it has against the checkpoint is raised when
        it is first used. `settings`: those of `engines.start`."""
        self.name = process.engine
        self.pid: int | None = process.pid
        self.version = 0
        self._process = process
        self._weights: SharedWeights | None = None
        self._opening, self._asleep = True, False
        process.ask("open", process.engine, checkpoint, settings)

    def load_weights(self, weights: "Iterable[tuple[str, Tensor]]", version: int) -> None:
        from pipeline.device import give_back_unused
        from pipeline.sampling.shared_weights import SharedWeights, places

        self._opened()
        if self._asleep:
            give_back_unused()
            self._asleep = False
        given = list(weights)
        layout = places(given)
        if self._weights is None or self._weights.layout != layout:
            self._forget_weights()
            self._weights = SharedWeights(layout)
            self._process.ask("map_weights", layout)
            self._process.hand_over(self._weights.fd)
            self._process.answer()
        self._weights.write(given)
        self._process.ask("load_weights", version)
        self._process.answer()
        self.version = version

    def sample(
        self, prompts: "Sequence[Sequence[int]]", sampling: "Sampling", told: "Told | None" = None
    ) -> "list[list[Completion]]":
        self._opened()
        groups: dict[int, list[Completion]] = {}

        def part(value: "tuple[int, list[Completion]]") -> None:
            place, groups[place] = value
            if told is not None:
                told(place, groups[place])

        self._process.ask("sample", [tuple(prompt) for prompt in prompts], sampling)
        self._process.answer(part)
        return [groups[place] for place in range(len(prompts))]

    def sleep(self) -> None:
        self._opened()
        self._process.ask("sleep")
        self._process.answer()
        self._asleep = True

    def close(self) -> None:
        try:
            self._opened()
            self._process.ask("close")
            self._process.answer()
        finally:
            self._process.stop()
            self._forget_weights()

    def _opened(self) -> None:
        if self._opening:
            self._opening = False
            self._process.answer()

    def _forget_weights(self) -> None:
        if self._weights is not None:
            self._weights.close()
            self._weights = None
