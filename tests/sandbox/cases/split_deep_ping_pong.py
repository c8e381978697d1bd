def walk(f, n):
    return f(n)
