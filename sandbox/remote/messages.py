"""Request and response of `POST /run_code`: SandboxFusion's format and two optional extensions.

The extensions are `limits` in the request and `measured` in the response; a stock server ignores
the first and omits the second.
"""

import base64
import binascii
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from veriloop.sandbox.limits import Counted, Limits
from veriloop.sandbox.remote.fields import (
    FieldError,
    integer,
    load,
    number,
    one_of,
    only,
    or_null,
    record,
    text,
    text_or_null,
    wrong,
)
from veriloop.sandbox.result import Ended

MAX_SECONDS = 3600.0
_MAX_COUNT = (1 << 31) - 1  # of bytes, files, processes, megabytes

Status = Literal["Success", "Failed", "SandboxError"]
CommandStatus = Literal["Finished", "Error", "TimeLimitExceeded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One program and its input. Times in seconds."""

    code: str
    language: str
    stdin: str = ""
    compile_timeout: float = 10.0
    run_timeout: float = 10.0
    memory_limit_MB: int = -1  # 0 or less: the server's own limit
    limits: Limits | None = None  # extension: every limit of the run

    def flat(self) -> dict[str, Any]:
        """As JSON data."""
        limits = {} if self.limits is None else {"limits": asdict(self.limits)}
        names = [name for name in self.__slots__ if name != "limits"]
        values = {name: getattr(self, name) for name in names}
        return {**values, "files": {}, "fetch_files": [], **limits}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How one command of the server ended: the compiler's or the program's."""

    status: CommandStatus
    execution_time: float | None = None  # seconds on the clock
    return_code: int | None = None
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Extension: what this project's service measures beyond SandboxFusion."""

    ended: Ended
    exit_code: int | None
    signal: int | None
    cpu_s: float
    waited_s: float
    peak_mb: float
    why: str
    stdout_base64: str | None = None  # only where the stream is not UTF-8
    stderr_base64: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReply:
    """The response to a RunRequest."""

    status: Status
    message: str = ""
    compile_result: CommandResult | None = None
    run_result: CommandResult | None = None
    measured: Measured | None = None

    def flat(self) -> dict[str, Any]:
        """As JSON data."""
        data = asdict(self)
        measured = data.pop("measured")
        return {**data, "files": {}, **({} if measured is None else {"measured": measured})}


def load_request(body: bytes) -> RunRequest:
    """Parse and check a request. Raises FieldError."""
    return read_request(load(body))


def read_request(data: Any) -> RunRequest:
    """Check a request. Raises FieldError naming the field."""
    only("the request", data, _REQUEST)
    values = record("the request", data, _REQUEST, ("code", "language"))
    return RunRequest(**{name: values[name] for name in RunRequest.__slots__ if name in values})


def read_reply(data: Any) -> RunReply:
    """Check a response; unknown fields are ignored. Raises FieldError."""
    return RunReply(**record("the response", data, _REPLY, ("status", "run_result")))


def _result(name: str, data: Any) -> CommandResult | None:
    return None if data is None else CommandResult(**record(name, data, _RESULT, ("status",)))


def _measured(name: str, data: Any) -> Measured | None:
    if data is None:
        return None
    must = [field.name for field in fields(Measured) if not field.name.endswith("_base64")]
    return Measured(**record(name, data, _MEASURED, must))


def _limits(name: str, data: Any) -> Limits | None:
    """Check `limits`: every field is optional, unknown ones are refused."""
    if data is None:
        return None
    checks = {
        field.name: integer(0, _MAX_COUNT) if field.type is int else number(0, MAX_SECONDS)
        for field in fields(Limits)
    }
    checks["wall_s"] = or_null(checks["wall_s"])
    checks["counted"] = one_of(*get_args(Counted))
    only(name, data, checks)
    try:
        return Limits(**record(name, data, checks, ()))
    except FieldError:
        raise
    except ValueError as failure:  # Limits names the field
        raise FieldError(str(failure)) from failure


def _seconds(name: str, value: Any) -> float:
    seconds = number(0, MAX_SECONDS)(name, value)
    if not seconds:
        raise FieldError(wrong(name, value, "more than 0 seconds"))
    return seconds


def _nothing(name: str, value: Any) -> None:
    """Check a field that is not supported: refused unless empty, never ignored silently."""
    if value not in (None, [], {}):
        raise FieldError(wrong(name, value, "empty: no files and no arguments here"))


def _base64(name: str, value: Any) -> str:
    try:
        base64.b64decode(text(name, value), validate=True)
    except binascii.Error:
        raise FieldError(wrong(name, value, "base64")) from None
    return value


_REQUEST = {
    "code": text,
    "language": text,
    "stdin": text_or_null,
    "compile_timeout": _seconds,
    "run_timeout": _seconds,
    "memory_limit_MB": integer(-_MAX_COUNT, _MAX_COUNT),
    "files": _nothing,
    "fetch_files": _nothing,
    "args": _nothing,
    "limits": _limits,
}
_COUNT_SCHEMA = {"type": "integer", "minimum": 0, "maximum": _MAX_COUNT}
_SECONDS_SCHEMA = {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_SECONDS}
_EMPTY_SCHEMA = {"enum": [None, [], {}]}
_LIMITS_SCHEMA: dict[str, Any] = {
    "type": ["object", "null"],
    "additionalProperties": False,
    "properties": {
        field.name: _COUNT_SCHEMA if field.type is int else _SECONDS_SCHEMA
        for field in fields(Limits)
    }
    | {
        "wall_s": _SECONDS_SCHEMA | {"type": ["number", "null"]},
        "counted": {"enum": list(get_args(Counted))},
    },
}
REQUEST_SCHEMA: dict[str, Any] = {  # for OpenAPI, what `read_request` checks
    "type": "object",
    "required": ["code", "language"],
    "additionalProperties": False,
    "properties": {
        "code": {"type": "string"},
        "language": {"type": "string"},
        "stdin": {"type": ["string", "null"]},
        "compile_timeout": _SECONDS_SCHEMA,
        "run_timeout": _SECONDS_SCHEMA,
        "memory_limit_MB": {"type": "integer", "minimum": -_MAX_COUNT, "maximum": _MAX_COUNT},
        "files": _EMPTY_SCHEMA,
        "fetch_files": _EMPTY_SCHEMA,
        "args": _EMPTY_SCHEMA,
        "limits": _LIMITS_SCHEMA,
    },
}
_RESULT = {
    "status": one_of(*get_args(CommandStatus)),
    "execution_time": or_null(number(0, 1e9)),
    "return_code": or_null(integer(-_MAX_COUNT, _MAX_COUNT)),
    "stdout": text_or_null,
    "stderr": text_or_null,
}
_MEASURED = {
    "ended": one_of(*get_args(Ended)),
    "exit_code": or_null(integer(0, 255)),
    "signal": or_null(integer(1, 64)),
    "cpu_s": number(0, 1e9),
    "waited_s": number(0, 1e9),
    "peak_mb": number(0, 1e9),
    "why": text,
    "stdout_base64": or_null(_base64),
    "stderr_base64": or_null(_base64),
}
_REPLY = {
    "status": one_of(*get_args(Status)),
    "message": text_or_null,
    "compile_result": _result,
    "run_result": _result,
    "measured": _measured,
}
