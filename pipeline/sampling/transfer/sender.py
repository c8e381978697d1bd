"""The trainer's side: fills buckets with weights and sends them to the workers of all servers."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from threading import Event
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor
from torch._C._distributed_c10d import TCPStore
from torch.distributed import DistError

from veriloop.pipeline.model.device import synchronize
from veriloop.pipeline.sampling.shared_weights import TensorSlot
from veriloop.pipeline.sampling.transfer.groups import Seat, broadcast, open_group, seat
from veriloop.pipeline.sampling.transfer.memory import SharedBytes
from veriloop.pipeline.sampling.transfer.records import (
    JOINING,
    OPEN,
    Bucket,
    Invitation,
    Way,
    address_towards,
    at_bucket,
    encoded,
    has_loaded,
    head_key,
    progress_key,
    this_machine,
    weight_in,
)

BUCKET_BYTES = 2**28  # a larger weight has a bucket of its own
OPENING_S = 300.0  # for this process to connect to its own store: no server is waited for
POLL_S = 0.001


class TransferError(Exception):
    """Weights did not reach all servers; `late` names those that kept the others waiting."""

    def __init__(self, reason: str, late: Iterable[str] = ()) -> None:
        super().__init__(reason)
        self.late = tuple(late)


class _OwnBytes:
    """Memory of this process, which a process group sends."""

    memory = None

    def __init__(self, size: int, device: torch.device) -> None:
        self.bytes_B = torch.empty(size, dtype=torch.uint8, device=device)

    def close(self) -> None: ...


class Sender:
    """Sends weights to the same servers again and again. Other servers need new connections, which
    `invite` makes; so does a `send` that failed."""

    def __init__(self, way: Way, deadline_s: float, bucket_bytes: int = BUCKET_BYTES) -> None:
        """`deadline_s`: for workers to connect, to be ready for a bucket, and to load the last."""
        self.way: Way = way
        self._deadline_s, self._bucket_bytes = deadline_s, bucket_bytes
        self._workers: dict[str, int] = {}
        self._names: list[str] = []  # of the server of each worker
        self._store: TCPStore | None = None
        self._groups: list[Any] = []
        self._id, self._sync, self._address = "", 0, ""
        self._bucket: SharedBytes | _OwnBytes | None = None
        self._is_new = False  # workers do not know where the bucket is

    def invite(self, workers: Mapping[str, int]) -> dict[str, Invitation]:
        """What each server is told for the next `send`. `workers`: of each server, by its URL.

        Raises TransferError if this process cannot open a port for them.
        """
        if self._store is None or dict(workers) != self._workers:
            self.close()
            self._workers, self._address = dict(workers), address_towards(workers)
            self._names = [name for name, count in workers.items() for _ in range(count)]
            self._id, self._sync, self._is_new = uuid4().hex, 0, True
            self._store = self._opened_store()
        self._sync += 1
        firsts = {name: self._names.index(name) for name in workers}
        return {
            name: Invitation(
                group=self._id, way=self.way, host=self._address, port=self._store.port,
                machine=this_machine(), first=first, workers=len(self._names), sync=self._sync,
                deadline_s=self._deadline_s,
            )
            for name, first in firsts.items()
        }  # fmt: skip

    def send(self, weights: Iterable[tuple[str, Tensor]], lost: Event) -> None:
        """Send all weights to those who were invited; returns when they have loaded them.

        Raises TransferError if some are late, or if `lost` is set meanwhile. After a failure `lost`
        is set and the connections are closed: workers that wait for more end by an error.
        """
        try:
            if not self._groups and self.way != "ipc":
                self._open_groups(lost)
            number = 0
            for bucket in self._filled(weights):
                self._send_bucket(number, bucket, lost)
                number += 1
            self._announce(number, Bucket())
            self._wait_for(has_loaded(self._sync), lost, "loading the weights")
            self._forget(number)
        except BaseException:
            lost.set()
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        for group in self._groups:
            group.abort()
        self._groups, self._store, self._workers = [], None, {}
        if self._bucket is not None:
            self._bucket.close()
            self._bucket = None

    def _opened_store(self) -> TCPStore:
        try:
            store = TCPStore(
                self._address, 0, is_master=True, wait_for_workers=False,
                timeout=timedelta(seconds=OPENING_S),
            )  # fmt: skip
        except DistError as failure:
            raise TransferError(
                f"no port could be opened on {self._address}: {failure}"
            ) from failure
        store.set_timeout(timedelta(seconds=self._deadline_s))
        for worker in range(len(self._names)):
            store.set(progress_key(worker), "")
        return store

    def _open_groups(self, lost: Event) -> None:
        """One group after the other, once all workers are about to connect."""
        assert self._store is not None, "invite was called"
        self._wait_for(JOINING, lost, "connecting to the trainer")
        self._store.set(OPEN, "")
        last = seat(len(self._names) - 1, len(self._names))
        for part in range(last.part + 1):
            size = last.size if part == last.part else seat(0, len(self._names)).size
            try:
                group = open_group(
                    self.way, self._store, Seat(part=part, rank=0, size=size),
                    address=self._address, deadline_s=self._deadline_s,
                )  # fmt: skip
            except RuntimeError as failure:
                raise TransferError(f"no process group: {_line(failure)}") from failure
            self._groups.append(group)

    def _filled(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[Bucket]:
        """Bucket after bucket; the memory holds what the last head says."""
        slots: list[TensorSlot] = []
        for name, weight in weights:
            slot = TensorSlot(
                name=name, dtype=weight.dtype, shape=tuple(weight.shape),
                offset=slots[-1].end if slots else 0, size=weight.numel() * weight.element_size(),
            )  # fmt: skip
            if slots and slot.end > self._room:
                yield self._head(slots)
                slots, slot = [], replace(slot, offset=0)
            if slot.end > self._room:
                self._grow(max(slot.end, self._bucket_bytes), weight.device)
            assert self._bucket is not None
            weight_in(self._bucket.bytes_B, slot).copy_(weight.detach())
            slots.append(slot)
            del weight  # before the next is computed
        if slots:
            yield self._head(slots)

    @property
    def _room(self) -> int:
        return 0 if self._bucket is None else len(self._bucket.bytes_B)

    def _grow(self, size: int, device: torch.device) -> None:
        if self._bucket is not None:
            self._bucket.close()
            self._bucket = None  # released before more is taken
        if self.way == "ipc":
            self._bucket, self._is_new = SharedBytes(size, device), True
        else:
            on = device if self.way == "nccl" else torch.device("cpu")
            self._bucket = _OwnBytes(size, on)

    def _head(self, slots: list[TensorSlot]) -> Bucket:
        assert self._bucket is not None
        memory = self._bucket.memory if self._is_new else None
        self._is_new = False
        return Bucket(slots=tuple(slots), memory=memory)

    def _send_bucket(self, number: int, bucket: Bucket, lost: Event) -> None:
        """Ends when the memory can be overwritten."""
        assert self._bucket is not None and self._store is not None
        bytes_B = self._bucket.bytes_B[: bucket.size]
        # What gathered and copied the weights ends before a second group begins: two NCCL groups
        # that wait for each other on one GPU never end.
        synchronize(bytes_B.device)
        self._announce(number, bucket)
        self._wait_for(at_bucket(self._sync, number), lost, f"receiving bucket {number}")
        for group in self._groups:
            work = broadcast(group, bytes_B)
            self._until(work.is_completed, lost, f"receiving bucket {number}")
            try:
                work.wait()
            except RuntimeError as failure:
                raise TransferError(f"receiving bucket {number}: {_line(failure)}") from failure
            synchronize(bytes_B.device)
        self._forget(number)

    def _announce(self, number: int, bucket: Bucket) -> None:
        assert self._store is not None
        self._store.set(head_key(self._sync, number), encoded(bucket))

    def _forget(self, number: int) -> None:
        assert self._store is not None
        self._store.delete_key(head_key(self._sync, number))

    def _wait_for(self, mark: str, lost: Event, what: str) -> None:
        """Wait until every worker has written this mark; `what` it does until then."""
        assert self._store is not None
        store, waiting = self._store, list(range(len(self._names)))

        def arrived() -> bool:
            values = store.multi_get([progress_key(worker) for worker in waiting])
            waiting[:] = [
                worker
                for worker, value in zip(waiting, values, strict=True)
                if value.decode() != mark
            ]
            return not waiting

        self._until(
            arrived, lost, what, lambda: dict.fromkeys(self._names[worker] for worker in waiting)
        )

    def _until(
        self,
        condition: Callable[[], bool],
        lost: Event,
        what: str,
        late: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        end = time.monotonic() + self._deadline_s
        while not condition():
            if lost.is_set():
                raise TransferError(f"{what}: a server was lost")
            if time.monotonic() > end:
                names = list(late())
                raise TransferError(
                    f"{what}: {', '.join(names) or 'it'} took more than {self._deadline_s:g} s",
                    names,
                )
            time.sleep(POLL_S)


def _line(failure: BaseException) -> str:
    """The first line of its text."""
    return str(failure).strip().partition("\n")[0]
