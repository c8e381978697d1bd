"""Proxies for objects of the other side: every operation on one is a request to that side.

The program controls what its own objects answer, so an answer must not decide a comparison with an
expected value, which is data. A proxy never equals data and is not ordered against data. An
operator with data gives an object that never becomes a number or a truth value (`Mixed`). Methods
that plain data have take no arguments, except on an `Instance`. Items and attributes are requested
once, until an operation may have changed them. Runs inside the sandboxes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from veriloop.verifiers.code.split.protocol import Session
from veriloop.verifiers.code.split.values import ATOMS, PLAIN_TYPES

MAX_TAKEN = 1024  # items of an iterator per request; each request doubles the number

ORDERINGS = ("lt", "le", "gt", "ge")
OPERATORS = (
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift",
    "and", "or", "xor",
)  # fmt: skip
_NUMERIC = ("neg", "pos", "abs", "invert", "int", "float", "complex", "index")
PLAIN_NAMES = frozenset(  # attributes that results have if they are plain data
    name for kind in PLAIN_TYPES for name in dir(kind) if not name.startswith("_")
) | {"equals"}
_CHANGES = frozenset({  # methods of plain data that return None
    "append", "appendleft", "extend", "extendleft", "insert", "remove", "add", "discard", "update",
    "clear", "sort", "reverse", "rotate", "move_to_end", "subtract", "difference_update",
    "intersection_update", "symmetric_difference_update",
})  # fmt: skip


class UnusableError(BaseException):
    """The tests use something that a proxy cannot support. Not meant to be caught by tests."""


class Proxy:
    """An object of the other side, as returned by a function or read from an attribute."""

    __slots__ = ("_split_makes_instances", "_split_session")
    _split_session: Session
    _split_makes_instances: bool

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = self._split_session.ask("getattr", self, name)
        if name in PLAIN_NAMES and isinstance(value, Proxy) and not self._split_under_test():
            raise AttributeError(f"{name} of an object that is not plain data")
        return value

    def _split_under_test(self) -> bool:
        """Whether the tests created the object, so that its methods are what they test."""
        return type(self) is Instance

    def _split_method(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Read and call a method in one request.

        On a result, a method of plain data takes no arguments and is no predicate, unless it only
        changes the object; any other method may not judge an argument that is a container or an
        object.
        """
        values = [*args, *kwargs.values()]
        plain = not self._split_under_test() and name in PLAIN_NAMES - _CHANGES
        if name.startswith("__") or (plain and (values or name.startswith("is"))):
            raise AttributeError(f"{name} of an object that is not plain data")
        result = self._split_session.ask("method", self, name, args, kwargs)
        if name in _CHANGES and result is not None and not self._split_under_test():
            raise TypeError(f"{name} of a result must return None")
        judged = type(result) is bool and any(type(value) not in ATOMS for value in values)
        if judged and not self._split_under_test():
            raise TypeError(f"{name} of a result may not judge an object")
        return result

    def __setattr__(self, name: str, value: Any) -> None:
        self._split_session.ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._split_session.ask("delattr", self, name)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Proxy) and self._split_session.ask("eq", self, other) is True
        )

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, Proxy) or self._split_session.ask("ne", self, other) is True

    def __hash__(self) -> int:
        return self._split_session.ask("hash", self)

    def __bool__(self) -> bool:
        return self._split_session.ask("bool", self)

    def __format__(self, spec: str) -> str:
        return self._split_session.ask("format", self, spec)

    def __round__(self, digits: int | None = None) -> Any:
        return self._split_session.ask("round", self, digits)

    def __len__(self) -> int:
        return len(self._split_items())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._split_items())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int | slice):
            return self._split_items()[key]
        return self._split_session.ask("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._split_session.ask("setitem", self, key, value)

    def __delitem__(self, key: Any) -> None:
        self._split_session.ask("delitem", self, key)

    def __enter__(self) -> Any:
        return _like(self, self._split_session.ask("enter", self))

    def __exit__(self, *failure: object) -> Any:
        return self._split_session.ask("exit", self, failure[1])

    def __instancecheck__(self, value: Any) -> bool:
        session = self._split_session
        return session.is_remote(value) and session.ask("isinstance", value, self) is True

    def __mro_entries__(self, bases: object) -> tuple[type, ...]:
        raise UnusableError("the tests derive from a class of the program")

    def __copy__(self) -> Any:
        return _like(self, self._split_session.ask("copy", self))

    def __deepcopy__(self, memo: object) -> Any:
        return _like(self, self._split_session.ask("deepcopy", self))

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError("an object of the program cannot be pickled")

    def _split_items(self) -> list[Any]:
        """All items at one moment, so that repeated reads cannot differ."""
        items = self._split_session.ask("items", self)
        if type(items) is not list:
            raise TypeError("items must be a list")
        return items


class CallableProxy(Proxy):
    """A function, a method, a class or a callable object."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self._split_session.ask("call", self, args, kwargs)
        return _as_instance(result) if self._split_makes_instances else result


class Stream(Proxy):
    """An iterator of a class that the program defines in Python."""

    __slots__ = ()

    def __len__(self) -> int:
        return self._split_session.ask("len", self)  # the items would be used up

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._split_session.ask("next", self)


class Instance(Proxy):
    """An object that the tests created from a class they name and use as a class.

    All its methods are under test. A function that returns the same object returns a Proxy of it,
    so that an object created by the tests cannot stand in for an expected value.
    """

    __slots__ = ()

    def __len__(self) -> int:
        return self._split_session.ask("len", self)

    def __iter__(self) -> Iterator[Any]:
        iterator = _like(self, self._split_session.ask("iter", self))
        return self if iterator is self else iter(iterator)

    def __next__(self) -> Any:
        return self._split_session.ask("next", self)

    def __reversed__(self) -> Iterator[Any]:
        return iter(self._split_session.ask("reversed", self))

    def __contains__(self, value: Any) -> bool:
        return self._split_session.ask("contains", self, value) is True

    def __getitem__(self, key: Any) -> Any:
        return self._split_session.ask("getitem", self, key)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._split_session.ask("call", self, args, kwargs)


class Mixed(Proxy):
    """The result of an operator between an object and data, such as `v * 2` or `f(x) - 5`.

    It never becomes a number or a truth value: that could be the distance to an expected number.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        raise TypeError("an object computed from data has no truth value")

    def __round__(self, digits: int | None = None) -> Any:
        raise TypeError("an object computed from data is not a number")


class IteratorProxy:
    """A generator or another built-in iterator; items are requested in growing batches."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._batch: Iterator[Any] = iter(())
        self._size = 1
        self._ended: list[BaseException] = []

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        for item in self._batch:
            return item
        if self._ended:
            raise self._ended[0]
        match self._session.ask("take", self, self._size):
            case (list() as items, None | BaseException() as error):
                self._batch = iter(items)
                self._ended = [StopIteration() if error is None else error]
            case (list() as items, "more") if items:
                self._batch = iter(items)
                self._size = min(2 * self._size, MAX_TAKEN)
            case _:
                self._session.close("the reply holds no items")
        return next(self)


def take(iterator: Iterator[Any], size: int) -> tuple[list[Any], BaseException | str | None]:
    """The next items of an iterator of this side, and "more", the error that ended it, or None.

    Items are read ahead, so that a loop needs few messages.
    """
    items: list[Any] = []
    try:
        items.extend(islice(iterator, size))
    except Exception as error:  # noqa: BLE001  raised on the other side after these items
        return items, error
    return items, "more" if len(items) == size else None


def _unary(name: str) -> Callable[[Proxy], Any]:
    def method(self: Proxy) -> Any:
        result = self._split_session.ask(name, self)
        return _mixed(result) if type(self) is Mixed else _like(self, result)

    return method


def _spelling(name: str) -> Callable[[Proxy], Any]:
    return lambda self: self._split_session.ask(name, self)


def _as_instance(result: Any) -> Any:
    if isinstance(result, Proxy):
        return result._split_session.twin(result, Instance, _proxy(Instance))
    return result


def _mixed(result: Any) -> Any:
    """The result of an operator with data. Raises TypeError for plain data."""
    if not isinstance(result, Proxy):
        raise TypeError("an operator between an object and data must give an object")
    return result._split_session.twin(result, Mixed, _proxy(Mixed))


def _like(self: Proxy, result: Any) -> Any:
    """The result of an operator on an Instance is an Instance too."""
    return _as_instance(result) if type(self) is Instance else result


def _binary(name: str, *, reflected: bool = False) -> Callable[[Proxy, Any], Any]:
    def method(self: Proxy, other: Any) -> Any:
        pair = (other, self) if reflected else (self, other)
        result = self._split_session.ask(name, *pair)
        if Mixed in (type(self), type(other)) or not isinstance(other, Proxy):
            return _mixed(result)
        return _like(self, result)

    return method


def _ordering(name: str) -> Callable[[Proxy, Any], Any]:
    def method(self: Proxy, other: Any) -> Any:
        return (
            self._split_session.ask(name, self, other)
            if isinstance(other, Proxy)
            else (NotImplemented)
        )

    return method


for _name in ("str", "repr"):
    setattr(Proxy, f"__{_name}__", _spelling(_name))
for _name in _NUMERIC:
    setattr(Proxy, f"__{_name}__", _unary(_name))
for _name in ORDERINGS:
    setattr(Proxy, f"__{_name}__", _ordering(_name))
for _name in OPERATORS:
    setattr(Proxy, f"__{_name}__", _binary(_name))
    setattr(Proxy, f"__r{_name}__", _binary(_name, reflected=True))
    setattr(Proxy, f"__i{_name}__", _binary(f"i{_name}"))


def _proxy(kind: type[Proxy]) -> Callable[[Session], Proxy]:
    def create(session: Session) -> Proxy:
        proxy = object.__new__(kind)
        object.__setattr__(proxy, "_split_session", session)
        object.__setattr__(proxy, "_split_makes_instances", False)
        return proxy

    return create


def _error_class(session: Session, name: str, *bases: type) -> type:
    """A local class for an exception class of the other side, so that tests can catch it.

    Attributes and the text of its instances are requested from the other side.
    """

    def attribute(self: BaseException, name: str) -> Any:
        if name.startswith("_") or not session.is_remote(self):
            raise AttributeError(name)
        return session.ask("getattr", self, name)

    def text(self: BaseException) -> str:
        if session.is_remote(self):
            return session.ask("str", self)
        return BaseException.__str__(self)

    if not all(issubclass(base, BaseException) for base in bases):
        raise TypeError("a base is not an exception")
    return type(name, bases, {"__getattr__": attribute, "__str__": text, "__module__": "solution"})


def _error(session: Session, kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """A local exception for a remote one. Raises TypeError if `kind` is not an exception."""
    if not issubclass(kind, BaseException):
        raise TypeError("not an exception")
    try:
        error = kind(*args)
    except Exception:  # noqa: BLE001  the constructor may take other arguments than `args`
        error = kind.__new__(kind)
    error.args = args
    return error


PROXIES: Mapping[str, Callable[..., Any]] = {
    "object": _proxy(Proxy),
    "callable": _proxy(CallableProxy),
    "stream": _proxy(Stream),
    "iterator": IteratorProxy,
    "class": _error_class,
    "error": _error,
}
