"""Lets programs use SQLite databases in /tmp, although file locks are refused.

SQLite locks its files unless it uses its file layer for systems without locks. A program's /tmp has
no other users. Not for security: all that the hook does the program could do itself.
"""

import ctypes
import sys
from contextlib import suppress

_WITHOUT_LOCKS = b"unix-none"  # a file layer of SQLite


def before_connect(event: str, arguments: tuple[object, ...]) -> None:
    """Audit hook: make SQLite work without locks before its first connection."""
    if event == "sqlite3.connect":
        with suppress(OSError, AttributeError, KeyError):  # a library that hides its functions
            library = ctypes.CDLL(sys.modules["_sqlite3"].__file__)
            library.sqlite3_vfs_find.restype = ctypes.c_void_p
            layer = library.sqlite3_vfs_find(_WITHOUT_LOCKS)
            if layer:
                library.sqlite3_vfs_register(ctypes.c_void_p(layer), 1)
