import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


import os, socket, time
x86 = os.uname().machine == "x86_64"
places = ("/tmp/veriloop_beside", "/dev/shm/veriloop_beside", "/dev/veriloop_beside", "/usr/veriloop_beside", "/etc/veriloop_beside", "/veriloop_beside")
seen = False
end = time.monotonic() + 0.8
while time.monotonic() < end and not seen:
    seen |= any(os.path.exists(path) for path in places)
    try: socket.socket(socket.AF_UNIX).connect("\0veriloop_beside"); seen = True
    except OSError: pass
    seen |= libc.syscall(29 if x86 else 194, 0x76657269, 0, 0) >= 0
    seen |= libc.syscall(68 if x86 else 186, 0x76657269, 0) >= 0
    time.sleep(0.02)
verdict(seen)
