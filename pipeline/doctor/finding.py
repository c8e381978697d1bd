"""Findings of checks, and how checks are run. A check that raises becomes a failed finding."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Level = Literal["ok", "warn", "fail", "skipped"]
Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the result: what was checked, the verdict, what was measured, how to fix it."""

    name: str
    verdict: Level  # skipped: it could not be checked, or is an optional part that is missing
    measured: str
    fix: str = ""  # a command or a setting; required unless the verdict is "ok"
    number: float | None = None  # the measurement as a number, if it is one

    def __post_init__(self) -> None:
        if self.verdict != "ok" and not self.fix:
            raise ValueError(f"{self.name}: a finding with verdict {self.verdict!r} needs a fix")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[Subject]):
    """A named function that yields one or more findings about a machine or a checkpoint."""

    name: str
    run: Callable[[Subject], Iterator[Finding]]


class UnavailableError(Exception):
    """A check needs something that an earlier finding has reported as broken."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.fix = fix


def ok(name: str, measured: str, number: float | None = None) -> Finding:
    return Finding(name=name, verdict="ok", measured=measured, number=number)


def warn(name: str, measured: str, fix: str, number: float | None = None) -> Finding:
    return Finding(name=name, verdict="warn", measured=measured, fix=fix, number=number)


def fail(name: str, measured: str, fix: str, number: float | None = None) -> Finding:
    return Finding(name=name, verdict="fail", measured=measured, fix=fix, number=number)


def at_least(
    name: str, measured: str, number: float, *, least: float, enough: float, fix: str
) -> Finding:
    """A failure below `least`, a warning below `enough`."""
    if number < least:
        return fail(name, measured, fix, number)
    return warn(name, measured, fix, number) if number < enough else ok(name, measured, number)


def skipped(name: str, reason: str, fix: str) -> Finding:
    return Finding(name=name, verdict="skipped", measured=reason, fix=fix)


def run_checks(checks: Sequence[Check[Subject]], subject: Subject) -> Iterator[Finding]:
    """The findings of every check, in order."""
    for check in checks:
        try:
            yield from check.run(subject)
        except UnavailableError as unavailable:
            yield skipped(check.name, str(unavailable), unavailable.fix)
        except (Exception, SystemExit) as failure:  # noqa: BLE001  checks call foreign code
            yield fail(check.name, f"the check crashed: {first_line(failure)}",
                       "fix the cause of the exception, then run the doctor again")  # fmt: skip


def first_line(failure: BaseException) -> str:
    """An exception's type and the first line of its message."""
    message = next(iter(str(failure).strip().splitlines()), "")
    return f"{type(failure).__name__}: {message}" if message else type(failure).__name__


def passed(findings: Sequence[Finding]) -> bool:
    """Whether no finding failed; warnings and skipped checks pass."""
    return all(finding.verdict != "fail" for finding in findings)
