import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import threading
try:
    threading.stack_size(64 << 20)
    gate = threading.Event(); up = []
    def deep(n):
        if n: deep(n - 1)
        else: up.append(1); gate.wait(2)
    for _ in range(128): threading.Thread(target=deep, args=(900,), daemon=True).start()
except (RuntimeError, MemoryError): pass
verdict(len(up) >= 100)
