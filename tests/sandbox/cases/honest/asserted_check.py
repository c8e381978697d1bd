class Solution:
    def runs(self, xs):
        import itertools
        return [[k, len(list(g))] for k, g in itertools.groupby(xs)]
