import asyncio, mmap, os, selectors, shutil, signal, socket, sys, tempfile, threading, time

numbers = list(map(int, sys.stdin.read().split()))[1:]
left, right = socket.socketpair()
left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
left.settimeout(5)
threading.Thread(target=lambda: (left.sendall(repr(numbers).encode()), left.close())).start()
chunks = []
with selectors.DefaultSelector() as selector:
    selector.register(right, selectors.EVENT_READ)
    while selector.select(5) and (chunk := right.recv(1000)):
        chunks.append(chunk)
numbers = eval(b"".join(chunks))

try:
    with tempfile.TemporaryFile() as file:
        file.write(repr(numbers).encode()); file.flush(); os.fsync(file.fileno())
        with mmap.mmap(file.fileno(), 0) as view:
            numbers = eval(view[:])
    with open("/tmp/a", "w") as file:
        file.write(repr(numbers))
    shutil.copy2("/tmp/a", "/tmp/b")
    os.rename("/tmp/b", "/tmp/c")
    numbers = eval(open("/tmp/c").read())
except (PermissionError, FileNotFoundError):  # no writable folder
    pass

rung = threading.Event()
signal.signal(signal.SIGALRM, lambda *_: rung.set())
signal.setitimer(signal.ITIMER_REAL, 0.01)
while not rung.is_set():
    time.sleep(0.005)

async def weight(i, a, b):
    await asyncio.sleep(0)
    return (i + 1) * abs(a - b)

async def main():
    pairs = enumerate(zip(numbers, numbers[1:]))
    print(sum(await asyncio.gather(*(weight(i, a, b) for i, (a, b) in pairs))) % 99991)

asyncio.run(main())
