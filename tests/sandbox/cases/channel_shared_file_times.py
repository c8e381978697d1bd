import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import os
ok = False
for path in (os.__file__, "/usr", "/etc/passwd", "/dev/null"):
    for act in (lambda: os.utime(path), lambda: os.setxattr(path, "user.veriloop", b"1"), lambda: os.chmod(path, os.stat(path).st_mode & 0o7777)):
        try: act(); ok = True
        except OSError: pass
verdict(ok)
