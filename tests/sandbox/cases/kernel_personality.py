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

number = {"x86_64": 135, "aarch64": 92}
import os
now = number[os.uname().machine]
verdict(libc.syscall(now, 0x0040000) >= 0 and libc.syscall(now, 0xFFFFFFFF) & 0x0040000)
