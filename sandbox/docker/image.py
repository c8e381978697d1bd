"""Makes the image out of a root file system, without any registry."""

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sandbox.docker import rootfs
from sandbox.docker.engine import CODE_LABEL, REPOSITORY, code_digest, connect
from sandbox.probe import SandboxUnavailableError

_CHUNK = 1 << 20
_FLAGS = ("-P", "-s", "-B", "-X", "utf8", "-m", "sandbox.docker.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An image that the daemon now has."""

    tag: str  # from the content's hash: the same files always give the same one
    size_mb: float


def build(tag: str = "", base: Path | None = None) -> Built:
    """Import a root file system of this machine's Python, or one given as a tar file.

    `tag`: another name for the image. Raises SandboxUnavailableError without a daemon, OSError and
    ValueError as `rootfs.write`.
    """
    from docker.errors import DockerException

    engine = connect()
    try:
        with tempfile.NamedTemporaryFile() as file:
            python = rootfs.write(file, base)
            file.flush()
            name = f"{REPOSITORY}:{_digest(file)}"
            if not engine.api.images(name):
                _take_in(engine, file.name, name, python)
            if tag:
                engine.images.get(name).tag(tag)
            return Built(tag=name, size_mb=file.tell() / (1 << 20))
    except DockerException as failure:
        raise SandboxUnavailableError(f"Docker did not take the image: {failure}") from failure
    finally:
        engine.close()


def _digest(file: IO[bytes]) -> str:
    """Of the whole file, which is then at its end."""
    digest = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()[:16]


def _take_in(engine: Any, path: str, name: str, python: str) -> None:
    repository, _, tag = name.partition(":")
    changes = [
        f"CMD {json.dumps([python, *_FLAGS])}",
        f"ENV PYTHONPATH={rootfs.HOME}",
        f"LABEL {CODE_LABEL}={code_digest()}",
    ]
    engine.api.import_image_from_file(path, repository=repository, tag=tag, changes=changes)
