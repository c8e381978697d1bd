"""Becomes a program in another language, keeping limits, filters and standard streams."""

import base64
import json
import os
import resource
import signal
from typing import NoReturn

_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
_RESULT = 3  # the descriptor a call's value goes to
_STACK = 16 << 20  # node gives each of its threads as much as the first one may have
_PIECE = 100_000  # bytes of one argument; the kernel allows 128 KiB
_TOO_LONG = "/tmp/.given"
_NODE = ("--no-addons", "--openssl-config=/dev/null", "--v8-pool-size=1")


def native(encoded: str) -> NoReturn:
    """Become a compiled program, given in base 64."""
    _write("/tmp/program", base64.b64decode(encoded), 0o700)
    _become(["/tmp/program"], _ENVIRONMENT)


def bash(source: str) -> NoReturn:
    """Become a shell that runs a script."""
    _write("/tmp/solution.sh", source.encode(), 0o600)
    _become(["bash", "--noprofile", "--norc", "/tmp/solution.sh"], _ENVIRONMENT)


def javascript(
    start: str, memory_mb: int, source: str, function: str = "", args: str = "[]"
) -> NoReturn:
    """Become a node that runs a script, or calls a function of it and writes the value to 3."""
    ceiling = resource.getrlimit(resource.RLIMIT_STACK)[1]
    stack = _STACK if ceiling == resource.RLIM_INFINITY else min(_STACK, ceiling)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, ceiling))
    text = json.dumps({"source": source, "function": function, "args": args})
    if len(text) > stack // 5:  # the kernel allows a quarter of the stack for all arguments
        _write(_TOO_LONG, text.encode(), 0o600)
        words = [_TOO_LONG]
    else:
        words = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    sizes = [f"--max-old-space-size={memory_mb}", f"--stack-size={(stack >> 10) * 7 // 8}"]
    command = ["node", *_NODE, *sizes, "-e", start, "--", *words]
    _become(command, {**_ENVIRONMENT, "UV_THREADPOOL_SIZE": "1"}, keep_result=bool(function))


def _write(path: str, content: bytes, mode: int) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def _become(
    words: list[str], environment: dict[str, str], *, keep_result: bool = False
) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.set_inheritable(_RESULT, keep_result)
    os.execvpe(words[0], words, environment)
