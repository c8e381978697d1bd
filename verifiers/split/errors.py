"""Exceptions of the other side: real ones here, so that tests can wait for them by class."""

from typing import Any

from verifiers.split.talk import Talk


def error_class(talk: Talk, name: str, *bases: type) -> type:
    """A class of exceptions, whose instances can be asked for what they hold."""

    def attribute(self: BaseException, name: str) -> Any:
        if name.startswith("_") or not talk.holds(self):
            raise AttributeError(name)
        return talk.ask("getattr", self, name)

    def text(self: BaseException) -> str:
        return talk.ask("str", self) if talk.holds(self) else BaseException.__str__(self)

    if not all(issubclass(one, BaseException) for one in bases):
        raise TypeError("a base is no exception")
    return type(name, bases, {"__getattr__": attribute, "__str__": text, "__module__": "solution"})


def error(talk: Talk, kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """What the other side raised, to be raised here. Raises TypeError for what is no exception."""
    if not issubclass(kind, BaseException):
        raise TypeError("no exception")
    try:
        failure = kind(*args)
    except Exception:  # noqa: BLE001  a class that wants other arguments than it keeps
        failure = kind.__new__(kind)
    failure.args = args
    return failure
