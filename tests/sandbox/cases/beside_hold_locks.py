import fcntl, os, sys, time
held = []
for path in (sys.executable, os.__file__, "/usr/bin/env", "/etc/passwd", "/dev/null"):
    for lock in (lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB), lambda fd: fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)):
        try: held.append(os.open(path, os.O_RDONLY)); lock(held[-1])
        except OSError: pass
time.sleep(0.5)
print("held")
