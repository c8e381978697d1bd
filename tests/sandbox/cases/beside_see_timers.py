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


import time
outcomes = set()
end = time.monotonic() + 1.0
while time.monotonic() < end:
    timer = ctypes.c_int()
    outcomes.add(libc.timer_create(1, None, ctypes.byref(timer)))
    if 0 in outcomes: libc.timer_delete(timer)
    time.sleep(0.02)
verdict(len(outcomes) > 1)  # it depends on somebody else
