"""The timed programs: one of two trivial lines, and one of fifty lines from a contest."""

from typing import Any

TWO_LINES = "def solve(n, edges):\n    return [n, sum(w for _, _, w in edges)]\n"
CONTEST = """
import heapq
from collections import defaultdict, deque


class Graph:
    def __init__(self, n):
        self.n = n
        self.near = defaultdict(list)

    def add_edge(self, u, v, w):
        self.near[u].append((v, w))
        self.near[v].append((u, w))

    def distances(self, source):
        best = [float("inf")] * self.n
        best[source] = 0
        heap = [(0, source)]
        while heap:
            d, u = heapq.heappop(heap)
            if d > best[u]:
                continue
            for v, w in self.near[u]:
                if d + w < best[v]:
                    best[v] = d + w
                    heapq.heappush(heap, (d + w, v))
        return best

    def components(self):
        seen = [False] * self.n
        count = 0
        for start in range(self.n):
            if seen[start]:
                continue
            count += 1
            seen[start] = True
            queue = deque([start])
            while queue:
                u = queue.popleft()
                for v, _ in self.near[u]:
                    if not seen[v]:
                        seen[v] = True
                        queue.append(v)
        return count


def solve(n, edges):
    graph = Graph(n)
    for u, v, w in edges:
        graph.add_edge(u, v, w)
    reached = [d for d in graph.distances(0) if d < float("inf")]
    return [max(reached), sum(reached), graph.components()]
"""
EDGES = [[0, 1, 1], [1, 2, 3], [2, 3, 4], [0, 3, 20], [4, 5, 1]]


def calls(cases: int) -> list[list[Any]]:
    """Arguments of each case."""
    return [[6 + i, EDGES] for i in range(cases)]
