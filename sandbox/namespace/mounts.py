"""The file tree of untrusted code: /usr read-only, five devices, four files of /etc, no /proc."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from veriloop.sandbox.namespace import binds, linux

_DEVICES = ("null", "zero", "full", "random", "urandom")
_TOP_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FILES = {
    "passwd": "sandbox:x:1000:1000::/tmp:/bin/false\n",
    "group": "sandbox:x:1000:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_NEW, _OLD = "/tmp", "/old"
_NO_PIVOT = (errno.EINVAL, errno.EPERM, errno.ENOSYS)  # EINVAL: the root is an initramfs


def build(read_only: Sequence[str]) -> str:
    """Replace the root of this mount namespace; the folders `read_only` keep their paths.

    The new tree is mounted on /tmp, then becomes the root with the old one below it: every source
    is available at its path under the old root, and the host is left unchanged. Returns the calls
    with which it was built. Raises OSError.
    """
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", _NEW, "tmpfs", flags, "size=8m,nr_inodes=4096,mode=755")
    Path(_NEW + _OLD).mkdir()
    entered = _enter()
    for name in ("dev", "etc", "tmp"):
        Path("/", name).mkdir()
    for path in read_only:
        Path(path).mkdir(parents=True)
        binds.read_only_tree(_OLD + path, path, _OLD)
    for name in _TOP_FOLDERS:
        _mirror(name)
    if Path(_OLD, "etc/alternatives").is_dir():  # only links; /usr/bin/awk points to one
        Path("/etc/alternatives").mkdir()
        binds.read_only_tree(f"{_OLD}/etc/alternatives", "/etc/alternatives", _OLD)
    _fill_dev_and_etc()
    linux.detach(_OLD)
    Path(_OLD).rmdir()
    return f"{entered}, {binds.seal_root()}"


def check(read_only: Sequence[str]) -> None:
    """Raise OSError if the tree of `build` can be written, or shows more than it should."""
    top = {Path(path).parts[1] for path in read_only} | {"dev", "etc", "tmp", *_TOP_FOLDERS}
    if extra := set(os.listdir("/")) - top:
        raise OSError(errno.EPERM, f"the new file tree shows {sorted(extra)}")
    for path in ("/", "/dev/null", *read_only):
        if not binds.is_read_only(path):
            raise OSError(errno.EPERM, f"{path} of the new file tree can be written")


def _enter() -> str:
    """Make the new tree the root, with the old one below it. Returns the calls that did."""
    calls = "pivot_root"
    try:
        linux.pivot_root(_NEW, _NEW + _OLD)
    except OSError as error:
        if error.errno not in _NO_PIVOT:
            raise
        # The new tree covers the old root, and a copy of the old root is bound below it.
        linux.mount("/", _NEW + _OLD, None, linux.MS_BIND | linux.MS_REC)
        linux.detach(_NEW + _OLD + _NEW)  # in the copy, the new tree still covers /tmp
        os.chdir(_NEW)
        linux.mount(_NEW, "/", None, linux.MS_MOVE)
        os.chroot(".")
        calls = "MS_MOVE and chroot"
    os.chdir("/")
    return calls


def _mirror(name: str) -> None:
    """Copy a link into /usr; bind a real folder read-only."""
    outside, inside = Path(_OLD, name), Path("/", name)
    if outside.is_symlink():
        inside.symlink_to(os.readlink(outside))
    elif outside.is_dir():
        inside.mkdir()
        binds.read_only_tree(str(outside), str(inside), _OLD)


def _fill_dev_and_etc() -> None:
    for name in _DEVICES:
        Path("/dev", name).touch()
        binds.device(f"{_OLD}/dev/{name}", f"/dev/{name}", _OLD)
    Path("/dev/shm").symlink_to("/tmp")
    for name, content in _FILES.items():
        Path("/etc", name).write_text(content)
    cache = Path(_OLD, "etc/ld.so.cache")
    if cache.exists():
        Path("/etc/ld.so.cache").write_bytes(cache.read_bytes())
