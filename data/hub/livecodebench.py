"""LiveCodeBench's tests: JSON, or base64 of zlib of a pickle that may only hold text."""

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Mapping
from typing import Any, NoReturn

from veriloop.data.hub.code_rows import LARGEST, from_json, stdin_test
from veriloop.data.hub.layout import Layout, Row, UnusableRow, value


class TextUnpickler(pickle.Unpickler):
    """Loads plain values. A pickle that references any class or function is refused."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise UnusableRow("a pickle that references code")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UnusableRow("a pickle that references code")


def unpack(encoded: str) -> Any:
    """The tests in a text: JSON, or a packed pickle of JSON. Raises UnusableRow."""
    try:
        return json.loads(encoded)
    except (ValueError, RecursionError):
        pass
    try:
        packed = base64.b64decode(encoded, validate=True)
        decompressor = zlib.decompressobj()
        pickled = decompressor.decompress(packed, LARGEST)
    except (binascii.Error, ValueError, zlib.error):
        raise UnusableRow("tests are neither JSON nor packed") from None
    if not decompressor.eof:
        raise UnusableRow("tests too large or truncated")
    try:
        return json.loads(str(TextUnpickler(io.BytesIO(pickled)).load()))
    except UnusableRow:
        raise
    except Exception:  # noqa: BLE001  an invalid pickle can raise any exception
        raise UnusableRow("an unreadable pickle") from None


def tests(row: Row, layout: Layout) -> dict[str, Any]:
    """Public and private tests: standard input, or calls of `func_name` on JSON lines."""
    cases: list[Any] = []
    for column in ("public_test_cases", "private_test_cases"):
        part = value(row, column)
        part = unpack(part) if isinstance(part, str) else part or []
        if not isinstance(part, list):
            raise UnusableRow("tests are not a list")
        cases += part
    if not cases:
        raise UnusableRow("no tests")
    kinds = {case.get("testtype") if isinstance(case, dict) else None for case in cases}
    if kinds == {"stdin"}:
        return {"tests": [stdin_test(case) for case in cases]}
    if kinds != {"functional"}:
        raise UnusableRow("tests of several kinds or of an unknown kind")
    return {"function": _function(row), "tests": [_call(case) for case in cases]}


def _function(row: Row) -> str:
    metadata = value(row, "metadata") or "{}"
    if isinstance(metadata, str):
        metadata = from_json(metadata, "metadata")
    name = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not name:
        raise UnusableRow("no function name")
    return name


def _call(case: dict[str, Any]) -> dict[str, Any]:
    try:
        args = [json.loads(line) for line in case["input"].split("\n") if line.strip()]
        return {"args": args, "expected": json.loads(case["output"])}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UnusableRow("arguments are not JSON") from None
