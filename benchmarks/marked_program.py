"""A program that writes its mark wherever it can, and searches for marks of earlier runs.

Runs inside the sandbox with its mark on standard input; prints the channels that held a mark.
"""

import builtins
import ctypes
import gc
import json
import os
import resource
import signal
import sys
import threading
from contextlib import suppress

SHAPE = 6  # digits at the end of a mark that number the run
FILES = ("/tmp", "/dev/shm", "/var/tmp", "/run", "/usr/tmp")
OLD = 1_000_000_000  # seconds; times of files are set to this plus the number of the run
BLOCK, HEAP = 1 << 16, 200  # bytes a pipe takes; blocks below the end of the heap
libc = ctypes.CDLL(None)


def foreign(text: str) -> bool:
    """Whether the text contains the mark of another run."""
    parts = [part[:SHAPE] for part in text.split(prefix)[1:]]
    return any(part.isdigit() and part != number for part in parts)


def names() -> list[str]:
    """All names in the writable parts of the file system."""
    entries = list[str]()
    for folder in FILES:
        with suppress(OSError):  # not there, or not to be read
            entries += os.listdir(folder)
    return entries


def objects() -> bool:
    """Texts of all existing objects, including those that the collector froze before the fork."""
    gc.unfreeze()
    for held in gc.get_objects():
        inner = list(held.values()) if isinstance(held, dict) else held
        if isinstance(inner, (list, tuple, set)) and any(
            isinstance(value, str) and foreign(value) for value in list(inner)
        ):
            return True
    return False


def memory() -> bool:
    """The heap and the blocks of objects; writing to a pipe shows which of them are readable."""
    reader, writer = os.pipe()
    libc.sbrk.restype = ctypes.c_void_p
    end = (libc.sbrk(ctypes.c_long(0)) or 0) // BLOCK
    blocks = {id(held) // BLOCK for held in gc.get_objects()} | set(range(end - HEAP, end + 1))
    for block in blocks:
        address, size = ctypes.c_void_p(block * BLOCK), ctypes.c_size_t(BLOCK)
        count = libc.write(writer, address, size)
        if count > 0 and foreign(os.read(reader, count).decode("latin-1")):
            return True
    return False


def look() -> list[str]:
    """Channels that show another run."""
    thread_name = ctypes.create_string_buffer(16)
    libc.prctl(16, thread_name, 0, 0, 0)
    times = [os.stat(folder).st_mtime for folder in FILES if os.path.isdir(folder)]
    return [
        channel
        for channel, hit in {
            "files": bool(names()) or any(OLD <= time < 2 * OLD - 5e8 for time in times),
            "environment": foreign(repr(dict(os.environ))),
            "arguments": foreign(repr(sys.argv)) or len(sys.argv) > 1,
            "thread names": thread_name.value.startswith(b"mark")
            or any(foreign(thread.name) for thread in threading.enumerate()),
            "modules": hasattr(builtins, "veriloop_mark") or "veriloop_mark" in sys.modules,
            "signals": signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL,
            "umask": os.umask(0o077) != 0o077,
            "folder": os.getcwd() not in ("/tmp", "/"),
            "limits": resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 32,
            "descriptors": any(is_open(fd) for fd in range(5, 60)),
            "objects": objects(),
            "memory": memory(),
        }.items()
        if hit
    ]


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def write(path: str) -> None:
    with open(path, "w") as file:
        file.write(mark)


def plant() -> None:
    """Write the mark everywhere; what is refused is not a channel."""
    os.environ["VERILOOP_MARK"] = mark
    sys.argv.append(mark)
    builtins.veriloop_mark = mark
    sys.modules["veriloop_mark"] = sys
    threading.current_thread().name = mark
    libc.prctl(15, b"mark" + number.encode(), 0, 0, 0)
    kept.extend(f"{mark}{index}" for index in range(2000))
    signal.signal(signal.SIGUSR1, lambda *_: None)
    for step in (
        lambda: [write(f"{folder}/{mark}") for folder in FILES[:2]],
        lambda: [os.utime(folder, (OLD + int(number),) * 2) for folder in FILES[:2]],
        lambda: os.mkdir(f"/tmp/d{mark}"),
        lambda: os.chdir(f"/tmp/d{mark}"),
        lambda: os.dup2(0, 50),
        lambda: os.nice(1),
        lambda: os.umask(0),
        lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20)),
    ):
        with suppress(OSError):
            step()


mark = input()
prefix, number = mark[:-SHAPE], mark[-SHAPE:]
kept = list[str]()
channels = look()
plant()
print(json.dumps(channels))
