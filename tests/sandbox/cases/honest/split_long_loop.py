def step(n):
    return n + 1
