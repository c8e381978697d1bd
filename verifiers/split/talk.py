"""One side of the conversation between tests and program, as a function of what it has heard.

A side never waits: where it needs an answer that is not there yet, the run ends with the question
as its last word, and the side starts again once the answer is known. What is no plain data stays
where it was made; the other side holds a proxy. Runs inside the sandboxes.
"""

import builtins
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from verifiers.split.values import Item, MalformedError, Packed, pack, unpack

Message = list[Any]

PLAIN_BUILTINS = (  # what both sides have; nothing that reaches further
    "int", "float", "complex", "bool", "str", "bytes", "list", "tuple", "dict", "set", "frozenset",
    "object", "len", "abs", "sum", "min", "max", "sorted", "ord", "chr", "repr", "round", "all",
    "any", "divmod", "pow", "bin", "hex",
)  # fmt: skip
OBSERVING = frozenset({  # questions that change nothing: one answer holds until something might
    "getattr", "getitem", "len", "items", "bool", "hash", "str", "repr", "eq", "ne", "isinstance",
    "name",
})  # fmt: skip
_SHARED = {name: getattr(builtins, name) for name in PLAIN_BUILTINS} | {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException)
}
_SHARED_NAMES = {id(value): name for name, value in _SHARED.items()}
_MADE_IN_PYTHON = 1 << 9  # a type flag
_ENDS_LOOPS = (StopIteration, StopAsyncIteration)  # unnoticed by whoever loops: no answer may


class Leave(BaseException):
    """The other side has to speak first."""


class Talk:
    """What this side has heard and said, and which objects each side holds of the other.

    `perform(operation, args)` does what the other side asks for.
    """

    def __init__(
        self,
        heard: Sequence[Message],
        perform: Callable[[str, Sequence[Any]], Any],
        proxies: Mapping[str, Callable[..., Any]],
    ) -> None:
        self.said: list[Message] = []
        self.ended = False  # nothing more is said, whatever still runs
        self.malformed = ""  # what the other side said that it could not
        self._heard = iter(heard)
        self._perform = perform
        self._proxies = proxies
        self._ours: list[Any] = []
        self._ours_places: dict[int, int] = {}
        self._theirs: dict[int, Any] = {}
        self._theirs_places: dict[int, int] = {}
        self._twins: dict[int, Any] = {}
        self._observed: dict[tuple[Any, ...], Any] = {}

    def hear(self) -> Message:
        """The next message of the other side. Raises Leave when there is none yet."""
        message = None if self.ended else next(self._heard, None)
        if message is None:
            self.leave()
        return message

    def say(self, message: Message) -> None:
        """Raises Leave once this side has ended."""
        if self.ended:
            raise Leave
        self.said.append(message)

    def leave(self, malformed: str = "") -> NoReturn:
        """Leave for good: whoever catches it says nothing more either. Raises Leave."""
        self.ended = True
        self.malformed = self.malformed or malformed
        raise Leave

    def told(self) -> list[Any]:
        """How much was said, the digest of all but the last message, and the last."""
        return [len(self.said), digest(self.said[:-1]), self.said[-1] if self.said else []]

    def ask(self, operation: str, *args: Any) -> Any:
        """Let the other side do something, and meanwhile do what it asks. Raises what it raises."""
        if operation not in OBSERVING:
            self._observed.clear()
            return self._ask(operation, args)
        asked = (operation, *((type(one), one) if _is_atom(one) else id(one) for one in args))
        if asked not in self._observed:
            self._observed[asked] = args, self._ask(operation, args)  # args keep their ids
        return self._observed[asked][1]

    def _ask(self, operation: str, args: Sequence[Any]) -> Any:
        packed, containers = pack(args, {}, self._entry)
        self.say(["ask", operation, packed])
        reply = self.hear()
        while isinstance(reply, list) and reply[:1] == ["ask"]:
            self.answer(reply)
            reply = self.hear()
        match reply:
            case ["returned" | "raised" as ended, answered]:
                result = self._unpacked(answered, containers)[0][0]
            case _:
                self.leave("no such answer")
        if ended == "returned":
            return result
        if not isinstance(result, BaseException):
            self.leave("what was raised is no exception")
        if isinstance(result, _ENDS_LOOPS) and operation != "next":
            raise RuntimeError(f"{operation} raised {type(result).__name__}") from result
        raise result

    def answer(self, request: Message) -> None:
        """Do what the other side asks, and say what came of it."""
        match request:
            case ["ask", str() as operation, packed]:
                args, containers = self._unpacked(packed, {})
            case _:
                self.leave("no such question")
        try:
            ended, result = "returned", self._perform(operation, args)
        except Leave:
            raise
        except BaseException as failure:  # noqa: BLE001  the other side's to handle
            ended, result = "raised", failure
        self._observed.clear()  # whatever ran may have changed anything
        keys = {id(container): place for place, container in containers.items()}
        self.say([ended, pack([result, *containers.values()], keys, self._entry)[0]])

    def holds(self, value: object) -> bool:
        """Whether this is a proxy, or an exception, that the other side made."""
        return id(value) in self._theirs_places

    def twin(self, proxy: object, make: Callable[["Talk"], Any]) -> Any:
        """Another proxy of the same object, always the same one."""
        place = self._theirs_places[id(proxy)]
        if place not in self._twins:
            self._twins[place] = make(self)
            self._theirs_places[id(self._twins[place])] = place
        return self._twins[place]

    def place_of(self, value: object) -> int:
        """Where we keep what the other side holds of ours; the same in every run."""
        return self._ours_places[id(value)]

    def _unpacked(self, packed: Packed, known: Mapping[int, Any]) -> tuple[list[Any], Any]:
        try:
            return unpack(packed, known, self._value)
        except MalformedError as failure:
            self.leave(str(failure))

    def _entry(self, value: Any, item: Callable[[Any], Item]) -> list[Any]:
        if id(value) in _SHARED_NAMES:
            return ["shared", None, _SHARED_NAMES[id(value)]]
        if id(value) in self._theirs_places:
            return ["yours", None, self._theirs_places[id(value)]]
        place = self._ours_places.setdefault(id(value), len(self._ours))
        if place == len(self._ours):
            self._ours.append(value)
        if isinstance(value, BaseException):
            return ["error", place, item(type(value)), item(tuple(value.args))]
        if isinstance(value, type) and issubclass(value, BaseException):
            bases = (one for one in value.__bases__ if issubclass(one, BaseException))
            return ["class", place, value.__name__, *map(item, bases)]
        return [_sort(value), place]

    def _value(self, entry: Sequence[Any], built: Callable[[Item], Any]) -> Any:
        kind, place, *parts = entry
        if kind == "shared":
            return _SHARED[parts[0]]
        if kind == "yours":
            return self._ours[parts[0]]
        if place not in self._theirs:
            values = [built(part) for part in parts]
            made = self._proxies[kind](self, *values)
            self._theirs[place] = made
            self._theirs_places[id(made)] = place
        return self._theirs[place]


def _is_atom(value: Any) -> bool:
    return value is None or type(value) in (bool, int, str)


def _sort(value: Any) -> str:
    """How a proxy of it should behave; only manners depend on it."""
    kind = type(value)
    if hasattr(kind, "__next__"):
        return "stream" if kind.__flags__ & _MADE_IN_PYTHON else "iterator"
    return "callable" if callable(value) else "object"


def digest(messages: Sequence[Message]) -> str:
    """The same for the same messages, however often a program is started again."""
    state = hashlib.sha256()
    for piece in _pieces(messages):
        state.update(piece.encode("utf-8", "backslashreplace"))
    return state.hexdigest()


def _pieces(node: Any) -> Iterator[str]:
    if isinstance(node, list | tuple):
        yield "["
        for part in node:
            yield from _pieces(part)
        yield "]"
    else:  # hexadecimal, as very long numbers have no decimal spelling
        yield f"{type(node).__name__}:{hex(node) if type(node) is int else repr(node)},"
