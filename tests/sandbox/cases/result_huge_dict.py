def runs(xs):
    return {i: str(i) for i in range(1_500_000)}
