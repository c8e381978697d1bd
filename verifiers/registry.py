"""The registry of verifiers.

A verifier is a function `check(problem, response) -> Verdict` under the decorator `verifier`. The
modules of `veriloop.verifiers`, of its packages `code` and `text`, and of the entry points in the
group `veriloop.verifiers` are imported on the first lookup, and after them the plugins of the
environment variable VERILOOP_PLUGINS, separated by commas. `load_plugin` imports others. A plugin
is the path of a file or the name of a module; pools load all of them in their workers as well.
"""

import hashlib
import importlib
import importlib.util
import math
import os
import pkgutil
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal, get_args

from veriloop.data.problem import Problem
from veriloop.sandbox.remote.redaction import redacted
from veriloop.verifiers.sources import source_files
from veriloop.verifiers.verdict import Verdict

Task = tuple[Problem, str]  # a problem and the response to it
Check = Callable[[Problem, str], Verdict]
Seconds = Callable[[Problem], float]
Steps = Callable[[Problem, str], Sequence[tuple[int, float]]]  # (end, score) of each step
Kind = Literal["answer", "partial", "text"]

ENTRY_POINTS = "veriloop.verifiers"
PLUGINS_VARIABLE = "VERILOOP_PLUGINS"
_PACKAGES = ("veriloop.verifiers", "veriloop.verifiers.code", "veriloop.verifiers.text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """The examples in a verifier's decorator; the contract and the warm-up of workers use them."""

    reference: Mapping[str, Any]
    accepts: str  # a response that scores 1.0
    rejects: tuple[str, ...] = ()  # near misses, each of which scores 0.0
    other: tuple[Mapping[str, Any], str] | None = None  # a second reference and its solution


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """A registered verifier. See the decorator `verifier` for the fields."""

    name: str
    version: str  # incremented by hand when verdicts change on purpose
    check: Check
    example: Example
    kind: Kind = "answer"
    components: tuple[str, ...] = ()  # keys of `Verdict.components`
    needs: str = ""  # a requirement that veriloop does not install: a package or an endpoint
    seconds: Seconds | None = None  # upper bound on waiting for its own process
    steps: Steps | None = None  # scores of single steps, for process supervision
    parts: tuple[str, ...] = ()  # further modules that are hashed into the fingerprint
    settings: Mapping[str, str] = field(default_factory=dict)  # facts of a whole run, with defaults
    environment: Mapping[str, str] = field(default_factory=dict)  # what decides -> variable with it

    @property
    def runs_programs(self) -> bool:
        """Whether it runs the candidate's program, in the sandbox."""
        return self.seconds is not None

    def problem(self, reference: Mapping[str, Any], id: str = "") -> Problem:
        """A problem for this verifier, without a prompt; the default `id` is "example/<name>"."""
        return Problem(
            id=id or f"example/{self.name}", prompt="", verifier=self.name, reference=reference
        )

    def example_problem(self) -> Problem:
        """The problem that `example.accepts` solves."""
        return self.problem(self.example.reference)

    def zero_components(self) -> dict[str, float]:
        """The components of a verdict on nothing: all declared keys, with the value 0."""
        return dict.fromkeys(self.components, 0.0)


_UNSAFE = re.compile(r"[^-.\w]")  # in the name of a file
_REGISTRY: dict[str, Verifier] = {}
_LOADED: dict[str, None] = {}  # plugins given to `load_plugin`, in order; files by absolute path
_BROKEN: dict[str, str] = {}  # installed plugins that cannot be imported, with the reason


def verifier(
    name: str,
    *,
    version: str = "1",
    reference: Mapping[str, Any],
    accepts: str,
    rejects: Sequence[str] = (),
    other: tuple[Mapping[str, Any], str] | None = None,
    components: Sequence[str] = (),
    kind: Kind = "answer",
    needs: str = "",
    seconds: Seconds | None = None,
    steps: Steps | None = None,
    parts: Sequence[str] = (),
    settings: Mapping[str, str] = MappingProxyType({}),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Check], Check]:
    """Decorator that registers `check(problem, response) -> Verdict` under `name`.

    The check raises for its own failures, such as a bad reference: the caller gets an `error`
    verdict without a score, which is never trained on. It returns a Verdict for every response.

    version: a string to change when verdicts change on purpose; part of the fingerprint.
    reference, accepts: an example of `problem.reference` and a response that scores 1.0 on it.
    rejects: near misses of that example; each scores 0.0.
    other: a second (reference, response) pair; each response is wrong for the other reference.
    components: keys of `Verdict.components`, the same in every verdict.
    kind: "answer" is right or wrong; "partial" also pays for parts of an answer; "text" judges how
        a response is written, regardless of what it answers.
    needs: a requirement that veriloop does not install, e.g. "the package x" or "an endpoint: URL".
    seconds: maps a problem to the longest time, in seconds, that the check may wait for a process
        of its own, as for the candidate's program. The check enforces it; a VerifierPool adds it to
        its own time limit.
    steps: maps a problem and a response to (end, score) of each step, in order: the offset after
        its last character and a score in [0, 1]. Process supervision calls it in the trainer's
        process; what it raises leaves the response out of training.
    parts: names of further modules and packages whose source decides the verdicts and is hashed
        into the fingerprint. Imported modules of `veriloop.verifiers` are found automatically; list
        modules from elsewhere, and files that are loaded without an import.
    settings: facts that a run sets for all problems, with their defaults; other values are part of
        the fingerprint.
    environment: maps what decides the verdicts besides the code, such as "model" for the model
        that judges, to the environment variable that names it; a value is part of the fingerprint.

    Raises ValueError for an unknown kind, and when `name` is already registered.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"kind of verifier {name!r} must be one of {get_args(Kind)}, got {kind!r}")

    example = Example(reference=reference, accepts=accepts, rejects=tuple(rejects), other=other)

    def register(check: Check) -> Check:
        _add(
            Verifier(
                name=name,
                version=version,
                check=check,
                example=example,
                kind=kind,
                components=tuple(components),
                needs=needs,
                seconds=seconds,
                steps=steps,
                parts=tuple(parts),
                settings=dict(settings),
                environment=dict(environment),
            )
        )
        return check

    return register


def _add(verifier: Verifier) -> None:
    name, module = verifier.name, verifier.check.__module__
    if name in _REGISTRY:
        owner = _REGISTRY[name].check.__module__
        raise ValueError(
            f"verifier {name!r} of {module} is already registered by {owner}: choose another name"
        )
    _REGISTRY[name] = verifier


@cache
def all_verifiers() -> Mapping[str, Verifier]:
    """All verifiers by name, as a live read-only view. The first call imports their modules.

    An installed plugin that cannot be imported is reported on stderr; the others stay usable.
    Raises ImportError for a plugin of VERILOOP_PLUGINS that cannot be imported.
    """
    for package in _PACKAGES:
        folders = importlib.import_module(package).__path__
        for module in pkgutil.iter_modules(folders, f"{package}."):
            if not module.ispkg:
                importlib.import_module(module.name)
    for plugin in entry_points(group=ENTRY_POINTS):
        label = f"{plugin.name} = {plugin.value}"
        try:
            _import_plugin(label, plugin.load)
        except ImportError as failure:
            _BROKEN[label] = str(failure)
            print(f"veriloop: {failure}; its verifiers are missing", file=sys.stderr)
    for spec in filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(",")):
        _load(spec)
    return MappingProxyType(_REGISTRY)


def load_plugin(spec: str) -> None:
    """Import a module of verifiers, given as "path/to/file.py" or as "package.module".

    Repeated calls import a file once. Raises ImportError with `spec` and the reason.
    """
    # The built-in names must be registered first, so that a duplicate is reported for the plugin.
    all_verifiers()
    _load(spec)


def _load(spec: str) -> None:
    if spec.endswith(".py"):
        path = Path(spec).resolve()
        _import_plugin(spec, lambda: import_file(path))
        _LOADED[str(path)] = None
    else:
        _import_plugin(spec, lambda: importlib.import_module(spec))
        _LOADED[spec] = None


def loaded_plugins() -> tuple[str, ...]:
    """The plugins that `load_plugin` imported in this process; files by absolute path."""
    return tuple(_LOADED)


def _import_plugin(label: str, load: Callable[[], Any]) -> None:
    try:
        # Standard output belongs to the command, which may print JSON lines.
        with redirect_stdout(sys.stderr):
            load()
    except (Exception, SystemExit) as error:
        raise ImportError(
            f"verifier plugin {label!r} cannot be imported: {describe(error)}"
        ) from error


def import_file(path: Path) -> ModuleType:
    """The module in a Python file outside of any package; repeated calls import it once."""
    name = f"veriloop_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, f"{path} is not a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def get(name: str) -> Verifier:
    """The verifier called `name`. Raises KeyError with the nearest match and all known names."""
    known = all_verifiers()
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        broken = "".join(f". {reason}" for reason in _BROKEN.values())
        raise KeyError(f"no verifier {name!r}.{hint} Known: {', '.join(sorted(known))}{broken}")
    return known[name]


def judge(problem: Problem, response: str) -> Verdict:
    """Judge one response in this process, without a time limit; sets `exec_s`.

    An exception or an invalid verdict of the verifier becomes an `error` verdict, never a score
    of 0. Raises KeyError for an unknown verifier, since that is a configuration error.
    """
    verifier = get(problem.verifier)
    started = time.perf_counter()
    try:
        verdict = _normalised(verifier.check(_own_copy(problem, verifier), response), verifier)
    except (Exception, SystemExit) as error:  # noqa: BLE001  boundary to plugin code
        components = verifier.zero_components()
        verdict = Verdict(score=None, status="error", detail=describe(error), components=components)
    return replace(verdict, exec_s=time.perf_counter() - started)


def _own_copy(problem: Problem, verifier: Verifier) -> Problem:
    """The problem with a read-only copy of its reference, if a plugin verifies it: what one check
    changes must not reach the next."""
    if verifier.check.__module__.startswith("veriloop."):
        return problem
    return replace(problem, reference=MappingProxyType(deepcopy(dict(problem.reference))))


def seconds_for(problem: Problem) -> float:
    """The `seconds` that the verifier declares for this problem, 0.0 if it declares none.

    Also 0.0 if they cannot be computed from the reference; `judge` reports that error.
    """
    seconds = get(problem.verifier).seconds
    try:
        bound = 0.0 if seconds is None else float(seconds(problem))
    except Exception:  # noqa: BLE001  boundary to plugin code
        return 0.0
    return bound if 0.0 <= bound < math.inf else 0.0


def _normalised(verdict: Verdict, verifier: Verifier) -> Verdict:
    """The verdict with plain floats, which can be pickled.

    A verdict without a graded answer may omit its components; they become 0. Raises TypeError and
    ValueError for a verdict that breaks the contract.
    """
    if type(verdict) is not Verdict:
        raise TypeError(f"a check must return a Verdict, got {type(verdict).__name__}")
    if not isinstance(verdict.answer, str | None) or not isinstance(verdict.detail, str):
        raise TypeError(
            f"answer and detail must be text, got {verdict.answer!r} and {verdict.detail!r}"
        )
    components = {str(key): float(value) for key, value in verdict.components.items()}
    for key, value in components.items():
        if not math.isfinite(value):
            raise ValueError(f"component {key!r} must be finite, got {value}")
    if not components and verdict.status != "graded":
        components = verifier.zero_components()
    if set(components) != set(verifier.components):
        raise ValueError(
            f"the verdict has the components {sorted(components)}, but the decorator of "
            f"{verifier.name!r} declares {sorted(verifier.components)}"
        )
    score = None if verdict.score is None else float(verdict.score)
    return replace(verdict, score=score, components=components)


def describe(error: BaseException) -> str:
    """An exception in one line, without secrets: its type and the first line of its message."""
    message = redacted(str(error).strip().partition("\n")[0])
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def fingerprint(names: Iterable[str]) -> dict[str, str]:
    """Identifies what judged a run: name -> "<version>+<12 hex digits of its sources>".

    The sources are the verifier's module, all modules of `veriloop.verifiers` that it imports, and
    its `parts`. The values of its `environment` follow as ",key=value", as a file name can have it.
    """
    fingerprints: dict[str, str] = {}
    for name in names:
        verifier = get(name)
        digest = hashlib.sha256()
        for path in source_files((verifier.check.__module__, *verifier.parts)):
            digest.update(path.read_bytes())
        judged_by = [
            f",{key}={_UNSAFE.sub('_', value)}"
            for key, variable in verifier.environment.items()
            if (value := os.environ.get(variable, ""))
        ]
        fingerprints[name] = f"{verifier.version}+{digest.hexdigest()[:12]}{''.join(judged_by)}"
    return fingerprints


def with_facts(tasks: Sequence[Task], facts: Mapping[str, Any]) -> Sequence[Task]:
    """The tasks with these facts for each problem that does not have them itself."""
    if not facts:
        return tasks
    return [(replace(p, facts={**facts, **p.facts}), response) for p, response in tasks]


def with_settings(fingerprints: Mapping[str, str], facts: Mapping[str, Any]) -> dict[str, str]:
    """The fingerprints, each followed by the settings that `facts` changes: "...,key=value"."""
    marked: dict[str, str] = {}
    for name, own in fingerprints.items():
        known = all_verifiers().get(name)
        settings = known.settings if known else {}
        changes = [
            f",{key}={facts[key]}"
            for key, usual in settings.items()
            if facts.get(key, usual) != usual
        ]
        marked[name] = own + "".join(changes)
    return marked
