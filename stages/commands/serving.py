"""Of every command that serves: its memory, the token of its clients, addresses out of use."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from veriloop.pipeline.errors import RecipeError

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h
_MAPPED_BYTES = 1 << 20


def return_freed_bodies() -> None:
    """Have glibc return large blocks to the system when they are freed, always.

    By default it stops to do so for blocks of a size that was freed once, up to 32 MiB: request
    bodies then fragment the heaps of every thread. Other C libraries have no such function.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES)


@contextmanager
def serving_on(host: str, port: int) -> Iterator[None]:
    """Raise RecipeError where a service, opened inside, cannot be served there."""
    return_freed_bodies()
    try:
        yield
    except RecipeError:  # of what is served
        raise
    except (ValueError, OverflowError, OSError) as refusal:
        raise RecipeError(f"cannot serve on {host}:{port}: {refusal}") from refusal


def token_of(variable: str, file: str = "") -> str:
    """The token in an environment variable or in the first line of a file; "" without both.

    Raises RecipeError for both, an unset variable, or a file without a token.
    """
    if variable and file:
        raise RecipeError("--token-variable and --token-file exclude each other")
    if not variable and not file:
        return ""
    if file:
        source = f"--token-file {file}"
        try:
            lines = Path(file).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as failure:
            raise RecipeError(f"{source}: {failure}") from failure
        token = lines[0].strip() if lines else ""
    else:
        source = f"--token-variable {variable}"
        token = os.environ.get(variable, "")
    if not (token and token.isascii() and token.isprintable()):
        raise RecipeError(f"{source} holds no token")
    return token
