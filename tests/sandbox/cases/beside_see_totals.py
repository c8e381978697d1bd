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


import os, struct, time
seen = set()
end = time.monotonic() + 0.9
while time.monotonic() < end:
    raw = (ctypes.c_char * 256)()
    if libc.sysinfo(raw) == 0:
        told = struct.unpack_from("l3L6LH", raw.raw)
        seen |= {told[4:], ()}  # memory and processes of everybody
    time.sleep(0.05)
verdict(len(seen) > 1)
