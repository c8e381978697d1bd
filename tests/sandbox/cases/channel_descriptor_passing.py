import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import os, socket
a, b = socket.socketpair()
try:
    for _ in range(8): socket.send_fds(a, [b"x"], [0] * 40)
    verdict(True)
except OSError:
    verdict(False)
