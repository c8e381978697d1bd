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

import errno
buffer = ctypes.create_string_buffer(4096)
listed = {452} if os.uname().machine in ("x86_64", "aarch64") else set()
old = [134, 136, 139, 153, 156, 163, 174, 177, 178, 180, 181, 182, 183, 184, 185, 205, 211, 212, 214, 215, 236]
numbers = [*range(451, 1024), *(range(337, 424)), *(old if os.uname().machine == "x86_64" else [])]
ok = False
for number in numbers:
    for words in ((0, 0, 0, 0, 0, 0), (-100, b"/", 0, buffer, 64, 0), (buffer, 64, 0, 0, 0, 0)):
        if number in listed: continue
        libc.syscall(number, *[ctypes.c_long(w) if isinstance(w, int) else w for w in words])
        ok |= ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM)
verdict(ok)
