"""The attack suite per backend, tier and account: attacks with an effect, refused honest programs.

    python benchmarks/sandbox_suite.py [--quick] [--json FILE] [--suite DIR ...]

As root it runs as root and as an ordinary user; the files that user needs are copied to a readable
folder. What this machine does not support is listed in the table, with the reason.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from publish import ROOT, arguments, publish, table

from veriloop.data.jsonl import read_rows
from veriloop.sandbox.interpreter import find
from veriloop.sandbox.suite import CONTAINED

OWN = ROOT / "tests" / "sandbox" / "cases"
PACKAGES = ("sandbox", "verifiers", "data")
USER = 47_631  # an id that nobody has
QUICK = ("channel_", "fd_")  # attacks of a quick run, by the beginning of their file
# Tier 2 has no writable file: honest programs that need one are refused there, by design.
NEEDS_FILES = ("honest/023_temp_files.py", "honest/database_in_tmp.py")
LIMIT_S = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The account, backend and tier for one run of the suite."""

    name: str
    tier: int
    user: int | None = None  # None: our own account
    processes: bool = False  # programs may start some
    backend: str = "namespace"


def settings(*, quick: bool) -> Iterator[Setting]:
    """All settings, whether or not this machine supports them; two in a quick run."""
    if quick:
        yield Setting(name="ordinary user", tier=1, user=None if os.geteuid() else USER)
        yield Setting(name="root" if os.geteuid() == 0 else "ordinary user", tier=2)
        return
    if os.geteuid() == 0:
        yield Setting(name="root", tier=1)
        yield Setting(name="root, processes allowed", tier=1, processes=True)
        yield Setting(name="root", tier=2)
        yield Setting(name="ordinary user", tier=1, user=USER)
        yield Setting(name="ordinary user", tier=2, user=USER)
    else:
        yield Setting(name="ordinary user", tier=1)
        yield Setting(name="ordinary user", tier=2)
    yield Setting(name="docker", tier=0, backend="docker")


@contextmanager
def readable(suite: Path, *, quick: bool) -> Iterator[Path]:
    """A copy of the packages and the suite that every account can read."""
    with tempfile.TemporaryDirectory(prefix="veriloop-suite-") as folder:
        copy = Path(folder)
        skip = shutil.ignore_patterns("__pycache__")
        for name in PACKAGES:
            shutil.copytree(ROOT / name, copy / "veriloop" / name, ignore=skip)
        shutil.copytree(suite, copy / "suite", ignore=skip)
        shutil.copy(Path(__file__).parent / "suite_child.py", copy)
        if quick:
            _cut(copy / "suite")
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield copy


def _cut(suite: Path) -> None:
    """Keep a few attacks, one honest program in two, and the attacks that one of them needs."""
    manifest, fair = suite / "manifest.jsonl", suite / "honest_manifest.jsonl"
    rows, honest = list(read_rows(manifest)), list(read_rows(fair))[::2]
    kept = [row for row in rows if row["file"].startswith(QUICK)] or rows[:5]
    needed = {row.get(key) for row in kept + honest for key in ("run_after", "run_beside")}
    kept += [row for row in rows if row["file"] in needed and row not in kept]
    for file, left in ((manifest, kept), (fair, honest)):
        file.write_text("".join(json.dumps(row) + "\n" for row in left))


def run(setting: Setting, copy: Path) -> dict[str, Any]:
    """The report of one setting; `skipped` with the reason if it is not supported."""
    if setting.backend != "namespace":
        return _by_command(setting.backend, copy)
    words = [str(copy / "suite_child.py"), str(copy), str(copy / "suite"), str(setting.tier)]
    words.append("processes" if setting.processes else "threads")
    account: dict[str, Any] = {}
    if setting.user is not None:
        account = {"user": setting.user, "group": setting.user, "extra_groups": []}
    ran = subprocess.run(
        [find().path, "-B", *words],
        capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd="/", **account,
    )  # fmt: skip
    if ran.returncode:
        raise RuntimeError(f"{setting.name}, tier {setting.tier}: {ran.stderr[-800:]}")
    return json.loads(ran.stdout)


def _by_command(backend: str, copy: Path) -> dict[str, Any]:
    """Run by the command line, on an image built from this tree."""
    file = copy / "report.json"
    check = ["check", "--backend", backend, "--suite", str(copy / "suite"), "--json", str(file)]
    for words in (["build-image"], check):
        ran = subprocess.run(
            [sys.executable, "-m", "veriloop.stages.cli", "sandbox", *words],
            cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    if not file.exists():
        return {"skipped": (ran.stderr.strip().splitlines() or ["it said nothing"])[-1]}
    return json.loads(file.read_text())


def row(setting: Setting, suite: Path, report: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The summary of one report."""
    labels = {"suite": suite.name, "who": setting.name, "tier": report.get("tier", setting.tier)}
    if "skipped" in report:
        return {**labels, "skipped": report["skipped"]}
    allowed = NEEDS_FILES if labels["tier"] == 2 else ()
    refused = [entry for entry in report["honest"] if not entry["accepted"]]
    return {
        **labels,
        "attacks": len(report["attacks"]),
        "effects": [entry for entry in report["attacks"] if entry["effect"] != CONTAINED],
        "honest": len(report["honest"]),
        "refused": [entry for entry in refused if entry["file"] not in allowed],
        "needs_files": [entry["file"] for entry in refused if entry["file"] in allowed],
        "missing": report["missing"],
        "seconds": seconds,
    }


def cells(result: dict[str, Any]) -> list[str]:
    """One line of the matrix."""
    start = [result["suite"], result["who"], str(result["tier"] or "-")]
    if "skipped" in result:
        return [*start, "-", "-", "-", "-", f"skipped: {result['skipped']}"[:90]]
    notes = [f"needs files: {', '.join(result['needs_files'])}"] if result["needs_files"] else []
    notes += [f"no target: {', '.join(result['missing'])}"] if result["missing"] else []
    counts = [result["attacks"], len(result["effects"]), result["honest"], len(result["refused"])]
    return [*start, *map(str, counts), "; ".join(notes)]


def missed(result: dict[str, Any]) -> list[str]:
    """Every effect and every refusal, by name."""
    where = f"{result['suite']}, {result['who']}, tier {result['tier']}"
    failures = [
        f"{where}: {entry['file']}: {entry['effect']}" for entry in result.get("effects", ())
    ]
    refused = result.get("refused", ())
    return failures + [f"{where}: {entry['file']} refused: {entry['why']}" for entry in refused]


def main() -> int:
    options = arguments(
        __doc__ or "",
        suite={"type": Path, "action": "append", "help": "another suite beside our own"},
    )
    results = []
    for suite in (OWN, *(options.suite or ())):
        with readable(suite, quick=options.quick) as copy:
            for setting in settings(quick=options.quick):
                began = time.monotonic()
                report = run(setting, copy)
                results.append(row(setting, suite, report, time.monotonic() - began))
    header = ["suite", "account", "tier", "attacks", "effects", "honest", "refused", "notes"]
    failed = [failure for result in results for failure in missed(result)]
    if all("skipped" in result for result in results):
        failed.append("nothing could be run")
    return publish(
        options, table(header, [cells(result) for result in results]), results, failed=failed
    )


if __name__ == "__main__":
    sys.exit(main())
