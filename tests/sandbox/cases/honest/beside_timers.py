import signal, time
xs = list(map(int, open(0).read().split()))[1:]
rung = []
signal.signal(signal.SIGALRM, lambda *a: rung.append(a))
signal.setitimer(signal.ITIMER_REAL, 0.05)
while not rung: time.sleep(0.01)
print(sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991)
