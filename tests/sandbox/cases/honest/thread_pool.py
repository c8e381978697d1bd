import sys
from concurrent.futures import ThreadPoolExecutor
def main():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    with ThreadPoolExecutor(4) as pool:
        terms = pool.map(lambda i: (i + 1) * abs(xs[i] - xs[i + 1]), range(len(xs) - 1))
    print(sum(terms) % 99991)
if __name__ == "__main__":
    main()
