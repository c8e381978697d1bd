def zigzag(xs):
    return {'\ud800' * 500_000: '\udfff' * 500_000}
