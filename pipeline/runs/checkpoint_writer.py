"""Writes the checkpoints of one stage; those of a model on a GPU while training goes on.

There the tensors are copied to pinned memory, which takes as long as the copy; a thread converts,
writes, hashes and publishes them. On the CPU a checkpoint is written at once: a copy would take
the memory of the model again, and the thread the cores of the training.
"""

import copy
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from torch import Tensor

from veriloop.pipeline.runs import checkpoint, tensor_store


class WriteModel(Protocol):
    """Writes a model with these weights into an empty folder."""

    def __call__(self, folder: Path, *, weights: Mapping[str, Tensor]) -> None: ...


class CheckpointWriter:
    """At most one checkpoint is being written. Leaving the context waits for it."""

    def __init__(self, directory: Path, keep: int) -> None:
        self._directory, self._keep = directory, keep
        self._stager: Any = None
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[Path] | None = None

    def begin(
        self,
        step: int,
        *,
        write_model: WriteModel,
        weights: Mapping[str, Tensor],
        state: Mapping[str, Any],
    ) -> None:
        """Save as `checkpoint.save` does. On return the state and weights on a GPU may change.

        Raises what the writing of the previous checkpoint raised.
        """
        if self._last is not None:
            self.finish()
        rest, tensors = tensor_store.divided(dict(state))
        on_gpu = {name: w for name, w in weights.items() if w.device.type != "cpu"}
        save = partial(checkpoint.save_divided, self._directory, step, keep=self._keep)
        if not (tensors or on_gpu):
            self._last = None  # so that a failure here is not waited for
            path = save(write_model=partial(write_model, weights=weights), rest=rest, tensors={})
            self._last = Future()
            self._last.set_result(path)
            return
        if self._stager is None or self._thread is None:
            self._stager, self._thread = tensor_store.stager(), ThreadPoolExecutor(max_workers=1)
        staged = self._stager({"weights": on_gpu, "state": tensors})
        self._last = self._thread.submit(
            save,
            write_model=partial(write_model, weights={**weights, **staged["weights"]}),
            rest=copy.deepcopy(rest),
            tensors=staged["state"],
        )

    def finish(self) -> Path:
        """Wait for the last checkpoint and return its folder. Raises what its writing raised."""
        assert self._last is not None, "a checkpoint has been begun"
        return self._last.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _value: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._last is not None:
            with suppress(*() if kind is None else (Exception,)):  # the first failure is reported
                self.finish()
