"""One side of the session between tests and program: requests, replies, and what they refer to.

The messages of the other side come from an iterator. Live, it waits for the next one. Where
processes cannot be joined it ends: then the run ends with the request as its last message, and the
side is restarted with all messages once the reply is known. Objects other than plain data stay on
the side that created them; the other side gets a proxy. Runs inside the sandboxes.
"""

import builtins
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from veriloop.verifiers.code.split.values import Item, MalformedError, Packed, pack, unpack

Message = list[Any]

PLAIN_BUILTINS = (  # shared by name; none of them gives access to anything else
    "int", "float", "complex", "bool", "str", "bytes", "list", "tuple", "dict", "set", "frozenset",
    "object", "len", "abs", "sum", "min", "max", "sorted", "ord", "chr", "repr", "round", "all",
    "any", "divmod", "pow", "bin", "hex",
)  # fmt: skip
OBSERVING = frozenset({  # read-only operations: cached until an operation that may change state
    "getattr", "getitem", "len", "items", "bool", "hash", "str", "repr", "eq", "ne", "isinstance",
    "name",
})  # fmt: skip
_SHARED = {name: getattr(builtins, name) for name in PLAIN_BUILTINS} | {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException)
}
_SHARED_NAMES = {id(value): name for name, value in _SHARED.items()}
_HEAP_TYPE = 1 << 9  # flag of types that are defined in Python: Py_TPFLAGS_HEAPTYPE
_ENDS_LOOPS = (StopIteration, StopAsyncIteration)  # would silently end a loop of the caller


class Suspend(BaseException):
    """This side cannot continue before the other side's next message."""


class Session:
    """The messages of one side, and the objects that each side refers to on the other.

    `perform(operation, args)` carries out a request of the other side.
    """

    def __init__(
        self,
        received: Iterable[Message],
        perform: Callable[[str, Sequence[Any]], Any],
        proxies: Mapping[str, Callable[..., Any]],
    ) -> None:
        self.sent: list[Message] = []
        self.closed = False  # no more messages are sent, even if code still runs
        self.answered = False  # whether the other side has spoken
        self.asked: set[str] = set()  # operations that were requested
        self.malformed = ""  # why a message of the other side is invalid
        self._received = iter(received)
        self._perform = perform
        self._proxies = proxies
        self._exports: list[Any] = []  # objects of this side, by key
        self._export_keys: dict[int, int] = {}  # id of an exported object -> its key
        self._imports: dict[int, Any] = {}  # key of an object of the other side -> its proxy
        self._import_keys: dict[int, int] = {}  # id of a proxy -> key
        self._twins: dict[tuple[int, type], Any] = {}  # further proxies of the same objects
        self._observed: dict[tuple[Any, ...], Any] = {}  # cached answers of OBSERVING operations

    def receive(self) -> Message:
        """The next message of the other side. Raises Suspend if it has not arrived."""
        message = None if self.closed else next(self._received, None)
        if message is None:
            self.close()
        self.answered = True
        return message

    def send(self, message: Message) -> None:
        """Append a message of this side. Raises Suspend if the session is closed."""
        if self.closed:
            raise Suspend
        self.sent.append(message)

    def close(self, malformed: str = "") -> NoReturn:
        """Raise Suspend, now and on all further messages, even if code catches it."""
        self.closed = True
        self.malformed = self.malformed or malformed
        raise Suspend

    def turn(self) -> list[Any]:
        """[number of messages sent, digest of all but the last, the last message]."""
        return [len(self.sent), digest(self.sent[:-1]), self.sent[-1] if self.sent else []]

    def ask(self, operation: str, *args: Any) -> Any:
        """The result of an operation on the other side, whose requests are answered meanwhile.

        Raises the exception that the operation raises.
        """
        if operation not in OBSERVING:
            self._observed.clear()
            return self._ask(operation, args)
        # The cache entry keeps a reference to `args`, so that their ids are not reused.
        question = (operation, *((type(arg), arg) if _is_atom(arg) else id(arg) for arg in args))
        if question not in self._observed:
            self._observed[question] = args, self._ask(operation, args)
        return self._observed[question][1]

    def _ask(self, operation: str, args: Sequence[Any]) -> Any:
        packed, containers = pack(args, {}, self._entry)
        self.asked.add(operation)
        self.send(["ask", operation, packed])
        reply = self.receive()
        while isinstance(reply, list) and reply[:1] == ["ask"]:
            self.answer(reply)
            reply = self.receive()
        match reply:
            case ["returned" | "raised" as ended, packed_result]:
                result = self._unpacked(packed_result, containers)[0][0]
            case _:
                self.close("a reply must be returned or raised")
        if ended == "returned":
            return result
        if not isinstance(result, BaseException):
            self.close("the raised value is not an exception")
        if isinstance(result, _ENDS_LOOPS) and operation != "next":
            raise RuntimeError(f"{operation} raised {type(result).__name__}") from result
        raise result

    def answer(self, request: Message) -> None:
        """Carry out a request of the other side and send the result."""
        match request:
            case ["ask", str() as operation, packed]:
                args, containers = self._unpacked(packed, {})
            case _:
                self.close("a request must name an operation")
        try:
            ended, result = "returned", self._perform(operation, args)
        except Suspend:
            raise
        except BaseException as error:  # noqa: BLE001  the other side handles it
            ended, result = "raised", error
        self._observed.clear()  # the operation may have changed any object
        keys = {id(container): key for key, container in containers.items()}
        self.send([ended, pack([result, *containers.values()], keys, self._entry)[0]])

    def is_remote(self, value: object) -> bool:
        """Whether the value is a proxy or an exception of the other side."""
        return id(value) in self._import_keys

    def twin(self, proxy: object, kind: type, make: Callable[["Session"], Any]) -> Any:
        """The proxy of this kind for the same object, created by `make` at the first call."""
        key = self._import_keys[id(proxy)]
        if (key, kind) not in self._twins:
            self._twins[key, kind] = make(self)
            self._import_keys[id(self._twins[key, kind])] = key
        return self._twins[key, kind]

    def key_of(self, value: object) -> int:
        """The key of an exported object; the same in every run."""
        return self._export_keys[id(value)]

    def _unpacked(self, packed: Packed, known: Mapping[int, Any]) -> tuple[list[Any], Any]:
        try:
            return unpack(packed, known, self._value)
        except MalformedError as error:
            self.close(str(error))

    def _entry(self, value: Any, item: Callable[[Any], Item]) -> list[Any]:
        if id(value) in _SHARED_NAMES:
            return ["shared", None, _SHARED_NAMES[id(value)]]
        if id(value) in self._import_keys:
            return ["yours", None, self._import_keys[id(value)]]
        key = self._export_keys.setdefault(id(value), len(self._exports))
        if key == len(self._exports):
            self._exports.append(value)
        if isinstance(value, BaseException):
            return ["error", key, item(type(value)), item(tuple(value.args))]
        if isinstance(value, type) and issubclass(value, BaseException):
            bases = (base for base in value.__bases__ if issubclass(base, BaseException))
            return ["class", key, value.__name__, *map(item, bases)]
        return [_proxy_kind(value), key]

    def _value(self, entry: Sequence[Any], built: Callable[[Item], Any]) -> Any:
        kind, key, *parts = entry
        if kind == "shared":
            return _SHARED[parts[0]]
        if kind == "yours":
            return self._exports[parts[0]]
        if key not in self._imports:
            values = [built(part) for part in parts]
            proxy = self._proxies[kind](self, *values)
            self._imports[key] = proxy
            self._import_keys[id(proxy)] = key
        return self._imports[key]


def _is_atom(value: Any) -> bool:
    return value is None or type(value) in (bool, int, str)


def _proxy_kind(value: Any) -> str:
    """The kind of proxy for the value; it affects behaviour, not security."""
    kind = type(value)
    if hasattr(kind, "__next__"):
        return "stream" if kind.__flags__ & _HEAP_TYPE else "iterator"
    return "callable" if callable(value) else "object"


def digest(messages: Sequence[Message]) -> str:
    """SHA-256 of the messages; equal messages have equal digests in every process."""
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
    else:  # hexadecimal, since the decimal conversion of long integers is limited
        yield f"{type(node).__name__}:{hex(node) if type(node) is int else repr(node)},"
