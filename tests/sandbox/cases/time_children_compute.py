import os, time
ends = time.monotonic() + 60
while time.monotonic() < ends:
    try: child = os.fork()
    except OSError: time.sleep(0.05); continue
    if child == 0:
        until = time.process_time() + 0.5
        while time.process_time() < until: pass
        os._exit(0)
    os.waitpid(child, 0)
