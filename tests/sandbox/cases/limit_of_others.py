import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import os, resource
ok = False
for other in {1, os.getppid()} - {0, os.getpid()}:
    try: resource.prlimit(other, resource.RLIMIT_CPU, resource.prlimit(other, resource.RLIMIT_CPU)); ok = True
    except OSError: pass
verdict(ok)
