def runs(xs):
    return ["passed"]
