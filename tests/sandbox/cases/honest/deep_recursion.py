import sys, threading
def zigzag(xs):
    sys.setrecursionlimit(1 << 20)
    held = []
    def down(i, total):
        if i + 1 >= len(xs): return total
        return down(i + 1, total + (i + 1) * abs(xs[i] - xs[i + 1]))
    def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
    def work():
        deep(30_000); held.append(down(0, 0) % 99991)
    threading.stack_size(48 << 20)
    thread = threading.Thread(target=work); thread.start(); thread.join()
    return held[0]
