def cubes(xs):
    return [x**3 for x in xs]
