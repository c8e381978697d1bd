"""The process group that carries buckets: gloo between CPUs, NCCL between GPUs.

It is apart from the group of the ranks that train: one process group of torch is global, and the
servers are no ranks of it.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import (
    BroadcastOptions,
    PrefixStore,
    ProcessGroupGloo,
    Store,
)

from veriloop.pipeline.sampling.transfer.records import Way

LARGEST = 64  # workers of one group: each connects to all others


@dataclass(frozen=True, slots=True)
class Seat:
    """A position in a process group, of which the trainer is rank 0."""

    part: int  # number of the group
    rank: int
    size: int  # of the group, with the trainer


def seat(worker: int, workers: int) -> Seat:
    """The position of a worker among so many."""
    part, index = divmod(worker, LARGEST)
    return Seat(part=part, rank=index + 1, size=min(LARGEST, workers - part * LARGEST) + 1)


def open_group(way: Way, store: Store, member: Seat, *, address: str, deadline_s: float) -> Any:
    """Join a group; returns when all members have. `address`: of this machine, for gloo.

    Raises RuntimeError if they have not within `deadline_s`.
    """
    timeout = timedelta(seconds=deadline_s)
    store = PrefixStore(f"group/{member.part}", store)
    if way == "nccl":
        if not torch.cuda.is_available():
            raise RuntimeError(
                "weights: nccl needs a GPU in the trainer and in each server; use gloo"
            )
        from torch._C._distributed_c10d import ProcessGroupNCCL  # in CUDA builds of torch alone

        settings = ProcessGroupNCCL.Options()
        settings._timeout = timeout
        return ProcessGroupNCCL(store, member.rank, member.size, settings)
    options: Any = ProcessGroupGloo._Options()  # pyright: ignore[reportAttributeAccessIssue]
    options._devices = [ProcessGroupGloo.create_device(hostname=address)]
    options._timeout = timeout
    return ProcessGroupGloo(store, member.rank, member.size, options)


def broadcast(group: Any, memory_B: Tensor) -> Any:
    """Begin to send these bytes from rank 0 to all members."""
    options = BroadcastOptions()
    options.rootRank = options.rootTensor = 0
    return group.broadcast([memory_B], options)
