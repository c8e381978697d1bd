import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import resource
ok = False
for name in ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_NPROC", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_STACK", "RLIMIT_CORE"):
    kind = getattr(resource, name); hard = resource.getrlimit(kind)[1]
    if hard == resource.RLIM_INFINITY: continue
    try: resource.setrlimit(kind, (hard + 1, hard + 1)); ok = True
    except (OSError, ValueError): pass
verdict(ok)
