xs = list(map(int, open(0).read().split()))[1:]
table = [bytearray(1 << 20) for _ in range(300)]
assert len(table) == 300
print(sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991)
