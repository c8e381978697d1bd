"""Read-only binds: with mount_setattr (Linux 5.12), else by remounting each mount below."""

import ctypes
import errno
import os
import re
from pathlib import Path

from veriloop.sandbox.namespace import linux
from veriloop.sandbox.namespace.syscalls import call

# The same values in mount(), in mount_setattr() and in statvfs().
_READ_ONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8
_FLAG_OF_OPTION = {"ro": _READ_ONLY, "nosuid": _NOSUID, "nodev": _NODEV, "noexec": _NOEXEC}
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MISSING = (errno.ENOSYS, errno.EPERM)  # EPERM: a container's filter that does not know the call
_COVERED = (errno.EINVAL, errno.ENOENT, errno.ENOTDIR)  # the path leads to another mount


def read_only_tree(source: str, target: str, old: str) -> None:
    """Bind a folder and the mounts below it to `target`: read-only, no set-id, no devices.

    `old`: where the former root is mounted, whose /proc lists the mounts. Raises OSError.
    """
    linux.mount(source, target, None, linux.MS_BIND | linux.MS_REC)
    attributes = _READ_ONLY | _NOSUID | _NODEV
    if not _set_attributes(target, attributes, _AT_RECURSIVE):
        flags = {path: f for path, f in _mounts(old).items() if Path(path).is_relative_to(target)}
        _remount(flags, attributes)


def device(source: str, target: str, old: str) -> None:
    """Bind a device: its data can be read and written; its times, mode and attributes are fixed."""
    linux.mount(source, target, None, linux.MS_BIND)
    attributes = _READ_ONLY | _NOSUID
    if not _set_attributes(target, attributes):
        _remount({target: _mounts(old)[target]}, attributes)


def seal_root() -> str:
    """Make the root mount itself read-only; mounts below keep their own attributes.

    Returns the call that did: "mount_setattr" or "remount".
    """
    attributes = _READ_ONLY | _NOSUID | _NODEV
    if _set_attributes("/", attributes):
        return "mount_setattr"
    _remount({"/": 0}, attributes)
    return "remount"


def is_read_only(path: str) -> bool:
    return bool(os.statvfs(path).f_flag & _READ_ONLY)


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def _set_attributes(target: str, attributes: int, flags: int = 0) -> bool:
    """Set attributes of a mount, or of a tree of mounts. False if the call is not available."""
    record = _MountAttributes(attributes, 0, 0, 0)
    path = ctypes.c_char_p(os.fsencode(target))
    size = ctypes.sizeof(record)
    try:
        call("mount_setattr", _AT_FDCWD, path, flags, ctypes.byref(record), size)
    except OSError as error:
        if error.errno not in _MISSING:
            raise
        return False
    return True


def _remount(current: dict[str, int], attributes: int) -> None:
    """Add attributes to mounts with these current flags, by path, and check the result.

    A user namespace may not remove flags, so the current ones are repeated. A mount that another
    one covers is unreachable.
    """
    remount = linux.MS_REMOUNT | linux.MS_BIND
    for path, flags in current.items():
        try:
            linux.mount(None, path, None, remount | flags | attributes)
        except OSError as error:
            if error.errno not in _COVERED:
                raise
    for path in filter(os.path.exists, current):
        if os.statvfs(path).f_flag & attributes != attributes:
            raise OSError(errno.EPERM, f"remount: {path} lacks the flags {attributes:#x}")


def _mounts(old: str) -> dict[str, int]:
    """The flags of every mount of this namespace, by path; of stacked mounts the top one's."""
    lines = os.fsdecode(Path(f"{old}/proc/self/mountinfo").read_bytes()).splitlines()
    fields = [line.split(" ") for line in lines]
    return {_unescape(row[4]): _flags(row[5]) for row in fields}


def _flags(options: str) -> int:
    return sum(_FLAG_OF_OPTION.get(option, 0) for option in options.split(","))


def _unescape(path: str) -> str:
    """The path of a mountinfo line, which has octal escapes for blanks and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)
