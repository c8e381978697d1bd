import os, signal, threading
for number in range(1, 65):
    try: signal.signal(number, lambda *a: None)
    except (OSError, ValueError): pass
def storm():
    while True:
        for number in range(1, 65):
            for target in (os.getpid(), 0, 1):
                try: os.kill(target, number) if number not in (9, 19) else None
                except OSError: pass
signal.setitimer(signal.ITIMER_REAL, 1e-6, 1e-6)
for _ in range(8): threading.Thread(target=storm, daemon=True).start()
storm()
