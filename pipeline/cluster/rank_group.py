"""The ranks that torchrun started: one process group for tensors, one for commands of rank 0."""

import os
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.rendezvous import rendezvous

from veriloop.pipeline.cluster.shard import shard
from veriloop.pipeline.errors import StageError, Stopped
from veriloop.pipeline.model.device import CPU, choose_device, take_gpu
from veriloop.pipeline.model.sharded import (
    CLOSE,
    LEAVE,
    OPEN,
    SINGLE,
    Ranks,
    joined_ranks,
    set_current_ranks,
)

Item = TypeVar("Item")
Result = TypeVar("Result")

# Sampling, grading and evaluating take as long as they take; a rank 0 that ends closes its sockets.
PATIENCE = timedelta(days=365)
JOINED = "veriloop rank 0"  # key that says that it has joined
LAUNCHERS = ("TORCHELASTIC_", "TORCH_NCCL_")  # beginnings of torchrun's variables
VARIABLES = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
             "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # fmt: skip


class LostRankError(StageError):
    """A rank does not take part any more."""


class RankGroup(Ranks):
    """This process as one of several. Rank 0 sends commands, the others `receive` them."""

    def __init__(self, device: torch.device, deadline: timedelta) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self._deadline = deadline
        self._mesh = init_device_mesh(device.type, (self.count,))
        commands = dist.new_group(backend="gloo", timeout=PATIENCE)
        assert isinstance(commands, dist.ProcessGroup), "every rank is in this group"
        self._commands = commands
        self._in_stage = False  # the other ranks
        # All ranks divide the same models in the same order, so a number names one on each.
        self._models = WeakValueDictionary[int, Any]()
        self._numbers = count()

    def shard(self, model: Any) -> None:
        shard(model, self._mesh)
        self._models[next(self._numbers)] = model

    def model(self, number: int) -> Any:
        """This rank's part of the model that rank 0 divided as the `number`-th."""
        return self._models[number]

    def deal(self, items: Sequence[Item], empty: Callable[[], Item]) -> Sequence[Item]:
        mine = items[self.rank :: self.count]
        short = -(-len(items) // self.count) - len(mine)
        return [*mine, *(empty() for _ in range(short))]

    def summed(self, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    def stacked(self, values_K: Tensor) -> Tensor:
        gathered = [torch.empty_like(values_K) for _ in range(self.count)]
        dist.all_gather(gathered, values_K.contiguous())
        return torch.stack(gathered)

    def together(self, function: Callable[..., Result], model: Any, *values: Any) -> Result:
        (number,) = (number for number, known in self._models.items() if known is model)
        self.command("call", function, number, values)
        return super().together(function, model, *values)

    def command(self, *message: Any) -> None:
        """Raises LostRankError, naming the ranks, if some do not answer within the deadline."""
        self._in_stage = message[0] == OPEN or (self._in_stage and message[0] != CLOSE)
        try:
            dist.monitored_barrier(self._commands, self._deadline, wait_all_ranks=True)
        except RuntimeError as failure:
            reason = str(failure).partition("\n")[0]
            raise LostRankError(f"cluster: a rank has ended or hangs: {reason}") from failure
        dist.broadcast_object_list([message], src=0, group=self._commands)

    def receive(self, within: timedelta = PATIENCE) -> tuple[Any, ...]:
        """Wait for the next command of rank 0: the name of a method and its arguments. Raises
        RuntimeError if rank 0 has ended, or sends none in time."""
        message: list[Any] = [None]
        dist.monitored_barrier(self._commands, within)
        dist.broadcast_object_list(message, src=0, group=self._commands)
        return message[0]

    def collect(self, value: Any) -> list[Any]:
        """The values of all ranks on rank 0, [] on the others."""
        values = [None] * self.count if self.rank == 0 else None
        dist.gather_object(value, values, dst=0, group=self._commands)
        return values or []

    def close(self, failure: type[BaseException] | None = None, *_: object) -> None:
        """An exit callback: the other ranks end the stage. After a failure they may be waiting
        inside of a collective; they end when this process does."""
        if failure is None or issubclass(failure, Stopped):
            self.command(CLOSE)

    def dismiss(self, *_: object) -> None:
        """An exit callback: the other ranks end, if no stage was left open by a failure."""
        if not self._in_stage:
            self.command(LEAVE)


def join(device: str, rank_s: float) -> RankGroup:
    """Join the processes that torchrun started with this one; its variables leave the
    environment, or engines and workers that this process starts would join as well.

    `rank_s` bounds every wait for a rank, except that for rank 0 to join: before, it fetches models
    and data. Each rank takes the GPU of its number on its machine, for all that it trains.
    """
    local = int(os.environ.get("LOCAL_RANK", "0"))
    auto = device != "cpu" and torch.cuda.is_available()
    chosen = take_gpu(local) if auto else choose_device(device)
    backend = "gloo" if chosen == CPU else "cpu:gloo,cuda:nccl"
    # Of a trunk whose outputs are views; nothing here writes into them.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module")
    deadline = timedelta(seconds=rank_s)
    first = os.environ.get("RANK") == "0"
    store, rank, ranks = next(rendezvous("env://", timeout=deadline if first else PATIENCE))
    if first:
        store.set(JOINED, "")
    else:
        store.wait([JOINED], PATIENCE)
    store.set_timeout(deadline)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=deadline)
    for name in list(os.environ):
        if name in VARIABLES or name.startswith(LAUNCHERS):
            del os.environ[name]
    group = RankGroup(chosen, deadline)
    set_current_ranks(group)
    return group


def leave() -> None:
    """Close the process groups."""
    if joined_ranks() is not SINGLE:
        set_current_ranks(SINGLE)
        dist.destroy_process_group()
