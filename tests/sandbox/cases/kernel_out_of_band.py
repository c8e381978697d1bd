import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)


import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

import fcntl, socket
a, b = socket.socketpair()
r, w = os.pipe()
def splice():
    os.write(w, b"x")
    return os.splice(r, a.fileno(), 1)
def clone():
    source, copy = os.open("/usr/bin/env", os.O_RDONLY), os.open("/tmp/x", os.O_CREAT | os.O_RDWR)
    return fcntl.ioctl(copy, 0x40049409, source)
ok = False
for attempt in (lambda: a.send(b"x", socket.MSG_OOB), lambda: b.recv(1, socket.MSG_OOB), splice, clone):
    try: attempt(); ok = True
    except (OSError, AttributeError): pass
verdict(ok)
