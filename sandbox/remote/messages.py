"""The two records of `POST /run_code`, in SandboxFusion's format with two optional additions.

`limits` in the request and `measured` in the response are ours: a server that knows nothing of them
ignores the one and leaves out the other.
"""

import base64
import binascii
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from sandbox.limits import Counted, Limits
from sandbox.remote.fields import (
    FieldError,
    integer,
    number,
    one_of,
    only,
    or_null,
    record,
    text,
    text_or_null,
    wrong,
)
from sandbox.result import Ended

MAX_SECONDS = 3600.0
_MAX_COUNT = (1 << 31) - 1  # of bytes, files, processes, megabytes

Status = Literal["Success", "Failed", "SandboxError"]
RanStatus = Literal["Finished", "Error", "TimeLimitExceeded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One program and its input. Times in seconds."""

    code: str
    language: str
    stdin: str = ""
    compile_timeout: float = 10.0
    run_timeout: float = 10.0
    memory_limit_MB: int = -1  # 0 or less: the server's own limit
    limits: Limits | None = None  # an addition of ours: all that one run may use

    def flat(self) -> dict[str, Any]:
        """As JSON data."""
        limits = {} if self.limits is None else {"limits": asdict(self.limits)}
        names = [name for name in self.__slots__ if name != "limits"]
        values = {name: getattr(self, name) for name in names}
        return {**values, "files": {}, "fetch_files": [], **limits}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How one command of the server ended: the compiler, or the program."""

    status: RanStatus
    execution_time: float | None = None  # seconds on the clock
    return_code: int | None = None
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An addition of ours: what a server knows that measures more than SandboxFusion does."""

    ended: Ended
    exit_code: int | None
    signal: int | None
    cpu_s: float
    waited_s: float
    peak_mb: float
    why: str
    stdout_base64: str | None = None  # where the stream is no UTF-8; else the text is exact
    stderr_base64: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReply:
    """What came of a RunRequest."""

    status: Status
    message: str = ""
    compile_result: Ran | None = None
    run_result: Ran | None = None
    measured: Measured | None = None

    def flat(self) -> dict[str, Any]:
        """As JSON data."""
        data = asdict(self)
        measured = data.pop("measured")
        return {**data, "files": {}, **({} if measured is None else {"measured": measured})}


def read_request(data: Any) -> RunRequest:
    """Check a request. Raises FieldError naming the field."""
    only("the request", data, _REQUEST)
    found = record("the request", data, _REQUEST, ("code", "language"))
    return RunRequest(**{name: found[name] for name in RunRequest.__slots__ if name in found})


def read_reply(data: Any) -> RunReply:
    """Check a response; what is in it besides the known fields is ignored. Raises FieldError."""
    return RunReply(**record("the response", data, _REPLY, ("status", "run_result")))


def _ran(name: str, data: Any) -> Ran | None:
    return None if data is None else Ran(**record(name, data, _RAN, ("status",)))


def _measured(name: str, data: Any) -> Measured | None:
    if data is None:
        return None
    must = [field.name for field in fields(Measured) if not field.name.endswith("_base64")]
    return Measured(**record(name, data, _MEASURED, must))


def _limits(name: str, data: Any) -> Limits | None:
    """Every field of Limits may be left out, none may be unknown."""
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
    except ValueError as failure:  # of Limits itself, which names its field
        raise FieldError(str(failure)) from failure


def _seconds(name: str, value: Any) -> float:
    found = number(0, MAX_SECONDS)(name, value)
    if not found:
        raise FieldError(wrong(name, value, "more than 0 seconds"))
    return found


def _nothing(name: str, value: Any) -> None:
    """What the API has and we do not: refused unless empty, never left out silently."""
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
_RAN = {
    "status": one_of(*get_args(RanStatus)),
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
    "compile_result": _ran,
    "run_result": _ran,
    "measured": _measured,
}
