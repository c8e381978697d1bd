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

import struct
class Program(ctypes.Structure): _fields_ = [("n", ctypes.c_ushort), ("p", ctypes.c_char_p)]
seccomp = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
ok = False
for action in (0x7FFC0000, 0x7FC00000, 0x7FFF0000):  # log, notify, allow
    program = Program(1, struct.pack("HBBI", 6, 0, 0, action))
    for flags in (0, 1, 2, 4, 8, 16, 24):
        ok |= libc.syscall(seccomp, 1, flags, ctypes.byref(program)) >= 0
    ok |= libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
ok |= libc.syscall(seccomp, 2, 0, ctypes.byref(ctypes.c_uint32(0x7FFC0000))) == 0
ok |= libc.syscall(seccomp, 3, 0, ctypes.create_string_buffer(64)) == 0
verdict(ok)
