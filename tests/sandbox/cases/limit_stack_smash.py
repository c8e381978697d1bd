import sys
sys.setrecursionlimit(10**9)
class Deep:
    def __repr__(self): return repr(self)
    def __getattr__(self, name): return getattr(self, name + "x")
def zigzag(xs):
    try: repr(Deep())
    except RecursionError: pass
    return zigzag(xs)
