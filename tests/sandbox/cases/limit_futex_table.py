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

import socket, struct
ok = libc.prctl(78, 1, 1 << 20, 0, 0) == 0  # PR_FUTEX_HASH, set slots
page = libc.mmap(None, 4096, 3, 0x22, -1, 0)
ok |= libc.prctl(0x53564D41, 0, ctypes.c_void_p(page), 4096, b"name") == 0  # PR_SET_VMA_ANON_NAME
ok |= libc.prctl(67, 1, 0, 0, 0) == 0  # PR_SET_MEMORY_MERGE
code = struct.pack("HBBI", 6, 0, 0, 0xFFFF)
class Program(ctypes.Structure): _fields_ = [("n", ctypes.c_ushort), ("p", ctypes.c_char_p)]
a, b = socket.socketpair()
try: a.setsockopt(socket.SOL_SOCKET, 26, bytes(Program(1, code))); ok = True  # SO_ATTACH_FILTER
except OSError: pass
verdict(ok)
