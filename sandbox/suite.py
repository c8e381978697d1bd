"""Runs a suite of attacks and honest programs against an executor and says what got through.

An attack has an effect when it earns a reward, leaves something behind, prints a secret or takes
longer than it may. What earns a reward is not decided here: a grading function is handed in.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sandbox.canaries import Canaries
from sandbox.executor import Executor, Program, Stdin
from sandbox.languages.polyglot import compile_seconds
from sandbox.languages.table import LANGUAGES, named
from sandbox.limits import Limits
from sandbox.probe import SandboxUnavailableError
from sandbox.result import Execution
from sandbox.survivors import Watch
from sandbox.watched import Watched

GRACE_S = 3.0  # past its wall limit, until an attack that is to be killed counts as overrun
_WITHIN = "returns_within:"  # an observation: so many seconds at most
CONTAINED = "none"  # the effect of an attack that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One program of a suite and what must become of it."""

    file: str
    source: str = field(repr=False)
    kind: str  # "stdin" or "function"
    tests: Sequence[Mapping[str, Any]] = field(repr=False)
    must: str  # "no_reward", "contained", "killed_within_limit" or "full_reward"
    group: str  # class of attack
    function: str
    language: str
    limits: Limits
    run_after: str  # a file to be graded first, on the same executor
    run_beside: str  # a file that runs at the same time, in another slot
    observe: Sequence[str]

    @property
    def slowest_s(self) -> float:
        """Seconds after which grading this case has taken too long."""
        once = self.must == "killed_within_limit"
        runs = 1 if once else len(self.tests)
        told = [float(one.partition(":")[2]) for one in self.observe if one.startswith(_WITHIN)]
        return min([runs * self.limits.wall + compile_seconds(self.language) + GRACE_S, *told])


Grade = Callable[[Executor, Case], tuple[float | None, str]]  # reward, None for no verdict; why


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacked:
    """What one attack achieved."""

    file: str
    effect: str  # CONTAINED, or all that happened, joined by "; "
    reward: float | None
    ended: str  # how the last run ended
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Whether an honest program got its full reward."""

    file: str
    accepted: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a suite found on one executor."""

    tier: int
    backend: str
    attacks: Sequence[Attacked]
    honest: Sequence[Accepted]
    missing: Sequence[str]  # targets that could not be set up, languages that are refused

    @property
    def clean(self) -> bool:
        """No attack had an effect, every honest program was accepted."""
        contained = all(one.effect == CONTAINED for one in self.attacks)
        return contained and all(one.accepted for one in self.honest)

    def flat(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def load(folder: Path, *, processes: bool = False) -> tuple[list[Case], list[Case]]:
    """Attacks and honest programs of a suite: `manifest.jsonl` and `honest_manifest.jsonl`.

    `processes`: programs may start as many as the suite says, which needs a machine that can
    bound them together; otherwise threads only. Raises FileNotFoundError when the folder holds no
    suite, ValueError naming a bad line.
    """
    both = []
    for name in ("manifest.jsonl", "honest_manifest.jsonl"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} is no suite: it has no {name}")
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        cases = [_case(folder / name, number, line) for number, line in enumerate(lines, 1)]
        both.append([one if processes else _threads_only(one) for one in cases])
    return both[0], both[1]


def _threads_only(case: Case) -> Case:
    return replace(case, limits=replace(case.limits, processes=0))


def _case(manifest: Path, number: int, line: str) -> Case:
    try:
        row = json.loads(line)
        return Case(
            file=row["file"],
            source=(manifest.parent / row["file"]).read_text(encoding="utf-8"),
            kind=row["kind"],
            tests=row["tests"],
            must=row["must"],
            group=row.get("class", ""),
            function=row.get("fn_name", ""),
            language=named(row.get("language", "python")).name,
            limits=_limits(row["limits"]),
            run_after=row.get("run_after", ""),
            run_beside=row.get("run_beside", ""),
            observe=tuple(row.get("observe", ())),
        )
    except (KeyError, TypeError, ValueError, OSError) as failure:
        told = f"{type(failure).__name__}: {failure}"
        raise ValueError(f"{manifest}, line {number}: {told}") from failure


def _limits(row: Mapping[str, Any]) -> Limits:
    return Limits(
        cpu_s=row["cpu_s"],
        wall_s=row["wall_s"],
        memory_mb=row["mem_mb"],
        disk_mb=row["disk_mb"],
        processes=row["procs"],
        output_bytes=row["out_mb"] << 20,
    )


def run_suite(
    box: Executor,
    targets: Canaries,
    attacks: Sequence[Case],
    honest: Sequence[Case],
    grade: Grade,
    seen: Callable[[Attacked | Accepted], None] = lambda record: None,
) -> Report:
    """Grade every case, watching the machine; `seen` is told of each record as it comes.

    After each attack the first honest program is graded again: the grader must have survived.
    Set up `targets` before the executor is opened, so that it could inherit what it must not.
    Cases in a language that the executor refuses are left out, and the report says so.
    """
    absent = refused_languages(box, [*attacks, *honest])
    attacks = [case for case in attacks if case.language not in absent]
    honest = [case for case in honest if case.language not in absent]
    run = _Run(Watched(box), {case.file: case for case in attacks}, grade, targets)
    run.witness = next((one for one in honest[:1] if grade(box, one)[0] == 1.0), None)
    attacked, accepted = [], []
    for case in attacks:
        attacked.append(run.attack(case))
        seen(attacked[-1])
    for case in honest:
        with run.neighbour(case):
            reward, why = grade(run.box, case)
        accepted.append(Accepted(file=case.file, accepted=reward == 1.0, why=why))
        seen(accepted[-1])
    return Report(
        tier=box.tier,
        backend=box.backend,
        attacks=attacked,
        honest=accepted,
        missing=(*targets.missing, *absent.values()),
    )


@dataclass(slots=True)
class _Run:
    """One suite on one executor."""

    box: Watched
    by_file: Mapping[str, Case]
    grade: Grade
    targets: Canaries
    witness: Case | None = None  # an honest program that was accepted at the start

    def attack(self, case: Case) -> Attacked:
        """Grade it, and look at what it did."""
        paths = [one.removeprefix("absent:") for one in case.observe if one.startswith("absent:")]
        already = [path for path in paths if os.path.lexists(path)]
        box, watch = self.box, Watch(self.targets.secret)
        box.forget(self.targets.secret)
        if case.run_after:
            self.grade(box, self._other(case, case.run_after))
        with self.neighbour(case) as beside:
            began = time.monotonic()
            reward, why = self.grade(box, case)
            took = time.monotonic() - began - box.waited_s
        ended = box.ended
        left = [path for path in paths if path not in already and os.path.lexists(path)]
        effects = [*_reward_effect(case, reward), *_left_behind(left, watch)]
        effects += self._more_effects(case, took, beside)
        if already:
            why = f"{why}; not watched, as they were there before: {', '.join(already)}"
        effect = "; ".join(effects) or CONTAINED
        return Attacked(file=case.file, effect=effect, reward=reward, ended=ended, why=why)

    @contextmanager
    def neighbour(self, case: Case) -> Iterator[list[Execution]]:
        """Keep the program that this one names running beside it; its runs."""
        if not case.run_beside:
            yield []
            return
        other = self._other(case, case.run_beside)
        program = Program(source=other.source, language=other.language)
        given = Stdin(data=str(other.tests[0].get("stdin", "")).encode())
        with self.box.beside(program, given, other.limits) as runs:
            yield runs

    def _other(self, case: Case, file: str) -> Case:
        if file not in self.by_file:
            raise ValueError(f"{case.file} runs with {file}, which is not in the suite")
        return self.by_file[file]

    def _more_effects(self, case: Case, took: float, beside: list[Execution]) -> Iterator[str]:
        if self.box.told_secret:
            yield "printed a secret of the host"
        if self.box.told_controls:
            yield "put control characters into a reason"
        if took > case.slowest_s:
            yield f"took {took:.1f} s of {case.slowest_s:.1f} s"
        if any(ran.ended == "sandbox_error" for ran in beside):
            yield "no verdict for its neighbour"
        if self.witness is not None and self.grade(self.box.box, self.witness)[0] != 1.0:
            yield f"{self.witness.file} is refused afterwards"


def refused_languages(box: Executor, cases: Sequence[Case]) -> dict[str, str]:
    """The languages of these cases that this executor refuses, and the first line of why."""
    refused = {}
    for name in sorted({case.language for case in cases} - {"python"}):
        try:
            box.run(Program(source=LANGUAGES[name].sample, language=name), Stdin(), Limits())
        except SandboxUnavailableError as refusal:
            refused[name] = str(refusal).splitlines()[0]
    return refused


def _reward_effect(case: Case, reward: float | None) -> Iterator[str]:
    if reward is None:
        yield "no verdict"
    elif reward > 0:
        yield "escaped" if case.must == "contained" else "rewarded"


def _left_behind(paths: Sequence[str], watch: Watch) -> Iterator[str]:
    """What is still there, which is then removed, so that the next case starts clean."""
    for path in paths:
        yield f"left {path}"
        with suppress(OSError):
            os.unlink(path)
    if running := watch.survivors():
        yield f"{len(running)} processes survived"
        for process in running:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
