"""Builds the image from a root file system, without a registry."""

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from veriloop.sandbox.docker import rootfs
from veriloop.sandbox.docker.engine import CODE_LABEL, REPOSITORY, code_digest, connect
from veriloop.sandbox.probe import SandboxUnavailableError

_CHUNK = 1 << 20
_FLAGS = ("-P", "-s", "-B", "-X", "utf8", "-m", "veriloop.sandbox.docker.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """An image that the daemon holds."""

    tag: str  # from the content's hash, so equal files give an equal tag
    size_mb: float


def build(tag: str = "", base: Path | None = None) -> BuiltImage:
    """Import a root file system of this machine's Python, or the tar file `base`.

    `tag`: an additional name for the image. Raises SandboxUnavailableError without a daemon, and
    OSError and ValueError as `rootfs.write`.
    """
    from docker.errors import DockerException

    engine = connect()
    try:
        with tempfile.NamedTemporaryFile() as file:
            python = rootfs.write(file, base)
            file.flush()
            name = f"{REPOSITORY}:{_digest(file)}"
            if not engine.api.images(name):
                _import(engine, file.name, name, python)
            if tag:
                engine.images.get(name).tag(tag)
            return BuiltImage(tag=name, size_mb=file.tell() / (1 << 20))
    except DockerException as error:
        raise SandboxUnavailableError(f"Docker refused the image: {error}") from error
    finally:
        engine.close()


def _digest(file: IO[bytes]) -> str:
    """The hash of the whole file, which is then at its end."""
    digest = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()[:16]


def _import(engine: Any, path: str, name: str, python: str) -> None:
    repository, _, tag = name.partition(":")
    changes = [
        f"CMD {json.dumps([python, *_FLAGS])}",
        f"ENV PYTHONPATH={rootfs.HOME}",
        f"LABEL {CODE_LABEL}={code_digest()}",
    ]
    engine.api.import_image_from_file(path, repository=repository, tag=tag, changes=changes)
