import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import threading, time
seen = False
over = threading.Event()
for _ in range(4):
    started = []
    try:
        for _ in range(24): started.append(threading.Thread(target=over.wait, args=(0.2,), daemon=True)); started[-1].start()
    except RuntimeError: seen = True
    for thread in started[:24]:
        if thread.ident: thread.join()
verdict(seen)
