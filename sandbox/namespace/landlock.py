"""Landlock: a process restricts its own file access without privileges."""

import ctypes
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from veriloop.sandbox.namespace.syscalls import call, prepared

_VERSION_QUERY = 1
_PATH_BENEATH = 1
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}  # number of file rights; 16 from ABI 5 on
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL_NETWORK = _ALL_SCOPES = 3  # TCP bind and connect; abstract sockets and signals


class _Ruleset(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("files", "network", "scopes")]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def abi() -> int:
    """The kernel's Landlock version; 0 without Landlock."""
    try:
        return call("landlock_create_ruleset", 0, 0, _VERSION_QUERY)
    except OSError:
        return 0


def ruleset(readable: Iterable[str], writable_files: Iterable[str] = ()) -> int:
    """A descriptor of rules that allow reading and executing below `readable`, and reading and
    writing `writable_files`.

    Missing paths are skipped. Raises OSError without Landlock.
    """
    version = abi()
    files = (1 << _RIGHTS_BY_ABI.get(version, 16)) - 1
    network = _ALL_NETWORK if version >= 4 else 0
    scopes = _ALL_SCOPES if version >= 6 else 0
    record = _Ruleset(files, network, scopes)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = call("landlock_create_ruleset", ctypes.byref(record), size, 0)
    for path in filter(os.path.exists, readable):
        folder = _READ_DIR if Path(path).is_dir() else 0
        _allow(rules, path, _EXECUTE | _READ_FILE | folder)
    for path in filter(os.path.exists, writable_files):
        _allow(rules, path, _READ_FILE | _WRITE_FILE)
    return rules


def restrictor(rules: int) -> Callable[[], int]:
    """A call that restricts the calling thread and everything it starts; needs no_new_privs.

    It returns a negative number if it fails: see `syscalls.failure`.
    """
    return prepared("landlock_restrict_self", rules, 0)


def _allow(rules: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        record = _Beneath(rights, fd)
        call("landlock_add_rule", rules, _PATH_BENEATH, ctypes.byref(record), 0)
    finally:
        os.close(fd)
