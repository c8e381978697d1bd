"""Run a module or script as on macOS: darwin.py MODULE ARGUMENT..., without the calls of Linux."""

import ctypes
import importlib.util
import os
import platform
import resource
import runpy
import select
import signal
import socket
import sys
import sysconfig
from types import ModuleType

MISSING = {
    os: "memfd_create pidfd_open pipe2 sched_getaffinity sched_setaffinity O_PATH MFD_CLOEXEC "
    "MFD_ALLOW_SEALING unshare setns splice posix_fadvise",
    resource: "prlimit RLIMIT_SIGPENDING RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO",
    select: "epoll POLLRDHUP",
    signal: "pidfd_send_signal",
    socket: "SOCK_SEQPACKET SOCK_CLOEXEC MSG_CMSG_CLOEXEC MSG_NOSIGNAL AF_VSOCK AF_NETLINK",
}
_setrlimit = resource.setrlimit
_LINUX_ONLY = {"unshare", "mount", "umount2", "prctl", "sethostname", "setns", "syscall", "_Fork"}


def _set_limit(kind: int, limits: tuple[int, int]) -> None:
    if kind == resource.RLIMIT_AS:
        raise ValueError("current limit exceeds maximum limit")
    _setrlimit(kind, limits)


def _without(loader: type[ctypes.CDLL]) -> type[ctypes.CDLL]:
    class Library(loader):
        def __getattr__(self, name):
            if self._name is None and name in _LINUX_ONLY:
                raise AttributeError(name)
            return super().__getattr__(name)

    return Library


def become_darwin() -> None:
    sysconfig.get_config_vars()  # of the Python that really runs
    if importlib.util.find_spec("truststore"):  # it would load frameworks of macOS
        importlib.import_module("truststore")
    for module, names in MISSING.items():
        for name in filter(lambda name, module=module: hasattr(module, name), names.split()):
            delattr(module, name)
    ctypes.CDLL, ctypes.PyDLL = _without(ctypes.CDLL), _without(ctypes.PyDLL)
    proxies = ModuleType("_scproxy")  # of the standard library on macOS
    proxies._get_proxies = proxies._get_proxy_settings = dict
    sys.modules["_scproxy"] = proxies
    sys.platform = "darwin"
    resource.setrlimit = _set_limit
    platform.system, platform.release = lambda: "Darwin", lambda: "23.6.0"


if __name__ == "__main__":
    become_darwin()
    sys.argv = sys.argv[1:]
    if sys.argv[0] == "-c":
        exec(sys.argv[1])
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
