"""Messages between the host and the server in a container, as bytes.

The server trusts the host: a request is 8 bytes of length and a marshalled tuple. The host does
not trust the server: a reply is one frame of `sandbox.wire`, whose sizes are checked before the
bytes that follow it are read.
"""

import marshal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

from veriloop.sandbox import wire
from veriloop.sandbox.executor import Call, Dialogue, Invocation, Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.result import Ended, Execution

Take = Callable[[int], bytes]  # reads exactly this many bytes

LENGTH_BYTES = wire.LENGTH_BYTES
HEAD_BYTES = 1 << 16  # of a reply's frame, per case
_VALUE_FACTOR = 4  # a re-encoded value may be longer than the original frame
_MARSHAL_VERSION = 4  # readable by every Python from 3.4 on, whichever the container has
_ENDED = get_args(Ended)
_NUMBERS = ("cpu_s", "wall_s", "waited_s", "peak_mb")
_NOT_IN_ROW = ("stdout", "stderr", "value", "peer")  # sent apart
_ROW_FIELDS = [f.name for f in fields(Execution) if f.name not in _NOT_IN_ROW]
_REFUSALS = ("ValueError", "SandboxUnavailableError")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that the executor in the container refused."""

    kind: str
    text: str


def request(parts: tuple[Any, ...]) -> bytes:
    """A request as bytes. Raises ValueError for values that are not plain data."""
    body = marshal.dumps(parts, _MARSHAL_VERSION)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def read_request(take: Take) -> tuple[Any, ...]:
    size = int.from_bytes(take(LENGTH_BYTES), "big")
    return marshal.loads(take(size))


def run_request(program: Program, invocations: Sequence[Invocation], limits: Limits) -> bytes:
    """Raises ValueError naming the function whose arguments are not plain data."""
    code = _code(program)
    inputs = [_input(case) for case in invocations]
    return request((code, inputs, [getattr(limits, name) for name in Limits.__slots__]))


def _code(program: Program) -> tuple[Any, ...]:
    return program.source, program.language, tuple(program.preload)


def _input(invocation: Invocation) -> bytes | tuple[Any, ...]:
    if isinstance(invocation, Stdin):
        return bytes(invocation.data)
    if isinstance(invocation, Dialogue):
        return _input(invocation.call), _code(invocation.peer), _input(invocation.peer_call)
    parts = (invocation.function, list(invocation.args), dict(invocation.kwargs))
    try:
        marshal.dumps(parts, _MARSHAL_VERSION)
    except ValueError as error:
        raise ValueError(
            f"arguments of {invocation.function!r} are not plain data: {error}"
        ) from error
    return parts


def run_parts(parts: tuple[Any, ...]) -> tuple[Program, list[Invocation], Limits]:
    """The server's side of `run_request`."""
    code, inputs, numbers = parts
    limits = Limits(**dict(zip(Limits.__slots__, numbers, strict=True)))
    return _program(code), [_invocation(case) for case in inputs], limits


def _program(code: tuple[Any, ...]) -> Program:
    source, language, preload = code
    return Program(source=source, language=language, preload=preload)


def _invocation(case: bytes | tuple[Any, ...]) -> Invocation:
    match case:
        case bytes():
            return Stdin(data=case)
        case tuple() as call, peer, peer_call:
            return Dialogue(call=_call(call), peer=_program(peer), peer_call=_call(peer_call))
    return _call(case)


def _call(parts: tuple[Any, ...]) -> Call:
    function, args, kwargs = parts
    return Call(function=function, args=args, kwargs=kwargs)


def reply(executions: Sequence[Execution], limits: Limits) -> bytes:
    """The server's answer to `run_request`."""
    rows, parts = list[dict[str, Any]](), list[bytes]()
    with_peers = (side for one in executions for side in (one, one.peer) if side is not None)
    for execution in with_peers:
        row, row_parts = _row(execution, limits)
        rows.append(row)
        parts += row_parts
    return b"".join([wire.encode({"done": rows}), *parts])


def _row(execution: Execution, limits: Limits) -> tuple[dict[str, Any], list[bytes]]:
    """The fields of an execution without the binary ones, and these."""
    row = {name: getattr(execution, name) for name in _ROW_FIELDS}
    value = wire.encode(execution.value)
    if len(value) > _value_cap(limits):
        value = wire.encode(None)
        row |= {"ended": "protocol", "why": "the encoded value is too long"}
    parts = [execution.stdout, execution.stderr, value]
    return row | {"sizes": [len(part) for part in parts]}, parts


def refusal(error: Exception) -> bytes:
    """The server's answer when its executor refuses a request."""
    return wire.encode({"raised": type(error).__name__, "text": str(error)})


def hello(facts: dict[str, Any]) -> bytes:
    """The server's greeting."""
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


def read_reply(take: Take, cases: int, limits: Limits) -> list[Execution] | Refusal:
    """The server's reply to `run_request`. Raises WireError for anything malformed.

    `cases`: from `count_runs`. The peer of a dialogue follows it.
    """
    head = read_head(take, cases * HEAD_BYTES)
    if set(head) == {"raised", "text"}:
        if head["raised"] not in _REFUSALS or type(head["text"]) is not str:
            raise wire.WireError("an unknown refusal")
        return Refusal(kind=head["raised"], text=head["text"])
    rows = head.get("done")
    if type(rows) is not list or len(rows) != cases:
        raise wire.WireError(f"a reply must hold {cases} results")
    return [_execution(row, take, limits) for row in rows]


def join_peers(
    invocations: Sequence[Invocation], executions: Sequence[Execution]
) -> list[Execution]:
    """One execution for each input, from one for each run."""
    runs = iter(executions)
    return [
        replace(next(runs), peer=next(runs)) if isinstance(case, Dialogue) else next(runs)
        for case in invocations
    ]


def count_runs(invocations: Sequence[Invocation]) -> int:
    """The number of executions, of which a dialogue has two."""
    return len(invocations) + sum(isinstance(case, Dialogue) for case in invocations)


def _execution(row: Any, take: Take, limits: Limits) -> Execution:
    if type(row) is not dict or set(row) != {*_ROW_FIELDS, "sizes"}:
        raise wire.WireError("a result has other fields than an Execution")
    stdout, stderr, value = (take(size) for size in _sizes(row.pop("sizes"), limits))
    if row["ended"] not in _ENDED or type(row["why"]) is not str:
        raise wire.WireError(f"unknown `ended`: {row['ended']!r:.40}")
    for name in ("exit_code", "signal"):
        if row[name] is not None and type(row[name]) is not int:
            raise wire.WireError(f"{name} must be an integer or None")
    if any(type(row[name]) is not float or not row[name] >= 0 for name in _NUMBERS):
        raise wire.WireError(f"{', '.join(_NUMBERS)} must be non-negative floats")
    try:
        row["value"] = wire.decode(value, _value_cap(limits))
    except wire.WireError as error:  # these bytes come from the program
        row |= {"ended": "protocol", "value": None, "why": str(error)}
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
