def zigzag(xs):
    return float('nan')
