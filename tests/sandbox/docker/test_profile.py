"""The container's own fence: what it refuses by its rules, and what it really refuses."""

import errno
import json
import time

import pytest

from veriloop.sandbox.docker import engine as engine_code
from veriloop.sandbox.docker.engine import ContainerLimits, ContainerSpec
from veriloop.sandbox.docker.profile import profile
from veriloop.sandbox.docker.stream import Stream
from veriloop.sandbox.namespace import linux
from veriloop.sandbox.namespace.allowed_calls import ALLOWED, OWN_FILES, PROCESSES


def verdict(rules, name, *arguments):
    """What libseccomp makes of a call: None when allowed, else an errno."""
    for rule in rules["syscalls"]:
        if name in rule["names"] and all(holds(test, arguments) for test in rule["args"]):
            return rule.get("errnoRet")
    return rules["defaultErrnoRet"]


def holds(test, arguments):
    word = arguments[test["index"]] if test["index"] < len(arguments) else 0
    if test["op"] == "SCMP_CMP_MASKED_EQ":
        return word & test["value"] == test["valueTwo"]
    return (word == test["value"]) == (test["op"] == "SCMP_CMP_EQ")


@pytest.mark.parametrize("namespaces", [True, False])
def test_what_neither_server_nor_program_needs_is_refused(namespaces):
    rules = json.loads(profile(namespaces=namespaces))
    assert rules["defaultAction"] == "SCMP_ACT_ERRNO" and len(rules["architectures"]) == 1
    for family in (1, 2, 10, 16, 17, 38, 40):  # unix, inet, inet6, netlink, packet, alg, vsock
        assert verdict(rules, "socket", family, 1, 0) == errno.EAFNOSUPPORT
    assert verdict(rules, "socketpair", 1, 5, 0) is None
    assert verdict(rules, "socketpair", 40, 1, 0) == errno.EAFNOSUPPORT
    for name in ("io_uring_setup", "io_uring_enter", "keyctl", "a_call_of_a_later_kernel"):
        assert verdict(rules, name) == errno.ENOSYS
    for name in ("ptrace", "bpf", "userfaultfd", "connect", "shmget", "mknod", "kexec_load"):
        assert verdict(rules, name) == errno.EPERM
    for name in ("read", "execve", "landlock_restrict_self", "seccomp", "memfd_create", "prctl"):
        assert verdict(rules, name) is None


@pytest.mark.parametrize("namespaces", [True, False])
def test_a_program_loses_no_call_to_the_container(namespaces):
    rules = json.loads(profile(namespaces=namespaces))
    names = (ALLOWED | PROCESSES | OWN_FILES) - {"socketpair"}
    assert {name for name in names if verdict(rules, name, 0) is not None} == set()


@pytest.mark.parametrize("namespaces", [True, False])
def test_one_rule_at_most_answers_each_call(namespaces):
    rules = json.loads(profile(namespaces=namespaces))["syscalls"]
    plain = [name for rule in rules if not rule["args"] for name in rule["names"]]
    conditional = {name for rule in rules if rule["args"] for name in rule["names"]}
    assert len(plain) == len(set(plain)) and not conditional & set(plain)


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
io_uring, later = (of(libc.syscall, ctypes.c_long(number), 1, 0) for number in (425, 600))
opened, unshared = of_opening("/new"), of(libc.unshare, 0x10000000)
print([sockets, io_uring, later, opened, unshared], end=".", flush=True)
"""


@pytest.mark.docker
@pytest.mark.parametrize("namespaces", [True, False])
def test_a_bare_process_in_a_container_is_refused_vsock_io_uring_and_files(
    image, engine, namespaces
):
    kind = ContainerSpec(image=image, runtime=None, namespaces=namespaces)
    options = engine_code.hardening(kind, ContainerLimits())
    made = engine.containers.create(image, ["/usr/bin/python3", "-c", INSIDE], **options)
    stream = Stream(engine_code.attach(engine, made.id))
    made.start()
    said = b""
    while not said.endswith(b"."):
        said += stream.take(1, time.monotonic() + 20)
    stream.close()
    unshared = 0 if namespaces else errno.EPERM
    sockets = [errno.EAFNOSUPPORT] * 4
    assert json.loads(said[:-1]) == [sockets, errno.ENOSYS, errno.ENOSYS, errno.EROFS, unshared]
