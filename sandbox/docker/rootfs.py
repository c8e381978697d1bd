"""A root file system for the image: this machine's Python and what it loads, and our package."""

import io
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from sandbox.docker.engine import package_files
from sandbox.namespace import interpreter

HOME = "/veriloop"  # the folder above our package, in the image
PYTHON = "/usr/bin/python3"
_TOP_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FOLDERS = ("dev", "etc", "proc", "sys", "tmp", "usr", HOME[1:])
_DATA = ("/usr/share/zoneinfo", "/etc/ld.so.cache")
_LOADED_LATER = ("libgcc_s.so.1",)  # by libc when a thread ends: no program names it
_LEFT_OUT = re.compile("test|tests|idlelib|turtledemo|(site|dist)-packages|config-.*")
_LIBRARY = re.compile(r"(?:=> |^\s*)(/\S+) \(0x", re.MULTILINE)
_ASK = """
import json, sys, sysconfig
paths = sysconfig.get_paths()
print(json.dumps([sys.executable, paths["stdlib"], paths["platstdlib"]]))
"""
_LIMIT_S = 60


def write(target: IO[bytes], base: Path | None = None) -> str:
    """A tar file of the root file system; the path of its Python.

    `base`: a tar file of one that has /usr/bin/python3, to which only our package is added. The
    same files give the same bytes. Raises OSError where Python or its libraries are not found,
    ValueError for a base without Python.
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
            _add(tar, seen, f"{HOME}/sandbox/{name}", str(path), ours=True)
    return python


def _copy(base: Path, tar: tarfile.TarFile, seen: set[str]) -> str:
    """All of another root file system but its device files, which Docker makes itself."""
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
    """Real paths of everything Python needs, and the link it is called by."""
    ran = subprocess.run([python, "-P", "-s", "-c", _ASK], capture_output=True, timeout=_LIMIT_S)
    if ran.returncode:
        raise OSError(f"{python} does not say where its library lies: {ran.stderr[-300:]!r}")
    executable, *libraries = json.loads(ran.stdout)
    yield from {python, os.path.realpath(executable)}
    modules = {path for folder in set(libraries) for path in _below(folder)}
    loaded = _libraries([executable, *(path for path in modules if path.endswith(".so"))])
    data = {path for place in _DATA for path in _below(place)}
    yield from modules | set(loaded) | data


def _below(place: str) -> Iterator[str]:
    if os.path.isfile(place):
        yield place
    for folder, folders, files in os.walk(place):
        folders[:] = [name for name in folders if not _LEFT_OUT.fullmatch(name)]
        yield from (path for name in files if os.path.isfile(path := f"{folder}/{name}"))


def _libraries(programs: Iterable[str]) -> Iterator[str]:
    """What the dynamic linker loads for them, at the places where it looks."""
    ran = subprocess.run(
        ["ldd", *sorted(programs)], capture_output=True, text=True, timeout=_LIMIT_S
    )
    found = set(_LIBRARY.findall(ran.stdout))
    if not found:
        raise OSError(f"ldd finds no libraries: {ran.stderr[-300:]}")
    for path in found:
        folder = os.path.realpath(os.path.dirname(path))
        yield f"{folder}/{os.path.basename(path)}"
        for name in _LOADED_LATER:
            if os.path.isfile(later := f"{folder}/{name}"):
                yield later


def _links(tar: tarfile.TarFile, seen: set[str]) -> None:
    """/bin and its like lead where they lead on this machine."""
    for name in _TOP_LINKS:
        if os.path.islink(f"/{name}"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, os.readlink(f"/{name}")
            seen.add(name)
            tar.addfile(link)


def _folder(tar: tarfile.TarFile, seen: set[str], name: str) -> None:
    """With those above it."""
    if name in seen:
        return
    _folder(tar, seen, os.path.dirname(name))
    seen.add(name)
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    tar.addfile(entry)


def _add(
    tar: tarfile.TarFile, seen: set[str], place: str, path: str, *, ours: bool = False
) -> None:
    """A file with its content; only a Python that is a link stays one."""
    name = place.strip("/")
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
    entry.mtime = 0 if ours else int(os.stat(path).st_mtime)  # compiled modules name their source's
    tar.addfile(entry, io.BytesIO(data))
