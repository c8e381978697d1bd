import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import socket
ok = False
for pair in (socket.socketpair() for _ in range(3)):
    for option in (57, 71):  # SO_COOKIE, SO_NETNS_COOKIE
        try: pair[0].getsockopt(socket.SOL_SOCKET, option, 8); ok = True
        except OSError: pass
verdict(ok)
