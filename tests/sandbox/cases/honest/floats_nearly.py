def zigzag(xs):
    return sum(x / 10 for x in xs) / len(xs)
