def twice(n):
    return float(2 * n)
