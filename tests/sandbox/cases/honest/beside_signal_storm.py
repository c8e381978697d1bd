from concurrent.futures import ThreadPoolExecutor
xs = list(map(int, open(0).read().split()))[1:]
with ThreadPoolExecutor(16) as threads:
    assert sum(threads.map(abs, range(-500, 500))) == 250_000
print(sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991)
