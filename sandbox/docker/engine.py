"""Connects to the Docker daemon, finds the image, and sets the options of hardened containers."""

import hashlib
import os
import socket
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

from veriloop.sandbox.docker import ownership
from veriloop.sandbox.docker.profile import profile
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.probe import SandboxUnavailableError

REPOSITORY = "veriloop-sandbox"
CODE_LABEL = "veriloop.code"  # of an image: digest of its sandbox package
BUILD = "veriloop sandbox build-image"
PACKAGE = Path(__file__).resolve().parent.parent
_SOCKET = "unix:///var/run/docker.sock"
_CALL_LIMIT_S = 60  # of one request to the daemon
_SPARE_MB = 96  # the server, the zygote and its supervisor
_SPARE_TASKS = 16
_OUTPUT_FACTOR = 5  # the server keeps output and value of a case until it replies
_FIRST_UID = 1_000_000_000  # far above the accounts of a host
_MASK = 0xFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLimits:
    """The resources for programs in one container."""

    memory_mb: int = 640  # including /tmp and the output kept by the server
    tasks: int = 48

    @classmethod
    def required(cls, limits: Limits, cases: int) -> "ContainerLimits":
        """For this many cases, rounded up so that other counts rarely need another container."""
        case_mb = ceil(_OUTPUT_FACTOR * limits.output_bytes / (1 << 20))
        output_mb = case_mb << (cases - 1).bit_length()
        memory_mb = limits.memory_mb + limits.disk_mb + output_mb
        return cls(memory_mb=memory_mb, tasks=limits.threads + limits.processes)

    def doubled(self) -> "ContainerLimits":
        """For two programs at the same time."""
        return ContainerLimits(memory_mb=2 * self.memory_mb, tasks=2 * self.tasks)

    def covers(self, other: "ContainerLimits") -> bool:
        """Whether all limits are at least those of `other`."""
        return self.memory_mb >= other.memory_mb and self.tasks >= other.tasks

    def union(self, other: "ContainerLimits") -> "ContainerLimits":
        """The larger of each limit."""
        return ContainerLimits(
            memory_mb=max(self.memory_mb, other.memory_mb),
            tasks=max(self.tasks, other.tasks),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """What all containers of a pool share."""

    image: str
    runtime: str | None
    namespaces: bool  # whether the server may create them


def connect() -> Any:
    """A docker.DockerClient from the environment. Raises SandboxUnavailableError."""
    try:
        import docker
    except ImportError as error:
        raise SandboxUnavailableError(f"the Docker SDK is missing: {error}") from error
    from docker.errors import DockerException

    try:
        _require_listener(os.environ.get("DOCKER_HOST") or _SOCKET)
        engine = docker.from_env(timeout=_CALL_LIMIT_S)
    except (DockerException, OSError) as error:
        reason = f"no Docker daemon answers here: {error}"
        raise SandboxUnavailableError(f"{reason}\nsh requirements/docker.sh starts one") from error
    if engine.api.base_url.startswith(("https://", "http+docker://ssh")):
        engine.close()
        reason = "containers are reached over a Unix socket or plain TCP, not TLS or SSH"
        raise SandboxUnavailableError(f"{reason}: {os.environ.get('DOCKER_HOST')}")
    return engine


def _require_listener(address: str) -> None:
    """Raise OSError if nothing listens: the SDK would leave a socket open."""
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address.removeprefix("unix://"))


def package_files() -> list[tuple[str, Path]]:
    """The files of the sandbox package: name within the package, path."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file())
    return sorted(
        (path.relative_to(PACKAGE).as_posix(), path)
        for path in files
        if "__pycache__" not in path.relative_to(PACKAGE).as_posix()
    )


@cache
def code_digest() -> str:
    """A digest of the sandbox package, which must be the same on host and in container."""
    digest = hashlib.sha256()
    for name, path in package_files():
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def find_image(engine: Any, name: str | None) -> str:
    """The id of the named image, or without a name of the newest one with this sandbox package.

    Raises SandboxUnavailableError with the command that builds one.
    """
    from docker.errors import ImageNotFound

    if name is None:
        label = f"{CODE_LABEL}={code_digest()}"
        images = engine.api.images(REPOSITORY, filters={"label": label})
        if not images:
            raise SandboxUnavailableError(f"no image holds this sandbox; build one: {BUILD}")
        return max(images, key=lambda image: image["Created"])["Id"]
    try:
        image = engine.images.get(name)
    except ImageNotFound as error:
        raise SandboxUnavailableError(f"no image {name!r}; build it: {BUILD}") from error
    digest = image.labels.get(CODE_LABEL)
    if digest != code_digest():
        reason = f"image {name!r} holds sandbox {digest}, this is {code_digest()}"
        raise SandboxUnavailableError(f"{reason}; rebuild it: {BUILD} --tag {name}")
    return image.id


def attach(engine: Any, container: str) -> socket.socket:
    """Input and output of a container; attach before starting it.

    Raises docker.errors.DockerException, OSError.
    """
    streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
    file = engine.api.attach_socket(container, params=streams)
    connection = file._sock  # the SDK wraps the socket in a file and never closes it
    try:
        return socket.socket(fileno=os.dup(file.fileno()))
    finally:
        file.close()
        connection.close()


def hardening(spec: ContainerSpec, limits: ContainerLimits) -> dict[str, Any]:
    """The options that restrict a container."""
    from docker.types import LogConfig, Ulimit

    account = _FIRST_UID + int.from_bytes(os.urandom(4), "big") % _MASK
    memory = f"{limits.memory_mb + _SPARE_MB}m"
    seccomp = profile(namespaces=spec.namespaces)
    return {
        "network_mode": "none",
        "ipc_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges", f"seccomp={seccomp}"],
        "user": f"{account}:{account}",  # random, so that containers share no account
        "pids_limit": limits.tasks + _SPARE_TASKS,
        "mem_limit": memory,
        "memswap_limit": memory,
        "tmpfs": {"/tmp": "size=4m,nr_inodes=256,mode=1777,nosuid,nodev,noexec"},
        "ulimits": [Ulimit(name="core", soft=1, hard=1)],
        "init": True,
        "stdin_open": True,
        "auto_remove": True,
        "log_config": LogConfig(type="none"),  # output is not stored by the daemon
        "labels": {ownership.LABEL: ownership.owner_label()},
        "runtime": spec.runtime,
    }
