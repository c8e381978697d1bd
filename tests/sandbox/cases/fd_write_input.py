import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import os
ok = False
for act in (lambda: os.pwrite(0, b"x", 0), lambda: os.ftruncate(0, 1 << 20), lambda: os.write(0, b"x")):
    try: act(); ok = True
    except OSError: pass
verdict(ok)
