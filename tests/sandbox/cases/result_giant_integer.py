def zigzag(xs):
    return 7 << 40_000_000
