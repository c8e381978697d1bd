def zigzag(xs):
    if not xs: raise ValueError('empty')
    return xs[0]
