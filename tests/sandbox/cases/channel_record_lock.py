import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import fcntl, os, struct, sys
ok = False
for path, how, kind in ((os.__file__, os.O_RDONLY, 0), ("/dev/null", os.O_RDWR, 1), ("/dev/zero", os.O_RDONLY, 0)):
    for command in (fcntl.F_SETLK, 37):
        try:
            fd = os.open(path, how)
            fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, 0, 0, 0, 0)); ok = True
        except OSError: pass
verdict(ok)
