"""Docker's side: reaching the daemon, finding the image, and how a container is hardened."""

import hashlib
import os
import socket
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

from sandbox.docker import owner
from sandbox.docker.profile import profile
from sandbox.limits import Limits
from sandbox.probe import SandboxUnavailableError

REPOSITORY = "veriloop-sandbox"
CODE_LABEL = "veriloop.code"  # of an image: which sandbox package it holds
BUILD = "veriloop sandbox build-image"
PACKAGE = Path(__file__).resolve().parent.parent
_SOCKET = "unix:///var/run/docker.sock"
_CALL_LIMIT_S = 60  # of one request to the daemon
_SPARE_MB = 96  # the server, the zygote and the watchman
_SPARE_TASKS = 16
_KEPT = 5  # times the output's cap: in the server a case's output and value lie until the reply
_ACCOUNTS = 1_000_000_000  # far above any account of a host
_MASK = 0xFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What programs in one container may use at a time."""

    memory_mb: int = 640  # private /tmp included, and what the server keeps of output and values
    tasks: int = 48

    @classmethod
    def needed(cls, limits: Limits, cases: int) -> "Room":
        """For so many cases, rounded up so that other counts seldom need another container."""
        kept = ceil(_KEPT * limits.output_bytes / (1 << 20)) << (cases - 1).bit_length()
        memory_mb = limits.memory_mb + limits.disk_mb + kept
        return cls(memory_mb=memory_mb, tasks=limits.threads + limits.processes)

    def holds(self, other: "Room") -> bool:
        return self.memory_mb >= other.memory_mb and self.tasks >= other.tasks

    def joined(self, other: "Room") -> "Room":
        return Room(
            memory_mb=max(self.memory_mb, other.memory_mb),
            tasks=max(self.tasks, other.tasks),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What all containers of a pool have in common."""

    image: str
    runtime: str | None
    namespaces: bool  # whether the server may make them


def connect() -> Any:
    """A docker.DockerClient, as the environment says. Raises SandboxUnavailableError."""
    try:
        import docker
    except ImportError as failure:
        raise SandboxUnavailableError(f"the Docker SDK is missing: {failure}") from failure
    from docker.errors import DockerException

    try:
        _knock(os.environ.get("DOCKER_HOST") or _SOCKET)
        engine = docker.from_env(timeout=_CALL_LIMIT_S)
    except (DockerException, OSError) as failure:
        told = f"no Docker daemon answers here: {failure}"
        raise SandboxUnavailableError(f"{told}\nsh requirements/docker.sh starts one") from failure
    if engine.api.base_url.startswith(("https://", "http+docker://ssh")):
        engine.close()
        told = "containers are reached over a Unix socket or plain TCP, not TLS or SSH"
        raise SandboxUnavailableError(f"{told}: {os.environ.get('DOCKER_HOST')}")
    return engine


def _knock(address: str) -> None:
    """Raise OSError where nobody listens: there the SDK would leave a socket open."""
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as trial:
            trial.connect(address.removeprefix("unix://"))


def package_files() -> list[tuple[str, Path]]:
    """The sandbox package: each file's name within it, and where it lies."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file())
    names = [(path.relative_to(PACKAGE).as_posix(), path) for path in files]
    return sorted(one for one in names if "__pycache__" not in one[0])


@cache
def code_digest() -> str:
    """What identifies the sandbox package: host and container must have the same one."""
    digest = hashlib.sha256()
    for name, path in package_files():
        text = path.read_bytes()
        digest.update(f"{name} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()[:16]


def find_image(engine: Any, wanted: str | None) -> str:
    """The image to run, by id: the one of this name, else the newest that was built without one.

    Raises SandboxUnavailableError with the command that makes one.
    """
    from docker.errors import ImageNotFound

    if wanted is None:
        label = f"{CODE_LABEL}={code_digest()}"
        found = engine.api.images(REPOSITORY, filters={"label": label})
        if not found:
            raise SandboxUnavailableError(f"no image holds this sandbox; make one: {BUILD}")
        return max(found, key=lambda one: one["Created"])["Id"]
    try:
        image = engine.images.get(wanted)
    except ImageNotFound as failure:
        raise SandboxUnavailableError(f"no image {wanted!r}; make it: {BUILD}") from failure
    holds = image.labels.get(CODE_LABEL)
    if holds != code_digest():
        told = f"image {wanted!r} holds sandbox {holds}, this is {code_digest()}"
        raise SandboxUnavailableError(f"{told}; make it anew: {BUILD} --tag {wanted}")
    return image.id


def attach(engine: Any, container: str) -> socket.socket:
    """Input and output of a container, best before it is started.

    Raises docker.errors.DockerException, OSError.
    """
    streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
    lent = engine.api.attach_socket(container, params=streams)
    below = lent._sock  # the SDK makes a file of a socket, and leaves the socket open
    try:
        return socket.socket(fileno=os.dup(lent.fileno()))
    finally:
        lent.close()
        below.close()


def hardening(kind: Kind, room: Room) -> dict[str, Any]:
    """Everything a container is not given."""
    from docker.types import LogConfig, Ulimit

    account = _ACCOUNTS + int.from_bytes(os.urandom(4), "big") % _MASK
    memory = f"{room.memory_mb + _SPARE_MB}m"
    seccomp = profile(namespaces=kind.namespaces)
    return {
        "network_mode": "none",
        "ipc_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges", f"seccomp={seccomp}"],
        "user": f"{account}:{account}",  # nobody's, and no other container's
        "pids_limit": room.tasks + _SPARE_TASKS,
        "mem_limit": memory,
        "memswap_limit": memory,
        "tmpfs": {"/tmp": "size=4m,nr_inodes=256,mode=1777,nosuid,nodev,noexec"},
        "ulimits": [Ulimit(name="core", soft=0, hard=0)],
        "init": True,
        "stdin_open": True,
        "auto_remove": True,
        "log_config": LogConfig(type="none"),  # output goes to us and is not kept
        "labels": {owner.LABEL: owner.label()},
        "runtime": kind.runtime,
    }
