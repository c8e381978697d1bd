"""Runs a suite of attacks and honest programs against an executor and says what got through.

An attack has an effect when it earns a reward, leaves something behind, prints a secret or takes
longer than it may. What earns a reward is not decided here: a grading function is handed in.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sandbox.canaries import Canaries, survivors
from sandbox.executor import Executor, Given, Program
from sandbox.limits import Limits
from sandbox.result import Execution

GRACE_S = 3.0  # past its wall limit, until an attack that is to be killed counts as overrun
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
    limits: Limits
    run_after: str  # a file to be graded first, on the same executor
    observe: Sequence[str]

    @property
    def slowest_s(self) -> float:
        """Seconds after which grading this case has taken too long."""
        once = self.must == "killed_within_limit"
        runs = 1 if once else len(self.tests)
        return runs * self.limits.wall + GRACE_S


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
    missing: Sequence[str]  # targets that could not be set up for the attacks

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
            limits=_limits(row["limits"]),
            run_after=row.get("run_after", ""),
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

    Set up `targets` before the executor is opened, so that it could inherit what it must not.
    """
    watched = _Watched(box)
    by_file = {case.file: case for case in attacks}
    attacked, accepted = [], []
    for case in attacks:
        attacked.append(_attack(watched, case, by_file, grade, targets))
        seen(attacked[-1])
    for case in honest:
        reward, why = grade(watched, case)
        accepted.append(Accepted(file=case.file, accepted=reward == 1.0, why=why))
        seen(accepted[-1])
    return Report(
        tier=box.tier,
        backend=box.backend,
        attacks=attacked,
        honest=accepted,
        missing=targets.missing,
    )


def _attack(
    box: "_Watched", case: Case, by_file: Mapping[str, Case], grade: Grade, targets: Canaries
) -> Attacked:
    paths = [one.removeprefix("absent:") for one in case.observe if one.startswith("absent:")]
    already = [path for path in paths if os.path.lexists(path)]
    box.forget(targets.secret)
    if case.run_after:
        if case.run_after not in by_file:
            raise ValueError(f"{case.file} runs after {case.run_after}, which is not in the suite")
        grade(box, by_file[case.run_after])
    began = time.monotonic()
    reward, why = grade(box, case)
    took = time.monotonic() - began - box.waited_s
    left = [path for path in paths if path not in already and os.path.lexists(path)]
    effects = [*_reward_effect(case, reward), *_left_behind(left)]
    if box.told_secret:
        effects.append("printed a secret of the host")
    if took > case.slowest_s:
        effects.append(f"took {took:.1f} s of {case.slowest_s:.1f} s")
    if already:
        why = f"{why}; not watched, as they were there before: {', '.join(already)}"
    effect = "; ".join(effects) or CONTAINED
    return Attacked(file=case.file, effect=effect, reward=reward, ended=box.ended, why=why)


def _reward_effect(case: Case, reward: float | None) -> Iterator[str]:
    if reward is None:
        yield "no verdict"
    elif reward > 0:
        yield "escaped" if case.must == "contained" else "rewarded"


def _left_behind(paths: Sequence[str]) -> Iterator[str]:
    """What is still there, which is then removed, so that the next case starts clean."""
    for path in paths:
        yield f"left {path}"
        with suppress(OSError):
            os.unlink(path)
    if running := survivors():
        yield f"{len(running)} processes survived"
        for process in running:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


class _Watched:
    """An executor that remembers how the last run ended, and whether any told a secret."""

    def __init__(self, box: Executor) -> None:
        self.box = box
        self.backend = box.backend
        self.tier = box.tier
        self.forget("")

    def forget(self, secret: str) -> None:
        """Before the next case; `secret` is what none of its runs may print."""
        self.ended = "not run"
        self.told_secret = False
        self.waited_s = 0.0  # for a processor, on a busy machine: no attack's doing
        self._secret = secret

    def run(self, program: Program, given: Given, limits: Limits) -> Execution:
        """As Executor.run."""
        return self._seen(self.box.run(program, given, limits))

    def run_all(self, program: Program, given: Sequence[Given], limits: Limits) -> list[Execution]:
        """As Executor.run_all."""
        return [self._seen(ran) for ran in self.box.run_all(program, given, limits)]

    def close(self) -> None:
        """As Executor.close."""
        self.box.close()

    def _seen(self, ran: Execution) -> Execution:
        self.ended = ran.ended
        self.waited_s += ran.waited_s
        if self._secret:
            told = self._secret.encode() in ran.stdout + ran.stderr
            self.told_secret |= told or self._secret in repr(ran.value)
        return ran
