"""JSON bodies as values. Processes that parse large bodies import this, so it imports little."""

import json
import math
import re
from typing import Any

from pydantic_core import from_json

from veriloop.sandbox.remote.json_size import MAX_DEPTH, json_depth
from veriloop.sandbox.remote.refusal import Refusal

# Lone surrogates, and numbers that may be beyond the range of float: pydantic's parser refuses the
# former and returns infinity for the latter.
_RARE = re.compile(rb"\\u[dD][89a-fA-F]|\d[eE]\+?\d{3}|(?<!\d)\d{300}")


def parse(raw: bytes) -> Any:
    """The JSON value of a body. Raises Refusal 422, also for NaN and numbers that overflow."""
    try:
        if not _RARE.search(raw):
            return from_json(raw, allow_inf_nan=False)
        if json_depth(raw) > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} levels")
        return json.loads(raw.decode(), parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as failure:
        raise Refusal(422, f"JSON decode error: {str(failure)[:200]}") from failure


def _no_number(literal: str) -> None:
    raise ValueError(f"{literal} is no number")


def _finite(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise ValueError(f"{literal[:20]} is beyond the range of numbers")
    return value
