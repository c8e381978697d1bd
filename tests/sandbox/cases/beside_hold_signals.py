import os, signal, time
end = time.monotonic() + 0.5
while time.monotonic() < end:
    for target in (-1, *range(2, 400)):
        if target != os.getpid():
            try: os.kill(target, signal.SIGKILL if target != -1 else signal.SIGUSR1)
            except OSError: pass
    time.sleep(0.01)
print("held")
