"""What passes between the host and the server in a container, as bytes.

The server trusts the host: a request is 8 bytes of length and a marshalled tuple. The host does
not trust the server: a reply is one frame of `sandbox.wire`, whose sizes are checked before the
bytes that follow it are read.
"""

import marshal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_args

from sandbox import wire
from sandbox.executor import Call, Given, Program, Stdin
from sandbox.limits import Limits
from sandbox.result import Ended, Execution

Take = Callable[[int], bytes]  # exactly so many bytes

LENGTH_BYTES = wire.LENGTH_BYTES
HEAD_BYTES = 1 << 16  # of a reply's frame, for each case in it
_VALUE_FACTOR = 4  # a value written by us may be longer than the frame it came in
_MARSHAL_VERSION = 4  # read by every Python from 3.4 on: the container's may be another one
_ENDED = get_args(Ended)
_NUMBERS = ("cpu_s", "wall_s", "waited_s", "peak_mb")
_MAY_RAISE = ("ValueError", "SandboxUnavailableError")


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """What the executor in the container refused to run, and why."""

    kind: str
    text: str


def request(parts: tuple[Any, ...]) -> bytes:
    """A request as bytes. Raises ValueError for what is not plain data."""
    body = marshal.dumps(parts, _MARSHAL_VERSION)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def read_request(take: Take) -> tuple[Any, ...]:
    size = int.from_bytes(take(LENGTH_BYTES), "big")
    return marshal.loads(take(size))


def run_request(program: Program, given: Sequence[Given], limits: Limits) -> bytes:
    """Raises ValueError naming the function whose arguments are not plain data."""
    written = (program.source, program.language, tuple(program.preload))
    inputs = [_input(one) for one in given]
    return request((written, inputs, [getattr(limits, name) for name in Limits.__slots__]))


def _input(given: Given) -> bytes | tuple[Any, ...]:
    if isinstance(given, Stdin):
        return bytes(given.data)
    parts = (given.function, list(given.args), dict(given.kwargs))
    try:
        marshal.dumps(parts, _MARSHAL_VERSION)
    except ValueError as failure:
        told = f"arguments of {given.function!r} are not plain data: {failure}"
        raise ValueError(told) from failure
    return parts


def run_parts(parts: tuple[Any, ...]) -> tuple[Program, list[Given], Limits]:
    """The server's side of `run_request`."""
    (source, language, preload), inputs, numbers = parts
    given: list[Given] = [
        Stdin(data=one)
        if isinstance(one, bytes)
        else Call(function=one[0], args=one[1], kwargs=one[2])
        for one in inputs
    ]
    limits = Limits(**dict(zip(Limits.__slots__, numbers, strict=True)))
    return Program(source=source, language=language, preload=preload), given, limits


def reply(done: Sequence[Execution], limits: Limits) -> bytes:
    """The server's answer to `run_request`."""
    rows, parts = list[dict[str, Any]](), list[bytes]()
    for one in done:
        row, own = _row(one, limits)
        rows.append(row)
        parts += own
    return b"".join([wire.encode({"done": rows}), *parts])


def _row(one: Execution, limits: Limits) -> tuple[dict[str, Any], list[bytes]]:
    names = [field.name for field in fields(one)]
    row = {name: getattr(one, name) for name in names if name not in ("stdout", "stderr", "value")}
    value = wire.encode(one.value)
    if len(value) > _value_cap(limits):
        value = wire.encode(None)
        row |= {"ended": "protocol", "why": "the value is too long when written out"}
    parts = [one.stdout, one.stderr, value]
    return row | {"sizes": [len(part) for part in parts]}, parts


def refusal(failure: Exception) -> bytes:
    """The server's answer when its executor refuses a request."""
    return wire.encode({"raised": type(failure).__name__, "text": str(failure)})


def hello(facts: dict[str, Any]) -> bytes:
    """The server's first words."""
    return wire.encode(facts)


def read_head(take: Take, cap: int) -> dict[str, Any]:
    """One frame from the container that holds a dictionary. Raises WireError for anything else."""
    size = int.from_bytes(start := take(LENGTH_BYTES), "big")
    if size > cap:
        raise wire.WireError(f"a reply of {size} bytes; at most {cap} are allowed")
    head = wire.decode(start + take(size), cap)
    if type(head) is not dict:
        raise wire.WireError(f"a reply must be a dictionary, got {type(head).__name__}")
    return head


def read_reply(take: Take, cases: int, limits: Limits) -> list[Execution] | Raised:
    """What the server says to `run_request`. Raises WireError unless it is in order to a bit."""
    head = read_head(take, cases * HEAD_BYTES)
    if set(head) == {"raised", "text"}:
        if head["raised"] not in _MAY_RAISE or type(head["text"]) is not str:
            raise wire.WireError("an unknown refusal")
        return Raised(kind=head["raised"], text=head["text"])
    rows = head.get("done")
    if type(rows) is not list or len(rows) != cases:
        raise wire.WireError(f"a reply must hold {cases} results")
    return [_execution(row, take, limits) for row in rows]


def _execution(row: Any, take: Take, limits: Limits) -> Execution:
    names = {field.name for field in fields(Execution)} - {"stdout", "stderr", "value"}
    if type(row) is not dict or set(row) != names | {"sizes"}:
        raise wire.WireError("a result has other fields than an Execution")
    stdout, stderr, value = (take(size) for size in _sizes(row.pop("sizes"), limits))
    if row["ended"] not in _ENDED or type(row["why"]) is not str:
        raise wire.WireError(f"no such end: {row['ended']!r:.40}")
    for name in ("exit_code", "signal"):
        if row[name] is not None and type(row[name]) is not int:
            raise wire.WireError(f"{name} must be an integer or nothing")
    if any(type(row[name]) is not float or not row[name] >= 0 for name in _NUMBERS):
        raise wire.WireError(f"{', '.join(_NUMBERS)} must be floats from 0 on")
    try:
        row["value"] = wire.decode(value, _value_cap(limits))
    except wire.WireError as failure:  # the program's own doing, in the bytes that are its own
        row |= {"ended": "protocol", "value": None, "why": str(failure)}
    return Execution(stdout=stdout, stderr=stderr, **row)


def _sizes(sizes: Any, limits: Limits) -> list[int]:
    caps = (limits.output_bytes, limits.error_bytes, _value_cap(limits))
    if type(sizes) is not list or [type(size) for size in sizes] != [int] * len(caps):
        raise wire.WireError(f"a result must have {len(caps)} sizes")
    if any(not 0 <= size <= cap for size, cap in zip(sizes, caps, strict=True)):
        raise wire.WireError(f"sizes {sizes} exceed {caps}")
    return sizes


def _value_cap(limits: Limits) -> int:
    return _VALUE_FACTOR * (limits.output_bytes + HEAD_BYTES)
