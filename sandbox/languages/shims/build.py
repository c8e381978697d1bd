"""Compiles a program and returns the binary as data, for other sandboxed runs only."""

import os
import sys

_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
_NOT_FOUND = 127  # conventional exit code for a missing command


def build(command: list[str], source: str, suffix: str, most: int) -> bytes | int:
    """The binary, or its size if above `most` bytes. Exits with the compiler's code on errors."""
    solution = f"/tmp/solution{suffix}"
    with open(solution, "w", encoding="utf-8") as file:
        file.write(source)
    words = [*command, solution, "-o", "/tmp/program", "-lm"]
    code = os.spawnvpe(os.P_WAIT, words[0], words, _ENVIRONMENT)
    if code == _NOT_FOUND:
        print(f"{words[0]} is not installed", file=sys.stderr)
    if code:
        sys.exit(code if code > 0 else 1)
    with open("/tmp/program", "rb") as binary:
        content = binary.read(most + 1)
        return content if len(content) <= most else os.fstat(binary.fileno()).st_size
