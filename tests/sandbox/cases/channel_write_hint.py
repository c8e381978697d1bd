import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import fcntl, os, struct
ok = False
for path in (os.__file__, "/usr/lib", "/etc/passwd", "/dev/null"):
    for command in (1036, 1038):
        try: fcntl.fcntl(os.open(path, os.O_RDONLY), command, struct.pack("Q", 3)); ok = True
        except OSError: pass
verdict(ok)
