"""Tests as open-instruct's data sets carry them: a list, JSON, or a pickle compressed in base64.

A pickle from somebody else may run anything, so it is read by the pure-Python reader, which takes
no memory that its bytes do not fill, and finds no class.
"""

import base64
import io
import json
import pickle
import zlib
from typing import Any

MAX_TESTS = 200
MAX_BYTES = 16 << 20  # unpacked


def unpacked(tests: Any) -> list[Any]:
    """The list of tests. Raises ValueError for anything else."""
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except ValueError:
            tests = _unpickled(tests)
    if not isinstance(tests, list) or not 0 < len(tests) <= MAX_TESTS:
        raise ValueError(f"tests must be a list of 1 to {MAX_TESTS} of them, or such a list packed")
    return tests


def _unpickled(packed: str) -> Any:
    try:
        unzip = zlib.decompressobj()
        raw = unzip.decompress(base64.b64decode(packed, validate=True), MAX_BYTES)
        if not unzip.eof:
            raise ValueError(f"more than {MAX_BYTES} bytes, or cut off")
        found = _PlainData(io.BytesIO(raw)).load()
        return json.loads(found) if isinstance(found, str) else found
    except Exception as failure:  # the reader raises whatever the bytes make it raise
        raise ValueError(f"the tests are no list and cannot be unpacked: {failure}") from failure


class _PlainData(pickle._Unpickler):  # pyright: ignore[reportAttributeAccessIssue]  the slow one
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"plain data may be packed, not {module}.{name}")
