"""A call as a script for any Python, and its value found again in what the script printed.

The mark that frames the value is random per call. It keeps the value apart from what the program
prints and is no secret from it: whoever forges a frame has given an answer, no more.
"""

import base64
import marshal
import secrets
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from sandbox import wire
from sandbox.executor import Call, Program
from sandbox.limits import Limits
from sandbox.remote import caller
from sandbox.result import Execution

_MARSHAL_VERSION = 4  # every Python since 3.4 reads it
_UNDECODED = b"[DecodeError]"  # SandboxFusion's word for output that is no UTF-8
_SCRIPT = """import types
def load(name, source):
    module = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
    return module
load("caller", {caller}).main(
    {payload}, {mark}, load("sandbox.wire", {wire}).encode, {length_bytes}
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Source to be sent, and the mark between which the value comes back."""

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


Found = Literal["never began", "no value", "one value", "several values"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What a call's script wrote, taken apart."""

    found: Found
    stdout: bytes  # of the program alone
    body: bytes = b""  # of the value: a frame of `sandbox/wire.py` without its length


def take_apart(stdout: bytes, mark: str) -> Printed:
    """Tell the program's own output from the value."""
    opening = f"{mark}\n".encode()
    if not stdout.startswith(opening):
        return Printed(found="never began", stdout=stdout)
    rest = stdout.removeprefix(opening)
    parts = rest.split(mark.encode())
    if len(parts) == 1:
        return Printed(found="no value", stdout=rest)
    if len(parts) != 3:
        return Printed(found="several values", stdout=rest)
    before, body, after = parts
    own = before.removesuffix(b"\n") + after.removeprefix(b"\n")
    return Printed(found="one value", stdout=own, body=body)


def with_value(ran: Execution, mark: str, limits: Limits) -> Execution | None:
    """The execution of the call that the script made; None when the script never began.

    A script that was ended before it could begin is none of those: it just ended so.
    """
    printed = take_apart(ran.stdout, mark)
    if printed.found == "never began":
        if ran.ended == "ok" and ran.stdout.startswith(_UNDECODED):
            return replace(ran, ended="protocol", why="what the call printed is no UTF-8")
        return None if ran.ended in ("ok", "error") else ran
    called = replace(ran, stdout=printed.stdout)
    if ran.ended != "ok":
        return called
    if printed.found != "one value":
        return replace(called, ended="protocol", why=f"{printed.found} came back")
    frame = len(printed.body).to_bytes(wire.LENGTH_BYTES, "big") + printed.body
    try:
        return replace(called, value=wire.decode(frame, limits.output_bytes))
    except wire.WireError as failure:
        return replace(called, ended="protocol", why=str(failure))
