"""The program, answering one question after the other; started again with all of them each time.

Nothing here is out of the program's reach, and nothing needs to be: it can only give answers.
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

from verifiers.split.proxies import OPERATORS, ORDERINGS, PROXIES, take
from verifiers.split.talk import Leave, Message, Talk


def replay(source: str, needed: Sequence[str], heard: Sequence[Message]) -> list[Any]:
    """What the program says to the last question; see Talk.told.

    Raises what the program raises when it is loaded, NameError when it lacks a needed name.
    """
    _be_the_same_each_time()
    program = types.ModuleType("solution")
    sys.modules["solution"] = program
    exec(compile(source, "solution.py", "exec", dont_inherit=True), program.__dict__)
    for name in needed:
        if name not in program.__dict__ and not _is_method(program, name):
            raise NameError(f"the program defines no {name!r}")
    talk = Talk(heard, lambda operation, args: _perform(program, operation, args), PROXIES)
    with suppress(Leave):
        while True:
            talk.answer(talk.hear())
    return talk.told()


def _be_the_same_each_time() -> None:
    """Chance is no part of what is replayed. For programs that want it so: they may undo it."""
    chance = random.Random(0)
    os.urandom = chance.randbytes
    random._urandom = chance.randbytes  # pyright: ignore[reportAttributeAccessIssue]
    random.seed(0)


def _named(program: types.ModuleType, name: str) -> Any:
    """What the program calls so, or a method of its class Solution."""
    if name in program.__dict__:
        return program.__dict__[name]
    return getattr(program.__dict__["Solution"](), name)


def _is_method(program: types.ModuleType, name: str) -> bool:
    return "Solution" in program.__dict__ and hasattr(program.__dict__["Solution"], name)


def _perform(program: types.ModuleType, asked: str, args: Sequence[Any]) -> Any:
    if asked == "function":
        name, given, named = args
        return _named(program, name)(*given, **named)
    if asked == "name":
        found = args[0] in program.__dict__
        return found, program.__dict__.get(args[0])
    return _OPERATIONS[asked](*args)


def _call(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return target(*args, **kwargs)


def _method(target: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return getattr(target, name)(*args, **kwargs)


def _round(value: Any, digits: int | None) -> Any:
    return round(value) if digits is None else round(value, digits)


def _exit(target: Any, failure: BaseException | None) -> Any:
    return type(target).__exit__(target, type(failure) if failure else None, failure, None)


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
