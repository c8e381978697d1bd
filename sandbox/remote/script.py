"""A call as a script for any Python, and its value parsed from what the script printed.

The mark around the value is random per call and separates it from the program's own output. It is
no secret from the program: a forged frame is a wrong answer at worst, which is compared like any.
"""

import base64
import marshal
import secrets
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from veriloop.sandbox import wire
from veriloop.sandbox.executor import Call, Program
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.remote import caller
from veriloop.sandbox.result import Execution

_MARSHAL_VERSION = 4  # every Python since 3.4 reads it
_UNDECODED = b"[DecodeError]"  # SandboxFusion's word for output that is no UTF-8
_SCRIPT = """import types
def load(name, source):
    module = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
    return module
load("caller", {caller}).main(
    {payload}, {mark}, load("veriloop.sandbox.wire", {wire}).encode, {length_bytes}
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Source to send, and the mark around the value in its output."""

    source: str
    mark: str


def call_script(program: Program, call: Call) -> Script:
    """Raises ValueError for arguments that are not plain data."""
    parts = (program.source, call.function, list(call.args), dict(call.kwargs))
    try:
        payload = marshal.dumps(parts, _MARSHAL_VERSION)
    except ValueError as failure:
        raise ValueError(
            f"arguments of {call.function!r} are not plain data: {failure}"
        ) from failure
    mark = f"={secrets.token_hex(16)}="
    source = _SCRIPT.format(
        payload=repr(base64.b64encode(payload).decode()),
        mark=repr(mark),
        caller=ascii(_source(str(caller.__file__))),
        wire=ascii(_source(str(wire.__file__))),
        length_bytes=wire.LENGTH_BYTES,
    )
    return Script(source=source, mark=mark)


@cache
def _source(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


Frame = Literal["never began", "no value", "one value", "several values"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutput:
    """The output of a call's script, split at the marks."""

    frame: Frame
    stdout: bytes  # of the program alone
    body: bytes = b""  # of the value: a frame of `sandbox/wire.py` without its length


def split_output(stdout: bytes, mark: str) -> CallOutput:
    """Separate the program's own output from the value."""
    opening = f"{mark}\n".encode()
    if not stdout.startswith(opening):
        return CallOutput(frame="never began", stdout=stdout)
    rest = stdout.removeprefix(opening)
    parts = rest.split(mark.encode())
    if len(parts) == 1:
        return CallOutput(frame="no value", stdout=rest)
    if len(parts) != 3:
        return CallOutput(frame="several values", stdout=rest)
    before, body, after = parts
    own = before.removesuffix(b"\n") + after.removeprefix(b"\n")
    return CallOutput(frame="one value", stdout=own, body=body)


def with_value(execution: Execution, mark: str, limits: Limits) -> Execution | None:
    """The execution of the call that the script made; None when the script never began.

    A script that was killed before it could begin is returned as it ended.
    """
    output = split_output(execution.stdout, mark)
    if output.frame == "never began":
        if execution.ended == "ok" and execution.stdout.startswith(_UNDECODED):
            return replace(execution, ended="protocol", why="what the call printed is no UTF-8")
        return None if execution.ended in ("ok", "error") else execution
    call = replace(execution, stdout=output.stdout)
    if execution.ended != "ok":
        return call
    if output.frame != "one value":
        return replace(call, ended="protocol", why=f"{output.frame} came back")
    frame = len(output.body).to_bytes(wire.LENGTH_BYTES, "big") + output.body
    try:
        return replace(call, value=wire.decode(frame, limits.output_bytes))
    except wire.WireError as failure:
        return replace(call, ended="protocol", why=str(failure))
