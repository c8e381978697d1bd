import fcntl, os, struct, time
for path in (os.__file__, "/usr/bin/env", "/usr/lib", "/etc/passwd", "/dev/null", "/dev/zero"):
    for command in (1036, 1038):
        try: fcntl.fcntl(os.open(path, os.O_RDONLY), command, struct.pack("Q", 5))
        except OSError: pass
try: fcntl.fcntl(0, 1036, struct.pack("Q", 5))
except OSError: pass
time.sleep(0.5)
print("held")
