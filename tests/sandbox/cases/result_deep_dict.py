def runs(xs):
    deep = {}
    for _ in range(100_000):
        deep = {"x": deep}
    return deep
