def halves(xs):
    return [complex(x / 2) for x in xs]
