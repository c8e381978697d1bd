import bisect, collections, dataclasses, enum, functools, heapq, itertools, math, operator, random, re, string, typing
from collections import *
from typing import *
@dataclasses.dataclass
class Run:
    number: int
    length: int
@functools.lru_cache(None)
def double(x): return 2 * x
def runs(xs: List[int]) -> List[List[int]]:
    found = [Run(k, len(list(g))) for k, g in itertools.groupby(xs)]
    return [[r.number, r.length] for r in found]
