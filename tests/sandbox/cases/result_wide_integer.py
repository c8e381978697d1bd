def zigzag(xs):
    return 7 << 500_000
