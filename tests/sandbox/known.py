"""Cases of the suites that do not end as they should, each with its reason."""

from collections.abc import Sequence

from veriloop.sandbox.probe import probe
from veriloop.sandbox.suite import CONTAINED, AttackResult, HonestResult, SuiteReport

# Tier 2 has no writable file: honest programs that need one are refused there, by design.
NEEDS_FILES = {"honest/023_temp_files.py", "honest/database_in_tmp.py"}
NEEDS_NUMPY = ("honest/202_",)  # beginnings of files; refused where the sandbox's Python has none
OPEN: dict[str, str] = {}  # attacks that have an effect -> why
REFUSED: dict[str, str] = {}  # honest programs -> why they are refused


def unexplained(report: SuiteReport) -> tuple[list[AttackResult], list[HonestResult]]:
    """The attacks that got through and the honest programs that were refused, without a reason."""
    through = [one for one in report.attacks if one.effect != CONTAINED and one.file not in OPEN]
    refused = [one for one in report.honest if not one.accepted]
    allowed = {*REFUSED, *(NEEDS_FILES if report.tier == 2 else ())}
    without = () if _has_numpy() else NEEDS_NUMPY
    return through, [one for one in refused if not _explained(one.file, allowed, without)]


def _explained(file: str, allowed: set[str], beginnings: Sequence[str]) -> bool:
    return file in allowed or file.startswith(tuple(beginnings))


def _has_numpy() -> bool:
    python = probe().python
    return python is not None and python.numpy
