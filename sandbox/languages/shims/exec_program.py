"""Executes a program in another language in place of this process, with its limits and streams."""

import base64
import json
import os
import resource
import signal
from typing import NoReturn

_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
_RESULT = 3  # descriptor for the value of a call
_STACK = 16 << 20  # bytes; node gives every thread the stack limit of the first
_PIECE = 100_000  # bytes of one argument; the kernel allows 128 KiB
_ARGUMENT_FILE = "/tmp/.given"
_NODE = ("--no-addons", "--openssl-config=/dev/null", "--v8-pool-size=1")


def native(encoded: str) -> NoReturn:
    """Execute a compiled program, given in base 64."""
    _write("/tmp/program", base64.b64decode(encoded), 0o700)
    _exec(["/tmp/program"], _ENVIRONMENT)


def bash(source: str) -> NoReturn:
    """Execute a shell script."""
    _write("/tmp/solution.sh", source.encode(), 0o600)
    _exec(["bash", "--noprofile", "--norc", "/tmp/solution.sh"], _ENVIRONMENT)


def javascript(
    start: str, memory_mb: int, source: str, function: str = "", args: str = "[]"
) -> NoReturn:
    """Execute a script with node, or call its function and write the value to descriptor 3."""
    ceiling = resource.getrlimit(resource.RLIMIT_STACK)[1]
    stack = _STACK if ceiling == resource.RLIM_INFINITY else min(_STACK, ceiling)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, ceiling))
    text = json.dumps({"source": source, "function": function, "args": args})
    if len(text) > stack // 5:  # the kernel allows a quarter of the stack for all arguments
        _write(_ARGUMENT_FILE, text.encode(), 0o600)
        words = [_ARGUMENT_FILE]
    else:
        words = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    sizes = [f"--max-old-space-size={memory_mb}", f"--stack-size={(stack >> 10) * 7 // 8}"]
    command = ["node", *_NODE, *sizes, "-e", start, "--", *words]
    _exec(command, {**_ENVIRONMENT, "UV_THREADPOOL_SIZE": "1"}, keep_result=bool(function))


def _write(path: str, content: bytes, mode: int) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def _exec(words: list[str], environment: dict[str, str], *, keep_result: bool = False) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.set_inheritable(_RESULT, keep_result)
    os.execvpe(words[0], words, environment)
