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
number = {"x86_64": 323, "aarch64": 282}[os.uname().machine]
ok = libc.syscall(number, 0) >= 0 or libc.syscall(number, 1) >= 0
try: os.open("/dev/userfaultfd", os.O_RDWR); ok = True
except OSError: pass
verdict(ok)
