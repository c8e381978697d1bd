"""Tests in the formats of open-instruct's data sets: a list, JSON, or a zlib pickle in base64.

Loading an untrusted pickle can run code. The pure-Python unpickler is used instead, with every
class refused; it also allocates no memory beyond what its bytes fill.
"""

import base64
import io
import json
import pickle
import pickletools
import zlib
from typing import Any

from veriloop.sandbox.remote.json_size import MAX_VALUES, json_values

MAX_TESTS = 200
MAX_OPCODES = 1 << 17
MAX_BYTES = 16 << 20  # decompressed


def unpack(tests: Any) -> list[Any]:
    """The list of tests. Raises ValueError for anything else."""
    if isinstance(tests, str):
        text = _bounded(tests)
        try:
            tests = json.loads(text)
        except RecursionError as deep:
            raise ValueError("the tests nest too deeply") from deep
        except ValueError:
            tests = _unpickle(text)
    if not isinstance(tests, list) or not 0 < len(tests) <= MAX_TESTS:
        raise ValueError(f"tests must be a list of 1 to {MAX_TESTS}, or such a list packed")
    return tests


def _bounded(text: str) -> str:
    if json_values(text.encode("utf-8", "surrogatepass")) > MAX_VALUES:
        raise ValueError(f"the tests have more than {MAX_VALUES} JSON values")
    return text


def _unpickle(packed: str) -> Any:
    try:
        unzip = zlib.decompressobj()
        raw = unzip.decompress(base64.b64decode(packed, validate=True), MAX_BYTES)
        if not unzip.eof:
            raise ValueError(f"more than {MAX_BYTES} bytes, or cut off")
        if any(n >= MAX_OPCODES for n, _ in enumerate(pickletools.genops(raw))):
            raise ValueError(f"more than {MAX_OPCODES} pickle opcodes")
        tests = _PlainData(io.BytesIO(raw)).load()
        return json.loads(_bounded(tests)) if isinstance(tests, str) else tests
    except Exception as failure:  # malformed pickles raise exceptions of any type
        raise ValueError(f"the tests are no list and cannot be unpacked: {failure}") from failure


class _PlainData(pickle._Unpickler):  # pyright: ignore[reportAttributeAccessIssue]  pure Python
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"plain data may be packed, not {module}.{name}")
