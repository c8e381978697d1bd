"""The floor of many cases: bare Python processes that fork for each call, with no isolation at all.

Nothing is bounded, watched or measured, and a child may do to its parent what it likes. What
executions cost beyond this is what isolation costs, and the same modules at hand for every program.
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
        """What `solve` of the program returns for each list of arguments, in no given order."""
        values = []
        shares = [arguments[place :: len(self._processes)] for place in range(len(self._processes))]
        busy = [(p, share) for p, share in zip(self._processes, shares, strict=True) if share]
        for process, share in busy:
            assert process.stdin is not None
            process.stdin.write(json.dumps([source, share]) + "\n")
            process.stdin.flush()
        for process, _ in busy:
            assert process.stdout is not None
            values += json.loads(process.stdout.readline())
        return values
