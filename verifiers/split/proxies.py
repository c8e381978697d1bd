"""What one side holds of an object that stays on the other: everything it does is a question.

What a program says of its own objects is its word, so it may not pass for plain data: a proxy
equals no data, and one that a function returned meets data in no operator. Its items and
attributes are asked for once, until something may have changed them. Runs inside the sandboxes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from verifiers.split.errors import error, error_class
from verifiers.split.talk import Talk

MAX_TAKEN = 1024  # items of an iterator at once; twice as many each time

ORDERINGS = ("lt", "le", "gt", "ge")
OPERATORS = (
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift",
    "and", "or", "xor",
)  # fmt: skip
_UNARY = ("neg", "pos", "abs", "invert", "int", "float", "complex", "index", "str", "repr")
_OF_DATA = frozenset({  # yes or no to what a test expects: only real text and real sets answer
    "startswith", "endswith", "issubset", "issuperset", "isdisjoint",
})  # fmt: skip


class UnusableError(BaseException):
    """The tests do what cannot be done from another side. No test may catch it."""


class Proxy:
    """An object of the other side that a function returned or an attribute holds."""

    __slots__ = ("_split_makes_instances", "_split_talk")
    _split_talk: Talk
    _split_makes_instances: bool

    def __getattr__(self, name: str) -> Any:
        return self._split_talk.ask("getattr", self, self._split_allowed(name))

    def _split_allowed(self, name: str) -> str:
        if name.startswith("__") or (name in _OF_DATA and type(self) is not Instance):
            raise AttributeError(name)
        return name

    def _split_method(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """getattr and call in one question."""
        return self._split_talk.ask("method", self, self._split_allowed(name), args, kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        self._split_talk.ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._split_talk.ask("delattr", self, name)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Proxy) and self._split_talk.ask("eq", self, other) is True
        )

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, Proxy) or self._split_talk.ask("ne", self, other) is True

    def __hash__(self) -> int:
        return self._split_talk.ask("hash", self)

    def __bool__(self) -> bool:
        return self._split_talk.ask("bool", self)

    def __format__(self, spec: str) -> str:
        return self._split_talk.ask("format", self, spec)

    def __round__(self, digits: int | None = None) -> Any:
        return self._split_talk.ask("round", self, digits)

    def __len__(self) -> int:
        return len(self._split_items())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._split_items())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int | slice):
            return self._split_items()[key]
        return self._split_talk.ask("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._split_talk.ask("setitem", self, key, value)

    def __delitem__(self, key: Any) -> None:
        self._split_talk.ask("delitem", self, key)

    def __enter__(self) -> Any:
        return _like(self, self._split_talk.ask("enter", self))

    def __exit__(self, *failure: object) -> Any:
        return self._split_talk.ask("exit", self, failure[1])

    def __instancecheck__(self, value: Any) -> bool:
        talk = self._split_talk
        return talk.holds(value) and talk.ask("isinstance", value, self) is True

    def __mro_entries__(self, bases: object) -> tuple[type, ...]:
        raise UnusableError("the tests derive from a class of the program")

    def __copy__(self) -> Any:
        return _like(self, self._split_talk.ask("copy", self))

    def __deepcopy__(self, memo: object) -> Any:
        return _like(self, self._split_talk.ask("deepcopy", self))

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError("an object of the program cannot be pickled")

    def _split_items(self) -> list[Any]:
        """All of it at one moment, so that no two looks at it can differ."""
        items = self._split_talk.ask("items", self)
        if type(items) is not list:
            raise TypeError("items are a list")
        return items


class CallableProxy(Proxy):
    """A function, a method, a class or an object that can be called."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self._split_talk.ask("call", self, args, kwargs)
        return _as_instance(made) if self._split_makes_instances else made


class Stream(Proxy):
    """An object of a class that gives one item after the other."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._split_talk.ask("next", self)


class Instance(Proxy):
    """An object that the tests made themselves, from a class they name: it may meet data.

    A function that returns the same object returns a Proxy of it: the number that was asked for
    may not come back as one of the tests' own objects.
    """

    __slots__ = ()

    def __len__(self) -> int:
        return self._split_talk.ask("len", self)

    def __iter__(self) -> Iterator[Any]:
        found = _like(self, self._split_talk.ask("iter", self))
        return self if found is self else iter(found)

    def __next__(self) -> Any:
        return self._split_talk.ask("next", self)

    def __reversed__(self) -> Iterator[Any]:
        return iter(self._split_talk.ask("reversed", self))

    def __contains__(self, value: Any) -> bool:
        return self._split_talk.ask("contains", self, value) is True

    def __getitem__(self, key: Any) -> Any:
        return self._split_talk.ask("getitem", self, key)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._split_talk.ask("call", self, args, kwargs)


class IteratorProxy:
    """A generator or another iterator: items come in growing portions, each item once."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._portion: Iterator[Any] = iter(())
        self._size = 1
        self._ended: list[BaseException] = []

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        for item in self._portion:
            return item
        if self._ended:
            raise self._ended[0]
        match self._talk.ask("take", self, self._size):
            case (list() as items, None | BaseException() as failure):
                self._portion = iter(items)
                self._ended = [StopIteration() if failure is None else failure]
            case (list() as items, "more") if items:
                self._portion = iter(items)
                self._size = min(2 * self._size, MAX_TAKEN)
            case _:
                self._talk.leave("these are no items")
        return next(self)


def take(iterator: Iterator[Any], size: int) -> tuple[list[Any], BaseException | str | None]:
    """On the side of the iterator: its next items, and "more" or what ended them, None at the end.

    A portion ahead of what is asked for, so that a loop costs few messages.
    """
    items: list[Any] = []
    try:
        items.extend(islice(iterator, size))
    except Exception as failure:  # noqa: BLE001  raised on the other side, at its place
        return items, failure
    return items, "more" if len(items) == size else None


def _question(name: str) -> Callable[[Proxy], Any]:
    return lambda self: _like(self, self._split_talk.ask(name, self))


def _as_instance(made: Any) -> Any:
    return made._split_talk.twin(made, _proxy(Instance)) if isinstance(made, Proxy) else made


def _like(self: Proxy, made: Any) -> Any:
    """What an operator makes of an instance is one too."""
    return _as_instance(made) if type(self) is Instance else made


def _meets(self: Proxy, other: Any) -> bool:
    return isinstance(other, Proxy) or type(self) is Instance


def _forward(name: str) -> Callable[[Proxy, Any], Any]:
    def method(self: Proxy, other: Any) -> Any:
        if not _meets(self, other):
            return NotImplemented
        return _like(self, self._split_talk.ask(name, self, other))

    return method


def _backward(name: str) -> Callable[[Proxy, Any], Any]:
    def method(self: Proxy, other: Any) -> Any:
        if not _meets(self, other):
            return NotImplemented
        return _like(self, self._split_talk.ask(name, other, self))

    return method


for _name in _UNARY:
    setattr(Proxy, f"__{_name}__", _question(_name))
for _name in (*ORDERINGS, *OPERATORS):
    setattr(Proxy, f"__{_name}__", _forward(_name))
for _name in OPERATORS:
    setattr(Proxy, f"__r{_name}__", _backward(_name))
    setattr(Proxy, f"__i{_name}__", _forward(f"i{_name}"))


def _proxy(kind: type[Proxy]) -> Callable[[Talk], Proxy]:
    def made(talk: Talk) -> Proxy:
        proxy = object.__new__(kind)
        object.__setattr__(proxy, "_split_talk", talk)
        object.__setattr__(proxy, "_split_makes_instances", False)
        return proxy

    return made


PROXIES: Mapping[str, Callable[..., Any]] = {
    "object": _proxy(Proxy),
    "callable": _proxy(CallableProxy),
    "stream": _proxy(Stream),
    "iterator": IteratorProxy,
    "class": error_class,
    "error": error,
}
