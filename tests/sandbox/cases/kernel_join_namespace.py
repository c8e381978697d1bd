import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

import os
ok = False
for other in {1, os.getppid()} - {0, os.getpid()}:
    process = libc.syscall(434, other, 0)
    if process >= 0:
        ok |= any(libc.setns(process, kind) == 0 for kind in (0x00020000, 0x40000000, 0x10000000))
verdict(ok)
