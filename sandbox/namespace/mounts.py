"""The files untrusted code sees: /usr read-only, five devices, four files of /etc, no /proc."""

import os
from collections.abc import Sequence
from pathlib import Path

from sandbox.namespace import linux

_DEVICES = ("null", "zero", "full", "random", "urandom")
_TOP_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FILES = {
    "passwd": "sandbox:x:1000:1000::/tmp:/bin/false\n",
    "group": "sandbox:x:1000:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_OLD = "/old"


def build(read_only: Sequence[str]) -> None:
    """Replace the root of this mount namespace; `read_only` are folders kept at their own paths.

    The new tree grows over /tmp, then becomes the root with the old one below it: a source is
    found at its true place whatever lies where, and nothing is left on the host.
    """
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", "/tmp", "tmpfs", flags, "size=8m,nr_inodes=4096,mode=755")
    Path("/tmp/old").mkdir()
    linux.pivot_root("/tmp", "/tmp/old")
    os.chdir("/")
    for name in ("dev", "etc", "tmp"):
        Path("/", name).mkdir()
    for path in read_only:
        Path(path).mkdir(parents=True)
        linux.bind_read_only(_OLD + path, path)
    for name in _TOP_FOLDERS:
        _same_as_outside(name)
    if Path(_OLD, "etc/alternatives").is_dir():  # links only; /usr/bin/awk is a link to one
        Path("/etc/alternatives").mkdir()
        linux.bind_read_only(f"{_OLD}/etc/alternatives", "/etc/alternatives")
    _fill_dev_and_etc()
    linux.detach(_OLD)
    Path(_OLD).rmdir()
    linux.seal_root()


def _same_as_outside(name: str) -> None:
    """A link into /usr stays a link; a folder of its own is shown read-only."""
    outside, inside = Path(_OLD, name), Path("/", name)
    if outside.is_symlink():
        inside.symlink_to(os.readlink(outside))
    elif outside.is_dir():
        inside.mkdir()
        linux.bind_read_only(str(outside), str(inside))


def _fill_dev_and_etc() -> None:
    for name in _DEVICES:
        Path("/dev", name).touch()
        linux.bind_device(f"{_OLD}/dev/{name}", f"/dev/{name}")
    Path("/dev/shm").symlink_to("/tmp")
    for name, content in _FILES.items():
        Path("/etc", name).write_text(content)
    cache = Path(_OLD, "etc/ld.so.cache")
    if cache.exists():
        Path("/etc/ld.so.cache").write_bytes(cache.read_bytes())
