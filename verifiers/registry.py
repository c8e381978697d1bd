"""Find verifiers by name: every module of this folder, every installed or named plugin."""

import hashlib
import importlib
import importlib.util
import math
import pkgutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal, get_args

import verifiers
from data.problem import Problem
from verifiers.sources import source_files
from verifiers.verdict import Verdict

Check = Callable[[Problem, str], Verdict]
Seconds = Callable[[Problem], float]
Kind = Literal["answer", "partial", "text"]

ENTRY_POINTS = "veriloop.verifiers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One response the verifier must accept and near misses it must not; the tests run both."""

    reference: Mapping[str, Any]
    accepts: str  # scores 1.0
    rejects: tuple[str, ...] = ()  # each scores 0.0
    other: tuple[Mapping[str, Any], str] | None = None  # another problem and what it accepts


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """A way of judging a response."""

    name: str
    version: str  # raised by hand when verdicts change on purpose
    check: Check
    example: Example
    kind: Kind = "answer"
    components: tuple[str, ...] = ()  # keys of the parts of its score
    needs: str = ""  # what it cannot do without and veriloop does not bring: a package, an endpoint
    seconds: Seconds | None = None  # of the candidate's own work, at worst; see `verifier`
    parts: tuple[str, ...] = ()  # modules outside `verifiers` that decide its verdicts too

    def problem(self, reference: Mapping[str, Any], id: str = "") -> Problem:
        """A problem of this verifier without a prompt; `id` is "example/<name>" unless given."""
        return Problem(
            id=id or f"example/{self.name}", prompt="", verifier=self.name, reference=reference
        )

    def example_problem(self) -> Problem:
        """A problem that `example.accepts` solves."""
        return self.problem(self.example.reference)

    def without_score(self) -> dict[str, float]:
        """Its components where nothing was judged: the same keys, all 0."""
        return dict.fromkeys(self.components, 0.0)


_REGISTRY: dict[str, Verifier] = {}


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
    parts: Sequence[str] = (),
) -> Callable[[Check], Check]:
    """Register `check(problem, response) -> Verdict` under `name`, with examples of both kinds.

    `reference` and `accepts` are a problem and a response that solves it, `other` a second such
    pair, `rejects` near misses of the first. `components` are the keys every verdict has.
    `kind`: "answer" is right or wrong; "partial" pays for parts of an answer; "text" judges how a
    response is written, whatever it answers. `needs`: an optional package or an endpoint.
    `seconds(problem)`: for how long the check may run what the candidate wrote, which it bounds
    by itself; a VerifierPool grants that on top of its own limit. `parts`: modules and packages
    outside `verifiers` whose source decides its verdicts too; what it imports from there is found.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"kind of verifier {name!r} must be one of {get_args(Kind)}, got {kind!r}")

    def register(check: Check) -> Check:
        if name in _REGISTRY:
            owner = _REGISTRY[name].check.__module__
            raise ValueError(f"verifier {name!r} of {check.__module__} is already taken by {owner}")
        example = Example(reference=reference, accepts=accepts, rejects=tuple(rejects), other=other)
        _REGISTRY[name] = Verifier(
            name=name,
            version=version,
            check=check,
            example=example,
            kind=kind,
            components=tuple(components),
            needs=needs,
            seconds=seconds,
            parts=tuple(parts),
        )
        return check

    return register


@cache
def all_verifiers() -> Mapping[str, Verifier]:
    """Every verifier by name, as a live read-only view; each module is imported once.

    Raises ImportError naming the plugin when an installed one cannot be imported.
    """
    for module in pkgutil.iter_modules(verifiers.__path__):
        if not module.ispkg:  # the service is a package, and it needs a web framework
            importlib.import_module(f"verifiers.{module.name}")
    for plugin in entry_points(group=ENTRY_POINTS):
        _import_plugin(f"{plugin.name} = {plugin.value}", plugin.load)
    return MappingProxyType(_REGISTRY)


def load_plugin(spec: str) -> None:
    """Import a module of verifiers, given as "path/to/file.py" or as "package.module".

    A file is imported once however often it is asked for. Raises ImportError naming `spec`.
    """
    all_verifiers()  # so that a name taken twice is blamed on the plugin
    if spec.endswith(".py"):
        _import_plugin(spec, lambda: _import_file(Path(spec).resolve()))
    else:
        _import_plugin(spec, lambda: importlib.import_module(spec))


def _import_plugin(label: str, load: Callable[[], Any]) -> None:
    try:
        load()
    except Exception as failure:
        raise ImportError(
            f"verifier plugin {label!r} cannot be imported: {describe(failure)}"
        ) from failure


def _import_file(path: Path) -> ModuleType:
    name = f"veriloop_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, f"{path} is no Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def get(name: str) -> Verifier:
    """The verifier called `name`. Raises KeyError with the nearest known name."""
    known = all_verifiers()
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise KeyError(f"no verifier {name!r}.{hint} Known: {', '.join(sorted(known))}")
    return known[name]


def judge(problem: Problem, response: str) -> Verdict:
    """Judge one response in this process, without a time limit; `exec_s` is filled in.

    Whatever goes wrong inside the verifier is an `error` verdict, never a 0 somebody trains on.
    Raises KeyError for an unknown verifier: a wrong configuration, not a wrong answer.
    """
    one = get(problem.verifier)
    started = time.perf_counter()
    try:
        verdict = _sound(one.check(problem, response), one)
    except (Exception, SystemExit) as failure:  # noqa: BLE001  the boundary to foreign code
        verdict = Verdict(
            score=None, status="error", detail=describe(failure), components=one.without_score()
        )
    return replace(verdict, exec_s=time.perf_counter() - started)


def seconds_for(problem: Problem) -> float:
    """What the verifier of this problem states as its candidate's seconds; 0.0 if it states none
    or if the problem's reference makes no sense, which `judge` then says."""
    seconds = get(problem.verifier).seconds
    try:
        stated = 0.0 if seconds is None else float(seconds(problem))
    except Exception:  # noqa: BLE001  the boundary to foreign code
        return 0.0
    return stated if 0.0 <= stated < math.inf else 0.0


def _sound(verdict: Verdict, one: Verifier) -> Verdict:
    """The verdict in plain numbers that pickle anywhere; raises when it is not a sound one.

    A verdict on nothing may leave its components out.
    """
    if type(verdict) is not Verdict:
        raise TypeError(f"a check must return a Verdict, got {type(verdict).__name__}")
    if not isinstance(verdict.answer, str | None) or not isinstance(verdict.detail, str):
        raise TypeError(
            f"answer and detail must be text, got {verdict.answer!r}, {verdict.detail!r}"
        )
    components = {str(key): float(part) for key, part in verdict.components.items()}
    for key, part in components.items():
        if not math.isfinite(part):
            raise ValueError(f"component {key!r} must be finite, got {part}")
    if not components and verdict.status != "graded":
        components = one.without_score()
    if set(components) != set(one.components):
        told = f"{sorted(components)}, its decorator names {sorted(one.components)}"
        raise ValueError(f"components of {one.name!r} are {told}")
    score = None if verdict.score is None else float(verdict.score)
    return replace(verdict, score=score, components=components)


def describe(failure: BaseException) -> str:
    """An exception in one line: its type and the first line of what it says."""
    said = str(failure).strip().partition("\n")[0]
    return f"{type(failure).__name__}: {said}" if said else type(failure).__name__


def fingerprint(names: Iterable[str]) -> dict[str, str]:
    """What judged a run: name -> "<version>+<12 hex digits of its sources>"."""
    return {name: _fingerprint(get(name)) for name in names}


def _fingerprint(one: Verifier) -> str:
    digest = hashlib.sha256()
    for file in source_files((one.check.__module__, *one.parts)):
        digest.update(file.read_bytes())
    return f"{one.version}+{digest.hexdigest()[:12]}"


def verify_location(package: ModuleType = verifiers) -> None:
    """Raise ImportError unless `package` is our folder: the name is taken by others as well."""
    folder = Path(package.__file__).resolve().parent if package.__file__ else None
    if folder is None or not (folder.parent / "pipeline" / "__init__.py").is_file():
        raise ImportError(
            f"`import verifiers` found {folder or 'no file at all'}, which does not lie beside "
            "pipeline/: another package of that name hides ours. Remove it with "
            "`pip uninstall verifiers`, then run `pip install -e .` in veriloop's folder."
        )
