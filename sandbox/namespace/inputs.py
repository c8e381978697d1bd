"""What a slot hands to its zygote: an account, and the work of one execution."""

import marshal

from sandbox.executor import Call, Given, Stdin

_MARSHAL_VERSION = 4
_HOST_IDS = 1_000_000_000  # far above any account: one per slot, so that nothing is shared
_SLOTS_TO_A_PROCESS = 256


def host_id(own_map: str, pid: int, number: int) -> int:
    """An account of the host's that nobody has, for slot `number` of process `pid`.

    `own_map` is our /proc/self/uid_map: in a container we must stay among the ids it has.
    """
    ranges = [[int(word) for word in line.split()] for line in own_map.splitlines()]
    first, _, count = max(ranges, key=lambda one: one[2])
    if first + count > 2 * _HOST_IDS + _SLOTS_TO_A_PROCESS:
        own = pid * _SLOTS_TO_A_PROCESS % _HOST_IDS
        return _HOST_IDS + own + number % _SLOTS_TO_A_PROCESS
    return first + count - 1 - number % max(1, count // 2)


def arguments(given: Given) -> bytes:
    """What a function is called with. Raises ValueError for what is not plain data."""
    call = given if isinstance(given, Call) else Call(function="")
    try:
        return marshal.dumps((list(call.args), dict(call.kwargs)), _MARSHAL_VERSION)
    except ValueError as failure:
        raise ValueError(
            f"arguments of {call.function!r} are not plain data: {failure}"
        ) from failure


def payload(
    source: str, given: Given, packed: bytes, *, compiled: bytes = b"", share: bool = False
) -> bytes:
    """What the child reads; `packed` by `arguments`.

    `share`: the child shall hand its compiled code out. `compiled`: what an earlier one handed out.
    """
    function = given.function if isinstance(given, Call) else None
    parts = ("" if compiled else source, compiled, share, function or None, packed)
    return marshal.dumps(parts, _MARSHAL_VERSION)


def standard_input(given: Given) -> bytes:
    return given.data if isinstance(given, Stdin) else b""
