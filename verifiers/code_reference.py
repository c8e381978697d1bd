"""What a coding problem's reference says: its tests, and how programs are run against them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Self, cast, get_args

from sandbox.executor import Call, Given, Stdin
from sandbox.languages.polyglot import compile_seconds
from sandbox.languages.table import named
from sandbox.limits import Limits
from verifiers.code_outcome import Scoring
from verifiers.compare import TOLERANCE, Mode

TOTAL_WALLS = 10  # the time of all tests together, in wall limits of one, unless it is given

_FORMS = {  # keys a test must have: those it may have
    frozenset({"stdin", "expected_stdout"}): frozenset(),
    frozenset({"args", "expected"}): frozenset({"kwargs"}),
    frozenset({"assert"}): frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTest:
    """An input that goes into the sandbox and an expectation that never does."""

    given: Given
    shown: Any  # the input as a special checker sees it
    expected: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertTest:
    """Test code; its expectations are part of it, so it runs apart from the program."""

    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeReference:
    """The reference of a `code_tests` problem, checked."""

    tests: Sequence[DataTest] | Sequence[AssertTest]  # all of one sort, at least one
    function: str = ""  # to be called, or a class; or a method of the program's class `Solution`
    names: Sequence[str] = ()  # whatever else assert tests use and the program must define
    setup: str = ""  # trusted code in front of assert tests, such as their imports
    language: str = "python"  # a name or an alias of sandbox.languages.table
    mode: Mode = "text"  # of comparing standard output
    tolerance: float = TOLERANCE
    scoring: Scoring = "all"
    checker: str = ""  # source that defines check(input, output, reference) -> bool
    preload: Sequence[str] = ()  # modules the program finds imported
    limits: Limits = field(default_factory=Limits)  # of each run
    total_s: float = (
        0.0  # on the clock, for all tests of one compiled program; 0: TOTAL_WALLS walls
    )

    def __post_init__(self) -> None:
        for name, allowed in (("mode", get_args(Mode)), ("scoring", get_args(Scoring))):
            if getattr(self, name) not in allowed:
                raise ValueError(_unknown(name, getattr(self, name), allowed))
        if not self.tests:
            raise ValueError("a reference needs at least one test, got none")
        if len({type(test) for test in self.tests}) > 1:
            raise ValueError("assert tests and tests with data cannot be mixed in one reference")
        calls = any(not isinstance(getattr(test, "given", None), Stdin) for test in self.tests)
        if calls and not self.function.isidentifier():
            raise ValueError(f"these tests need the name of a function, got {self.function!r}")
        if isinstance(self.tests[0], AssertTest):
            self._check_asserts()
        self._check_language(calls=calls)

    def _check_asserts(self) -> None:
        if self.checker:
            raise ValueError("assert tests judge by themselves: a checker has nothing to check")
        if self.language != "python":
            raise ValueError(f"assert tests call python programs, not {self.language!r}")
        for name in self.names:
            if not name.isidentifier():
                raise ValueError(f"`names` are identifiers, got {name!r}")

    def _check_language(self, *, calls: bool) -> None:
        language = named(self.language)
        if calls:
            language.check_call(self.function)
        if self.preload and language.name != "python":
            raise ValueError(f"preload is for Python alone, and the language is {language.title}")

    @property
    def seconds(self) -> float:
        """Within which a verdict on one program is reached, whatever it does."""
        return _seconds(self.total_s, self.limits, self.language)

    @classmethod
    def read(cls, reference: Mapping[str, Any]) -> Self:
        """Check a problem's reference. Raises ValueError naming the key and the nearest match."""
        given = dict(reference)
        _known("reference key", given, [one.name for one in fields(cls)])
        if "tests" not in given:
            raise ValueError(f"a reference needs `tests`, got {sorted(given)}")
        limits = dict(given.get("limits") or {})
        _known("limit", limits, [one.name for one in fields(Limits)])
        name = given.get("function") or ""
        given["function"] = name
        given["language"] = named(given.get("language") or "python").name
        given["tests"] = tuple(_test(test, name) for test in given["tests"])
        given["limits"] = Limits(**limits)
        for key in ("preload", "names"):
            given[key] = tuple(given.get(key) or ())
        return cls(**{key: value for key, value in given.items() if value is not None})


def worst_seconds(reference: Mapping[str, Any]) -> float:
    """`CodeReference.seconds`, without reading the tests. Raises ValueError on limits that make no
    sense."""
    limits = dict(reference.get("limits") or {})
    _known("limit", limits, [one.name for one in fields(Limits)])
    language = named(reference.get("language") or "python").name
    return _seconds(reference.get("total_s") or 0.0, Limits(**limits), language)


def _seconds(total_s: float, limits: Limits, language: str) -> float:
    return (total_s or TOTAL_WALLS * limits.wall) + compile_seconds(language)


def _test(test: Mapping[str, Any], function: str) -> DataTest | AssertTest:
    keys = set(test)
    form = next((must for must in _FORMS if must <= keys), None)
    if form is None:
        forms = "; ".join(", ".join(sorted(must)) for must in _FORMS)
        raise ValueError(f"a test with keys {sorted(keys)} is none of: {forms}")
    _known("test key", keys, form | _FORMS[form])
    if "assert" in form:
        return AssertTest(code=cast(str, test["assert"]))
    if "stdin" in form:
        text = test["stdin"]
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
        return DataTest(given=Stdin(data=data), shown=text, expected=test["expected_stdout"])
    args, kwargs = list(test["args"]), dict(test.get("kwargs") or {})
    call = Call(function=function, args=args, kwargs=kwargs)
    return DataTest(
        given=call, shown=[*args, kwargs] if kwargs else args, expected=test["expected"]
    )


def _known(what: str, keys: Iterable[str], allowed: Iterable[str]) -> None:
    for key in keys:
        if key not in allowed:
            raise ValueError(_unknown(what, key, allowed))


def _unknown(what: str, value: object, allowed: Iterable[str]) -> str:
    choices = sorted(allowed)
    close = get_close_matches(str(value), choices, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"no {what} {value!r}.{hint} Known: {', '.join(choices)}"
