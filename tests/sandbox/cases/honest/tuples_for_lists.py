import itertools
def runs(xs):
    return tuple((k, len(list(g))) for k, g in itertools.groupby(xs))
