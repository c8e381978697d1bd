"""What the trainer and the workers of servers tell each other while weights are sent.

Weights travel in buckets: pieces of memory that hold several weights, one after the other. A TCP
store of the trainer carries the records. The trainer writes the head of a bucket; each worker
writes how far it is, so that a late one can be named.
"""

import platform
import socket
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec
import torch

from veriloop.pipeline.sampling.shared_weights import TensorSlot

Way = Literal["gloo", "nccl", "ipc"]
JOINING = "joining"  # how far a worker is before the first bucket
OPEN = "open"  # key that says that all workers are there


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is told before weights are sent to it; JSON in its request."""

    group: str  # of workers that receive together; another name: other members
    way: Way
    host: str
    port: int
    machine: str  # of the trainer
    first: int  # number of the server's first worker, over all servers
    workers: int  # of all servers
    sync: int  # counts the sendings to this group
    deadline_s: float


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Where another process of this machine opens a bucket."""

    size: int  # bytes
    path: str = ""  # of memory of the CPU
    card: str = ""  # UUID of the GPU that has it
    handle: tuple[bytes, int, int, bytes, int, bytes, bool] | None = None  # of CUDA, without device


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a bucket; the last one is empty."""

    slots: tuple[TensorSlot, ...] = ()
    memory: Memory | None = None  # None: as for the bucket before

    @property
    def size(self) -> int:
        """Bytes up to the end of the last weight."""
        return self.slots[-1].end if self.slots else 0


def encoded(bucket: Bucket) -> str:
    """The head as JSON."""
    return msgspec.json.encode(bucket, enc_hook=str).decode()


def decoded(content: bytes) -> Bucket:
    """Inverse of `encoded`. Raises msgspec.ValidationError for anything else."""
    return msgspec.json.decode(content, type=Bucket, dec_hook=_dtype)


def _dtype(_: type, name: str) -> torch.dtype:
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is no type of torch")
    return dtype


def progress_key(worker: int) -> str:
    """The key under which a worker writes how far it is."""
    return f"progress/{worker}"


def head_key(sync: int, number: int) -> str:
    """The key of a bucket's head."""
    return f"head/{sync}/{number}"


def at_bucket(sync: int, number: int) -> str:
    """What a worker writes that is ready for this bucket, or with `ipc` has copied it."""
    return f"{sync}/{number}"


def has_loaded(sync: int) -> str:
    """What a worker writes that has loaded all weights."""
    return f"{sync}/loaded"


def weight_in(bytes_B: torch.Tensor, slot: TensorSlot) -> torch.Tensor:
    """The weight, as a view of the bucket's bytes."""
    part_B = bytes_B[slot.offset : slot.offset + slot.size]
    return part_B.view(slot.dtype).view(slot.shape)


def this_machine() -> str:
    """Names the running system: containers of one machine share it."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else platform.node()


def own_address(host: str, port: int) -> str:
    """The address of this machine on the way to that one; nothing is sent."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return probe.getsockname()[0]


def address_towards(urls: Iterable[str]) -> str:
    """The address of this machine that all these servers reach. Servers on other machines do not
    reach the loopback address, those on this one reach every address."""
    addresses = dict.fromkeys(
        own_address(parts.hostname or "", parts.port or 80) for parts in map(urlsplit, urls)
    )
    return next((a for a in addresses if not ip_address(a).is_loopback), "127.0.0.1")
