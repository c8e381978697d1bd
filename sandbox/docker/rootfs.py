"""The image's root file system: this machine's Python, its libraries, and the sandbox package."""

import io
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from veriloop.sandbox import interpreter
from veriloop.sandbox.docker.engine import package_files

HOME = "/veriloop"  # the folder of the package `veriloop` in the image
PYTHON = "/usr/bin/python3"
_TOP_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FOLDERS = ("dev", "etc", "proc", "sys", "tmp", "usr", HOME[1:])
_DATA = ("/usr/share/zoneinfo", "/etc/ld.so.cache")
_LOADED_LATER = ("libgcc_s.so.1",)  # by libc when a thread ends; no program links it
_EXCLUDED = re.compile("test|tests|idlelib|turtledemo|(site|dist)-packages|config-.*")
_LIBRARY = re.compile(r"(?:=> |^\s*)(/\S+) \(0x", re.MULTILINE)
_PRINT_PATHS = """
import json, sys, sysconfig
paths = sysconfig.get_paths()
print(json.dumps([sys.executable, paths["stdlib"], paths["platstdlib"]]))
"""
_LIMIT_S = 60


def write(target: IO[bytes], base: Path | None = None) -> str:
    """Write a tar file of the root file system. Returns the path of its Python.

    `base`: a tar file with /usr/bin/python3, to which only the sandbox package is added. Equal
    files give equal bytes. Raises OSError if Python or its libraries are missing, ValueError for
    a base without Python.
    """
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        seen = {""}
        if base is not None:
            python = _copy(base, tar, seen)
        else:
            python = interpreter.find().path
            _links(tar, seen)
            for path in sorted(_files(python)):
                _add(tar, seen, path, path)
        for name in _FOLDERS:
            _folder(tar, seen, name)
        for name, path in package_files():
            _add(tar, seen, f"{HOME}/veriloop/sandbox/{name}", str(path), ours=True)
    return python


def _copy(base: Path, tar: tarfile.TarFile, seen: set[str]) -> str:
    """Copy another root file system without its device files, which Docker creates."""
    with tarfile.open(base) as source:
        for member in source:
            name = os.path.normpath(member.name).lstrip("/")
            if member.isdev() or name == ".":
                continue
            seen.add(name)
            tar.addfile(member, source.extractfile(member) if member.isreg() else None)
    if PYTHON[1:] not in seen:
        raise ValueError(f"{base} has no {PYTHON}")
    return PYTHON


def _files(python: str) -> Iterator[str]:
    """Real paths of everything that Python needs, and the link by which it is called."""
    command = [python, "-P", "-s", "-c", _PRINT_PATHS]
    process = subprocess.run(command, capture_output=True, timeout=_LIMIT_S)
    if process.returncode:
        raise OSError(f"{python} reports no library folders: {process.stderr[-300:]!r}")
    executable, *libraries = json.loads(process.stdout)
    yield from {python, os.path.realpath(executable)}
    modules = {path for folder in set(libraries) for path in _below(folder)}
    loaded = _libraries([executable, *(path for path in modules if path.endswith(".so"))])
    data = {path for root in _DATA for path in _below(root)}
    yield from modules | set(loaded) | data


def _below(root: str) -> Iterator[str]:
    if os.path.isfile(root):
        yield root
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not _EXCLUDED.fullmatch(name)]
        yield from (path for name in files if os.path.isfile(path := f"{folder}/{name}"))


def _libraries(programs: Iterable[str]) -> Iterator[str]:
    """The libraries that the dynamic linker loads, at the paths where it looks for them."""
    process = subprocess.run(
        ["ldd", *sorted(programs)], capture_output=True, text=True, timeout=_LIMIT_S
    )
    libraries = set(_LIBRARY.findall(process.stdout))
    if not libraries:
        raise OSError(f"ldd finds no libraries: {process.stderr[-300:]}")
    for path in libraries:
        folder = os.path.realpath(os.path.dirname(path))
        yield f"{folder}/{os.path.basename(path)}"
        for name in _LOADED_LATER:
            if os.path.isfile(later := f"{folder}/{name}"):
                yield later


def _links(tar: tarfile.TarFile, seen: set[str]) -> None:
    """Copy this machine's links such as /bin."""
    for name in _TOP_LINKS:
        if os.path.islink(f"/{name}"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, os.readlink(f"/{name}")
            seen.add(name)
            tar.addfile(link)


def _folder(tar: tarfile.TarFile, seen: set[str], name: str) -> None:
    """Add a folder and its parents."""
    if name in seen:
        return
    _folder(tar, seen, os.path.dirname(name))
    seen.add(name)
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    tar.addfile(entry)


def _add(
    tar: tarfile.TarFile, seen: set[str], target: str, path: str, *, ours: bool = False
) -> None:
    """Add a file with its content; of links only those to executables such as Python are kept."""
    name = target.strip("/")
    if name in seen:
        return
    _folder(tar, seen, os.path.dirname(name))
    seen.add(name)
    entry = tarfile.TarInfo(name)
    if os.path.islink(path) and "/bin/" in path:
        entry.type, entry.linkname = tarfile.SYMTYPE, os.path.realpath(path)
        tar.addfile(entry)
        return
    data = Path(path).read_bytes()
    entry.size, entry.mode = len(data), 0o755 if os.access(path, os.X_OK) else 0o644
    # Compiled modules record the mtime of their source.
    entry.mtime = 0 if ours else int(os.stat(path).st_mtime)
    tar.addfile(entry, io.BytesIO(data))
