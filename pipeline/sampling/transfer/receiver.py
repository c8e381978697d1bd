"""A worker's side: receives the buckets of a trainer. Runs in the processes of a server."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import TCPStore

from veriloop.pipeline.model.device import synchronize
from veriloop.pipeline.sampling.transfer.groups import broadcast, open_group, seat
from veriloop.pipeline.sampling.transfer.memory import opened
from veriloop.pipeline.sampling.transfer.records import (
    JOINING,
    OPEN,
    Bucket,
    Invitation,
    Memory,
    at_bucket,
    decoded,
    has_loaded,
    head_key,
    own_address,
    progress_key,
    this_machine,
    weight_in,
)

LOOK_S = 0.5  # between two looks whether the trainer is there
POLL_S = 0.001


class Receiver:
    """The connections of one worker to a trainer, for as long as the same servers receive."""

    def __init__(self, invitation: Invitation, rank: int, device: torch.device) -> None:
        """`rank`: of the worker in its server. `device`: of its weights.

        Raises ValueError for memory of another machine, and RuntimeError if the trainer or another
        member is gone.
        """
        if invitation.way == "ipc" and invitation.machine != this_machine():
            raise ValueError(
                "weights: ipc: the server runs on another machine than the trainer; use nccl, gloo "
                "or files"
            )
        self.group_id = invitation.group
        self._worker, self._deadline_s = invitation.first + rank, invitation.deadline_s
        self._device = device if invitation.way != "gloo" else torch.device("cpu")
        self._memory_B: Tensor | None = None
        self._group: Any = None
        host, port = invitation.host, invitation.port
        self._store = TCPStore(
            host, port, wait_for_workers=False, timeout=timedelta(seconds=self._deadline_s)
        )
        if invitation.way != "ipc":
            self._write(JOINING)
            self._store.get(OPEN)  # a group waits for its members and notices nothing else
            self._group = open_group(
                invitation.way, self._store, seat(self._worker, invitation.workers),
                address=own_address(host, port), deadline_s=self._deadline_s,
            )  # fmt: skip

    def weights(self, sync: int) -> Iterator[tuple[str, Tensor]]:
        """All weights that the trainer sends. Raises RuntimeError if it ends before the last."""
        number = 0
        while (bucket := self._head(sync, number)).slots:
            yield from self._copied(sync, number, bucket)
            number += 1

    def confirm(self, sync: int) -> None:
        """Tell the trainer that all weights are loaded."""
        self._write(has_loaded(sync))

    def close(self) -> None:
        """Hang up; the trainer and the other members notice."""
        if self._group is not None:
            self._group.abort()
        self._group = self._memory_B = None

    def _copied(self, sync: int, number: int, bucket: Bucket) -> Iterator[tuple[str, Tensor]]:
        """The weights of a bucket, in memory of this process: a model may keep those of a layer
        until the layer is complete."""
        if self._group is not None:
            bytes_B = torch.empty(bucket.size, dtype=torch.uint8, device=self._device)
            self._write(at_bucket(sync, number))
            self._wait_for(broadcast(self._group, bytes_B))
        else:
            bytes_B = self._shared(bucket.memory)[: bucket.size].to(self._device, copy=True)
        synchronize(self._device)
        if self._group is None:
            self._write(at_bucket(sync, number))  # the trainer may overwrite its memory
        for slot in bucket.slots:
            yield slot.name, weight_in(bytes_B, slot)

    def _wait_for(self, work: Any) -> None:
        """Wait for a collective. It can hang on another member, and the trainer hangs up then:
        RuntimeError."""
        look = time.monotonic() + LOOK_S
        while not work.is_completed():
            if time.monotonic() > look:
                self._store.check([progress_key(self._worker)])
                look = time.monotonic() + LOOK_S
            time.sleep(POLL_S)
        work.wait()

    def _shared(self, memory: Memory | None) -> Tensor:
        if memory is not None:
            self._memory_B = None  # closed before the next is opened
            self._memory_B = opened(memory)
        if self._memory_B is None:
            raise ValueError("weights: ipc: the trainer did not say where its memory is")
        return self._memory_B

    def _head(self, sync: int, number: int) -> Bucket:
        return decoded(self._store.get(head_key(sync, number)))

    def _write(self, mark: str) -> None:
        self._store.set(progress_key(self._worker), mark)
