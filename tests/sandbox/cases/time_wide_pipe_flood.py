import fcntl, os, threading
try: fcntl.fcntl(2, 1031, 1 << 20)
except OSError: pass
block = bytes(1 << 20)
def flood():
    while True: os.write(2, block)
for _ in range(4): threading.Thread(target=flood, daemon=True).start()
flood()
