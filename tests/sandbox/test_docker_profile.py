"""The container's own fence: what it refuses by its rules, and what it really refuses."""

import errno
import json
import time

import pytest

from sandbox.docker import engine as engine_code
from sandbox.docker.engine import Kind, Room
from sandbox.docker.profile import profile
from sandbox.docker.stream import Stream
from sandbox.namespace import linux


def verdict(rules, name, *arguments):
    """What libseccomp makes of a call: None when allowed, else an errno."""
    for rule in rules["syscalls"]:
        if name in rule["names"] and all(holds(test, arguments) for test in rule["args"]):
            return rule["errnoRet"]
    return None


def holds(test, arguments):
    found = arguments[test["index"]]
    if test["op"] == "SCMP_CMP_MASKED_EQ":
        return found & test["value"] == test["valueTwo"]
    return found != test["value"]


@pytest.mark.parametrize("namespaces", [True, False])
def test_what_neither_server_nor_program_needs_is_refused(namespaces):
    rules = json.loads(profile(namespaces=namespaces))
    assert rules["defaultAction"] == "SCMP_ACT_ALLOW" and len(rules["architectures"]) == 1
    for family in (1, 2, 10, 16, 17, 38, 40):  # unix, inet, inet6, netlink, packet, alg, vsock
        assert verdict(rules, "socket", family, 1, 0) == errno.EAFNOSUPPORT
    assert verdict(rules, "socketpair", 1, 5, 0) is None
    assert verdict(rules, "socketpair", 40, 1, 0) == errno.EAFNOSUPPORT
    for name in ("io_uring_setup", "io_uring_enter", "keyctl"):
        assert verdict(rules, name) == errno.ENOSYS
    for name in ("ptrace", "bpf", "userfaultfd", "connect", "shmget", "mknod", "kexec_load"):
        assert verdict(rules, name) == errno.EPERM
    for name in ("read", "execve", "landlock_restrict_self", "seccomp", "memfd_create", "prctl"):
        assert verdict(rules, name) is None


def test_namespaces_are_for_tier_1_alone():
    strong, reduced = (json.loads(profile(namespaces=allowed)) for allowed in (True, False))
    kinds = [getattr(linux, name) for name in dir(linux) if name.startswith("CLONE_NEW")]
    assert len(kinds) == 6
    for kind in kinds:
        assert verdict(strong, "clone", kind | 17) is None
        assert verdict(reduced, "clone", kind | 17) == errno.EPERM
    assert verdict(reduced, "clone", 17) is None  # a fork
    for name in ("unshare", "setns", "mount", "pivot_root"):
        assert verdict(strong, name) is None and verdict(reduced, name) == errno.EPERM


INSIDE = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def of(call, *words):
    ctypes.set_errno(0)
    call(*words)
    return ctypes.get_errno()
def of_opening(path):
    try:
        os.open(path, os.O_CREAT | os.O_WRONLY)
    except OSError as refusal:
        return refusal.errno
sockets = [of(libc.socket, family, 1, 0) for family in (40, 1, 2, 16)]
io_uring = of(libc.syscall, ctypes.c_long(425), 1, 0)
print([sockets, io_uring, of_opening("/new"), of(libc.unshare, 0x10000000)], end=".", flush=True)
"""


@pytest.mark.docker
@pytest.mark.parametrize("namespaces", [True, False])
def test_a_bare_process_in_a_container_is_refused_vsock_io_uring_and_files(
    image, engine, namespaces
):
    kind = Kind(image=image, runtime=None, namespaces=namespaces)
    options = engine_code.hardening(kind, Room())
    made = engine.containers.create(image, ["/usr/bin/python3", "-c", INSIDE], **options)
    stream = Stream(engine_code.attach(engine, made.id))
    made.start()
    said = b""
    while not said.endswith(b"."):
        said += stream.take(1, time.monotonic() + 20)
    stream.close()
    unshared = 0 if namespaces else errno.EPERM
    sockets = [errno.EAFNOSUPPORT] * 4
    assert json.loads(said[:-1]) == [sockets, errno.ENOSYS, errno.EROFS, unshared]
