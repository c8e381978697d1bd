def halves(xs):
    return [x / 2 for x in xs]
