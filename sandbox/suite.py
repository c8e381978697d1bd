"""Runs a suite of attacks and honest programs on an executor and reports the effects of attacks.

An attack has an effect if it earns a reward, leaves something behind, prints a secret or takes
longer than allowed. Rewards are assigned by a grading function that the caller passes.
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

from veriloop.sandbox.canaries import Canaries
from veriloop.sandbox.executor import Executor, Program, Stdin
from veriloop.sandbox.languages.polyglot import compile_seconds
from veriloop.sandbox.languages.table import LANGUAGES, named
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.process_leaks import ProcessSnapshot
from veriloop.sandbox.recording import RecordingExecutor
from veriloop.sandbox.result import Execution

GRACE_S = 3.0  # past the wall limit, before an attack counts as overrun
_BUSY = 3  # how much longer tests that are code may take on a busy machine
_WITHIN = "returns_within:"  # an observation: at most this many seconds
_ABSENT = "absent:"  # an observation: the attack must not create this path
CONTAINED = "none"  # the effect of an attack that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One program of a suite and its required outcome."""

    file: str
    source: str = field(repr=False)
    kind: str  # "stdin" or "function"
    tests: Sequence[Mapping[str, Any]] = field(repr=False)
    must: str  # "no_reward", "contained", "killed_within_limit" or "full_reward"
    group: str  # class of attack
    function: str
    language: str
    limits: Limits
    run_after: str  # file to grade first, on the same executor
    run_beside: str  # file that runs at the same time, in another slot
    # Sources of these two files.
    partners: Mapping[str, str] = field(default_factory=dict, repr=False)
    observe: Sequence[str]

    @property
    def slowest_s(self) -> float:
        """Seconds after which grading this case has taken too long."""
        once = self.must == "killed_within_limit"
        runs = 1 if once else len(self.tests)
        if any("assert" in test for test in self.tests):  # their limit is one of CPU time
            runs *= _BUSY
        allowed = [runs * self.limits.wall + compile_seconds(self.language) + GRACE_S]
        return min(allowed + [float(seconds) for seconds in self.observed(_WITHIN)])

    def observed(self, prefix: str) -> list[str]:
        """The arguments of the observations with this prefix."""
        return [text.removeprefix(prefix) for text in self.observe if text.startswith(prefix)]


Grade = Callable[[Executor, Case], tuple[float | None, str]]  # reward, None for no verdict; why


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackResult:
    """What one attack achieved."""

    file: str
    effect: str  # CONTAINED, or all effects joined by "; "
    reward: float | None
    ended: str  # how the last run ended
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HonestResult:
    """Whether an honest program got its full reward."""

    file: str
    accepted: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteReport:
    """The results of a suite on one executor."""

    tier: int
    backend: str
    attacks: Sequence[AttackResult]
    honest: Sequence[HonestResult]
    missing: Sequence[str]  # targets that could not be set up, refused languages

    @property
    def clean(self) -> bool:
        """No attack had an effect, every honest program was accepted."""
        contained = all(attack.effect == CONTAINED for attack in self.attacks)
        return contained and all(program.accepted for program in self.honest)

    def flat(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def load(folder: Path, *, processes: bool = False) -> tuple[list[Case], list[Case]]:
    """Attacks and honest programs of a suite: `manifest.jsonl` and `honest_manifest.jsonl`.

    `processes`: programs may start as many as the suite says, which needs a cgroup; otherwise
    threads only. Raises FileNotFoundError if the folder has no suite, ValueError naming an invalid
    line.
    """
    lists = []
    for name in ("manifest.jsonl", "honest_manifest.jsonl"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} is not a suite: it has no {name}")
        with (folder / name).open(encoding="utf-8", newline="\n") as lines:
            cases = [_case(folder / name, number, line) for number, line in enumerate(lines, 1)]
        if not processes:
            cases = [replace(c, limits=replace(c.limits, processes=0)) for c in cases]
        lists.append(cases)
    return lists[0], lists[1]


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
            partners=_partners(manifest.parent, row),
            observe=tuple(row.get("observe", ())),
        )
    except (KeyError, TypeError, ValueError, OSError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{manifest}, line {number}: {reason}") from error


def _partners(folder: Path, row: Mapping[str, Any]) -> dict[str, str]:
    files = [row[key] for key in ("run_after", "run_beside") if row.get(key)]
    return {file: (folder / file).read_text(encoding="utf-8") for file in files}


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
    executor: Executor,
    targets: Canaries,
    attacks: Sequence[Case],
    honest: Sequence[Case],
    grade: Grade,
    on_result: Callable[[AttackResult | HonestResult], None] = lambda record: None,
) -> SuiteReport:
    """Grade every case and observe its effects on the machine; `on_result` gets each result.

    After each attack the first honest program is graded again, to check that grading still works.
    Set up `targets` before opening the executor, so that it could inherit them. Cases in a language
    that the executor refuses are skipped, and listed in the report.
    """
    absent = refused_languages(executor, [*attacks, *honest])
    attacks = [case for case in attacks if case.language not in absent]
    honest = [case for case in honest if case.language not in absent]
    run = _Run(RecordingExecutor(executor), {case.file: case for case in attacks}, grade, targets)
    run.witness = next((case for case in honest[:1] if grade(executor, case)[0] == 1.0), None)
    attack_results, honest_results = [], []
    for case in attacks:
        attack_results.append(run.attack(case))
        on_result(attack_results[-1])
    for case in honest:
        with run.neighbour(case):
            reward, why = grade(run.executor, case)
        honest_results.append(HonestResult(file=case.file, accepted=reward == 1.0, why=why))
        on_result(honest_results[-1])
    return SuiteReport(
        tier=executor.tier,
        backend=executor.backend,
        attacks=attack_results,
        honest=honest_results,
        missing=(*targets.missing, *absent.values()),
    )


@dataclass(slots=True)
class _Run:
    """One suite on one executor."""

    executor: RecordingExecutor
    by_file: Mapping[str, Case]
    grade: Grade
    targets: Canaries
    witness: Case | None = None  # an honest program that was accepted at the start

    def attack(self, case: Case) -> AttackResult:
        """Grade an attack and collect its effects."""
        paths = case.observed(_ABSENT)
        present = [path for path in paths if os.path.lexists(path)]
        executor, processes = self.executor, ProcessSnapshot(self.targets.secret)
        executor.reset(self.targets.secret)
        if case.run_after:
            self.grade(executor, self._other(case, case.run_after))
        with self.neighbour(case) as neighbour_runs:
            started = time.monotonic()
            reward, why = self.grade(executor, case)
            took_s = time.monotonic() - started - executor.waited_s
        ended = executor.ended
        created = [path for path in paths if path not in present and os.path.lexists(path)]
        effects = [*_reward_effect(case, reward), *_leftovers(created, processes)]
        effects += self._other_effects(case, took_s, neighbour_runs)
        if present:
            why = f"{why}; not observed, as they existed before: {', '.join(present)}"
        effect = "; ".join(effects) or CONTAINED
        return AttackResult(file=case.file, effect=effect, reward=reward, ended=ended, why=why)

    @contextmanager
    def neighbour(self, case: Case) -> Iterator[list[Execution]]:
        """Run the program that `run_beside` names in another slot; yields its runs."""
        if not case.run_beside:
            yield []
            return
        other = self._other(case, case.run_beside)
        program = Program(source=other.source, language=other.language)
        invocation = Stdin(data=str(other.tests[0].get("stdin", "")).encode())
        with self.executor.running_neighbour(program, invocation, other.limits) as runs:
            yield runs

    def _other(self, case: Case, file: str) -> Case:
        """The case of a partner; without its own line it has the tests of `case`."""
        if file in self.by_file:
            return self.by_file[file]
        return replace(case, file=file, source=case.partners[file], run_after="", run_beside="")

    def _other_effects(
        self, case: Case, took_s: float, neighbour_runs: list[Execution]
    ) -> Iterator[str]:
        if self.executor.leaked_secret:
            yield "printed a secret of the host"
        if self.executor.leaked_controls:
            yield "put control characters into a reason"
        if took_s > case.slowest_s:
            yield f"took {took_s:.1f} s of {case.slowest_s:.1f} s"
        if any(run.ended == "sandbox_error" for run in neighbour_runs):
            yield "no verdict for its neighbour"
        if self.witness is not None and self.grade(self.executor.wrapped, self.witness)[0] != 1.0:
            yield f"{self.witness.file} is refused afterwards"


def refused_languages(executor: Executor, cases: Sequence[Case]) -> dict[str, str]:
    """The languages of these cases that the executor refuses, with the first line of the reason."""
    refused = {}
    for name in sorted({case.language for case in cases} - {"python"}):
        try:
            executor.run(Program(source=LANGUAGES[name].sample, language=name), Stdin(), Limits())
        except SandboxUnavailableError as error:
            refused[name] = str(error).splitlines()[0]
    return refused


def _reward_effect(case: Case, reward: float | None) -> Iterator[str]:
    if reward is None:
        yield "no verdict"
    elif reward > 0:
        yield "escaped" if case.must == "contained" else "rewarded"


def _leftovers(paths: Sequence[str], processes: ProcessSnapshot) -> Iterator[str]:
    """Describe and remove files and processes that the attack left, for a clean next case."""
    for path in paths:
        yield f"left {path}"
        with suppress(OSError):
            os.unlink(path)
    if pids := processes.leaked_pids():
        yield f"{len(pids)} processes survived"
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
