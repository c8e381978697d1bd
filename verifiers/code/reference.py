"""The reference of a coding problem: its tests, and how programs are run against them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from numbers import Real
from types import UnionType
from typing import Any, Self, get_args

from veriloop.sandbox.executor import Call, Invocation, Stdin
from veriloop.sandbox.languages.polyglot import compile_seconds
from veriloop.sandbox.languages.table import named
from veriloop.sandbox.limits import Limits
from veriloop.verifiers.code.budget import HOST_PATIENCE
from veriloop.verifiers.code.compare import TOLERANCE, Mode
from veriloop.verifiers.code.outcome import Scoring

TOTAL_WALLS = 10  # default of `total_s`, in wall limits of one run

_FORMS = {  # required keys of a test -> its optional keys
    frozenset({"stdin", "expected_stdout"}): frozenset(),
    frozenset({"args", "expected"}): frozenset({"kwargs"}),
    frozenset({"assert"}): frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTest:
    """A test with an input for the sandbox and an expected value that never enters it."""

    invocation: Invocation
    checker_input: Any  # the input as a special checker sees it
    expected: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertTest:
    """Test code. It contains the expected values, so it runs in a sandbox without the program."""

    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeReference:
    """The validated reference of a `code_tests` problem."""

    tests: Sequence[DataTest] | Sequence[AssertTest]  # all of one type, at least one
    function: str = ""  # function, class, or method of the class `Solution`, under test
    names: Sequence[str] = ()  # further names that assert tests use and the program must define
    setup: str = ""  # trusted code that runs before assert tests, such as imports
    solution: str = ""  # a right program: assert tests that it fails are an error of the data
    language: str = "python"  # a name or an alias of veriloop.sandbox.languages.table
    mode: Mode = "text"  # how standard output is compared
    tolerance: float = TOLERANCE
    scoring: Scoring = "all"
    checker: str = ""  # source that defines check(input, output, reference) -> bool
    preload: Sequence[str] = ()  # modules that are imported before the program runs
    limits: Limits = field(default_factory=Limits)  # of each run
    # CPU time in seconds for all tests of one compiled program; 0: TOTAL_WALLS wall limits.
    total_s: float = 0.0

    def __post_init__(self) -> None:
        for name, allowed in (("mode", get_args(Mode)), ("scoring", get_args(Scoring))):
            if getattr(self, name) not in allowed:
                raise ValueError(_unknown(name, getattr(self, name), allowed))
        if not self.tests:
            raise ValueError("a reference needs at least one test, got none")
        if len({type(test) for test in self.tests}) > 1:
            raise ValueError("assert tests and tests with data cannot be mixed in one reference")
        calls = any(not isinstance(getattr(test, "invocation", None), Stdin) for test in self.tests)
        if calls and not self.function.isidentifier():
            raise ValueError(f"`function` must be an identifier, got {self.function!r}")
        if isinstance(self.tests[0], AssertTest):
            self._check_asserts()
        self._check_language(calls=calls)

    def _check_asserts(self) -> None:
        if self.checker:
            raise ValueError("`checker` cannot be combined with assert tests")
        if self.language != "python":
            raise ValueError(f"assert tests require the language python, got {self.language!r}")
        for name in self.names:
            if not name.isidentifier():
                raise ValueError(f"`names` must be identifiers, got {name!r}")

    def _check_language(self, *, calls: bool) -> None:
        language = named(self.language)
        if calls:
            language.check_call(self.function)
        if self.preload and language.name != "python":
            raise ValueError(f"`preload` requires Python, but the language is {language.title}")

    @property
    def work_s(self) -> float:
        """CPU time for all tests of one compiled program, in seconds."""
        return _work(self.total_s, self.limits)

    @property
    def program_s(self) -> float:
        """Upper bound on the wall time of all tests of one program, in seconds."""
        return _seconds(self.total_s, self.limits, self.language)

    @property
    def seconds(self) -> float:
        """Upper bound on the wall time to judge one program: its tests, and once the solution's."""
        return self.program_s * (2 if self.solution else 1)

    @classmethod
    def read(cls, reference: Mapping[str, Any]) -> Self:
        """Parse a problem's reference. Raises ValueError with the key and the nearest match."""
        values = dict(reference)
        _check_keys("reference key", values, [f.name for f in fields(cls)])
        if "tests" not in values:
            raise ValueError(f"a reference needs `tests`, got {sorted(values)}")
        _check_kinds(values)
        name = values.get("function") or ""
        values["function"] = name
        values["language"] = named(values.get("language") or "python").name
        values["tests"] = tuple(_test(test, name) for test in values["tests"])
        values["limits"] = _limits(values)
        if not values.get("checker"):  # a checker may read anything
            for test in values["tests"]:
                if isinstance(test, DataTest) and isinstance(test.invocation, Stdin):
                    _check_kind("expected_stdout", test.expected, str, "a string")
        for key in ("preload", "names"):
            values[key] = tuple(values.get(key) or ())
        return cls(**{key: value for key, value in values.items() if value is not None})


def _check_kinds(values: Mapping[str, Any]) -> None:
    """Raise ValueError for a key with a value of another kind: a text in place of a list would be
    taken for its characters."""
    for key in ("function", "language", "setup", "solution", "checker"):
        _check_kind(key, values.get(key) or "", str, "a string")
    for key in ("tolerance", "total_s"):
        _check_kind(key, values.get(key) or 0.0, Real, "a number")
    _check_kind("limits", values.get("limits") or {}, Mapping, "an object")
    _check_list("tests", values["tests"])
    for key in ("names", "preload"):
        _check_list(key, values.get(key) or [])
        for name in values.get(key) or []:
            _check_kind(key, name, str, "a list of strings")
    for test in values["tests"]:
        _check_kind("tests", test, Mapping, "a list of objects")


def _check_list(key: str, value: object) -> None:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError(_of_another_kind(key, value, "a list"))


def _check_kind(key: str, value: object, kind: type | UnionType, what: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(_of_another_kind(key, value, what))


def _of_another_kind(key: str, value: object, what: str) -> str:
    return f"`{key}` must be {what}, got {repr(value)[:80]}"


def worst_seconds(reference: Mapping[str, Any]) -> float:
    """`CodeReference.seconds` without parsing the tests. Raises ValueError for invalid limits."""
    language = named(reference.get("language") or "python").name
    seconds = _seconds(reference.get("total_s") or 0.0, _limits(reference), language)
    return seconds * (2 if reference.get("solution") else 1)


def _limits(reference: Mapping[str, Any]) -> Limits:
    limits = dict(reference.get("limits") or {})
    _check_keys("limit", limits, [f.name for f in fields(Limits)])
    return Limits(**limits)


def _work(total_s: float, limits: Limits) -> float:
    return total_s or TOTAL_WALLS * limits.wall


def _seconds(total_s: float, limits: Limits, language: str) -> float:
    return HOST_PATIENCE * _work(total_s, limits) + compile_seconds(language)


def _test(test: Mapping[str, Any], function: str) -> DataTest | AssertTest:
    keys = set(test)
    form = next((required for required in _FORMS if required <= keys), None)
    if form is None:
        forms = "; ".join(", ".join(sorted(required)) for required in _FORMS)
        raise ValueError(f"a test must have one of the key sets [{forms}], got {sorted(keys)}")
    _check_keys("test key", keys, form | _FORMS[form])
    if "assert" in form:
        _check_kind("assert", test["assert"], str, "a string")
        return AssertTest(code=test["assert"])
    if "stdin" in form:
        text = test["stdin"]
        _check_kind("stdin", text, str | bytes, "a string")
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
        return DataTest(
            invocation=Stdin(data=data), checker_input=text, expected=test["expected_stdout"]
        )
    _check_list("args", test["args"])
    args, kwargs = list(test["args"]), dict(test.get("kwargs") or {})
    call = Call(function=function, args=args, kwargs=kwargs)
    checker_input = [*args, kwargs] if kwargs else args
    return DataTest(invocation=call, checker_input=checker_input, expected=test["expected"])


def _check_keys(what: str, keys: Iterable[str], allowed: Iterable[str]) -> None:
    for key in keys:
        if key not in allowed:
            raise ValueError(_unknown(what, key, allowed))


def _unknown(what: str, value: object, allowed: Iterable[str]) -> str:
    choices = sorted(allowed)
    close = get_close_matches(str(value), choices, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"no {what} {value!r}.{hint} Known: {', '.join(choices)}"
