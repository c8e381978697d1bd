import sys

xs = list(map(int, sys.stdin.read().split()))[1:]
print(f"{sum(x * x for x in xs) % 9973}\x1c\x1d\x85\u2028")
