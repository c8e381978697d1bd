def factorials(ns):
    out = []
    for n in ns:
        product = 1.0
        for k in range(2, n + 1):
            product *= k
        out.append(product)
    return out
