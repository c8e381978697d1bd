import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import os
got = 0
try:
    files = [os.memfd_create(f"m{i}") for i in range(8)]
    for fd in files:
        for _ in range(50): got += os.write(fd, bytes(1 << 20))
except (OSError, MemoryError, AttributeError): pass
verdict(got >= 400 << 20)
