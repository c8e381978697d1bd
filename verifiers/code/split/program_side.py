"""The program's side: answers the requests of the tests.

The program can reach everything in this process; that is safe, since it can only send answers.
"""

import copy
import operator
import os
import random
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from veriloop.verifiers.code.split.channel import Channel, LiveSession
from veriloop.verifiers.code.split.protocol import Message, Session, Suspend
from veriloop.verifiers.code.split.proxies import OPERATORS, ORDERINGS, PROXIES, take

_RECURSION = 1000  # the limit that Python starts with
_FRAMES = 10  # between the functions of this module that load and serve a program, and its own


def replay(source: str, needed: Sequence[str], received: Sequence[Message]) -> list[Any]:
    """The turn in which the program answers the last request; see Session.turn.

    Raises what the program raises when it is loaded, and NameError if it lacks a needed name.
    """
    _seed_randomness()
    _allow_recursion()
    program = _load(source, needed)
    session = Session(received, lambda operation, args: _perform(program, operation, args), PROXIES)
    _answer_all(session)
    return session.turn()


def serve(source: str, needed: Sequence[str], cap: int) -> None:
    """Answer the requests of the tests until they hang up; raises what `replay` raises.

    `cap`: bytes of a message.
    """
    channel = Channel(cap, strict=False)
    random.seed(0)
    _allow_recursion()
    program = _load(source, needed)
    session = LiveSession(
        channel, lambda operation, args: _perform(program, operation, args), PROXIES
    )
    _answer_all(session)


def _allow_recursion() -> None:
    """Let a program call as deep as in plain Python, whatever the number of frames below it."""
    frame, depth = sys._getframe(), 0
    while frame:
        frame, depth = frame.f_back, depth + 1
    sys.setrecursionlimit(_RECURSION + depth + _FRAMES)


def _answer_all(session: Session) -> None:
    with suppress(Suspend):
        while True:
            session.answer(session.receive())


def _load(source: str, needed: Sequence[str]) -> types.ModuleType:
    program = types.ModuleType("solution")
    program.__dict__["__file__"] = "/tmp/solution.py"  # as in other executions; no such file
    sys.modules["solution"] = program
    exec(compile(source, "solution.py", "exec", dont_inherit=True), program.__dict__)
    for name in needed:
        if name not in program.__dict__ and not _is_method(program, name):
            raise NameError(f"the program does not define {name!r}")
    return program


def _seed_randomness() -> None:
    """Make randomness deterministic, since a replayed program must repeat its answers."""
    generator = random.Random(0)
    os.urandom = generator.randbytes
    random._urandom = generator.randbytes  # pyright: ignore[reportAttributeAccessIssue]
    random.seed(0)


def _named(program: types.ModuleType, name: str) -> Any:
    """A global of the program, or else a method of its class Solution."""
    if name in program.__dict__:
        return program.__dict__[name]
    return getattr(program.__dict__["Solution"](), name)


def _is_method(program: types.ModuleType, name: str) -> bool:
    return "Solution" in program.__dict__ and hasattr(program.__dict__["Solution"], name)


def _perform(program: types.ModuleType, operation: str, args: Sequence[Any]) -> Any:
    if operation == "function":
        name, positional, keywords = args
        return _named(program, name)(*positional, **keywords)
    if operation == "name":
        return args[0] in program.__dict__, program.__dict__.get(args[0])
    return _OPERATIONS[operation](*args)


def _call(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return target(*args, **kwargs)


def _method(target: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return getattr(target, name)(*args, **kwargs)


def _round(value: Any, digits: int | None) -> Any:
    return round(value) if digits is None else round(value, digits)


def _exit(target: Any, error: BaseException | None) -> Any:
    return type(target).__exit__(target, type(error) if error else None, error, None)


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "call": _call, "method": _method, "getattr": getattr, "setattr": setattr, "delattr": delattr,
    "items": list, "iter": iter, "next": next, "take": take, "reversed": reversed,
    "len": len, "bool": bool, "hash": hash, "str": str, "repr": repr, "format": format,
    "int": int, "float": float, "complex": complex, "index": operator.index, "round": _round,
    "neg": operator.neg, "pos": operator.pos, "abs": abs, "invert": operator.invert,
    "eq": operator.eq, "ne": operator.ne, "isinstance": isinstance,
    "contains": operator.contains, "getitem": operator.getitem, "setitem": operator.setitem,
    "delitem": operator.delitem, "copy": copy.copy, "deepcopy": copy.deepcopy,
    "enter": lambda target: type(target).__enter__(target), "exit": _exit,
    **{name: getattr(operator, name) for name in ORDERINGS},
    **{name: getattr(operator, f"__{name}__") for name in OPERATORS},
    **{f"i{name}": getattr(operator, f"__i{name}__") for name in OPERATORS},
}  # fmt: skip
