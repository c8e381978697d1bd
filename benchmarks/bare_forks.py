"""A lower bound for many cases: plain Python processes that fork for each call, without isolation.

There are no limits and no measurements, and a child could harm its parent. The additional cost of
sandboxed executions is the cost of isolation and of preloaded modules.
"""

import json
import subprocess
from collections.abc import Sequence
from typing import Any, Self

_SERVE = """
import collections, heapq, json, os, sys
for line in sys.stdin:
    source, calls = json.loads(line)
    code = compile(source, "solution.py", "exec")
    values = []
    for arguments in calls:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            names = {}
            exec(code, names)
            os.write(writer, json.dumps(names["solve"](*arguments)).encode())
            os._exit(0)
        os.close(writer)
        values.append(json.loads(os.read(reader, 1 << 16)))
        os.close(reader)
        os.waitpid(pid, 0)
    print(json.dumps(values), flush=True)
"""


class BareForks:
    """`workers` such processes, which share the calls of a program."""

    def __init__(self, python: str, workers: int) -> None:
        self._processes = [
            subprocess.Popen(
                [python, "-I", "-c", _SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(workers)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.communicate()

    def call(self, source: str, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """The results of the program's `solve` for each list of arguments, in any order."""
        values = []
        shares = [arguments[first :: len(self._processes)] for first in range(len(self._processes))]
        busy = [(p, share) for p, share in zip(self._processes, shares, strict=True) if share]
        for process, share in busy:
            assert process.stdin is not None
            process.stdin.write(json.dumps([source, share]) + "\n")
            process.stdin.flush()
        for process, _ in busy:
            assert process.stdout is not None
            values += json.loads(process.stdout.readline())
        return values
