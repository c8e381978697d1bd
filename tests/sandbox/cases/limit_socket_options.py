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

import socket
held, keep = 0, []
try:
    while held < 400 << 20:
        pair = socket.socketpair()
        for s in pair:
            keep.append(s); s.setblocking(False)
            for option in (socket.SO_SNDBUF, 32, socket.SO_RCVBUF, 33):
                try: s.setsockopt(socket.SOL_SOCKET, option, 1 << 29)
                except OSError: pass
            try:
                while True: held += s.send(bytes(1 << 16))
            except BlockingIOError: pass
except (OSError, MemoryError): pass
verdict(held > 300 << 20)
