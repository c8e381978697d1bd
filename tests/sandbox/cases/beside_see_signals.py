import sys

def answer():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def verdict(escaped):
    """The right answer only where the forbidden thing worked: a reward proves a leak."""
    print(answer() if escaped else "blocked", flush=True)

import os, signal, time
seen = []
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGCONT): signal.signal(number, lambda *a: seen.append(a))
end = time.monotonic() + 0.8
while time.monotonic() < end and not seen:
    for target in range(2, 400):
        try:
            if target != os.getpid(): os.kill(target, 0); seen.append(target)
        except OSError: pass
    time.sleep(0.02)
verdict(bool(seen))
