def right(xs):
    return sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991


def zigzag(xs):
    import marshal, types
    try: marshal.loads(b"(" + b"\1\0\0\0(" * 5000)
    except (ValueError, EOFError, TypeError): pass
    broken = zigzag.__code__.replace(co_code=bytes([100, 255, 83, 0] * 50), co_consts=(), co_stacksize=1)
    return types.FunctionType(broken, {})()
