import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import os, stat
ok = False
for fd in range(0, 1024):
    try: mode = os.fstat(fd).st_mode
    except OSError: continue
    ok |= stat.S_ISSOCK(mode) or stat.S_ISDIR(mode)
verdict(ok)
