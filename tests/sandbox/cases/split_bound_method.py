class Echo:
    def union(self, other): return other
    def get(self, key, default=None): return default
def names(n):
    return Echo()
