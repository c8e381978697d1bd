class _Ask(BaseException): pass
def zigzag(xs):
    raise [StopIteration, GeneratorExit, KeyboardInterrupt, SystemExit, _Ask][len(xs) % 5]
