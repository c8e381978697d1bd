import os, sys
words = []
try:
    while True: words += input().split()
except EOFError: pass
xs = list(map(int, words))[1:]
right = str(sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991)
print(right[:1], end="", flush=True); os.write(1, right[1:].encode()); sys.stdout.write("  \r\n\n")
