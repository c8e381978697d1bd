def zigzag(xs):
    return dict.fromkeys((i << 44 for i in range(1, 120_000)), 0)
