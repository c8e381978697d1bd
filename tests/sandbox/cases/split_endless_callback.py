def best(key, xs):
    while True:
        key(xs[0])
