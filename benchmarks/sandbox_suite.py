"""The attack suite, per backend, tier and account: what got through and what was refused.

    python benchmarks/sandbox_suite.py [--quick] [--json FILE] [--suite DIR ...]

As root it runs as root and as an ordinary user in turn; the parts that user needs are copied to
where anybody may read them. What this machine cannot do is named in the table, with the reason.
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
    """Who runs the suite, and on what."""

    name: str
    tier: int
    user: int | None = None  # None: our own account
    processes: bool = False  # programs may start some
    backend: str = "namespace"


def settings(*, quick: bool) -> Iterator[Setting]:
    """Every setting worth a row, whether or not this machine can give it; of a quick run two."""
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
        place = Path(folder)
        skip = shutil.ignore_patterns("__pycache__")
        for name in PACKAGES:
            shutil.copytree(ROOT / name, place / "veriloop" / name, ignore=skip)
        shutil.copytree(suite, place / "suite", ignore=skip)
        shutil.copy(Path(__file__).parent / "suite_child.py", place)
        if quick:
            _cut(place / "suite")
        for path in (place, *place.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield place


def _cut(suite: Path) -> None:
    """Keep a few attacks, one honest program in two, and the attacks that one of them needs."""
    manifest, fair = suite / "manifest.jsonl", suite / "honest_manifest.jsonl"
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    honest = [json.loads(line) for line in fair.read_text().splitlines()[::2]]
    kept = [row for row in rows if row["file"].startswith(QUICK)] or rows[:5]
    needed = {row.get(key) for row in kept + honest for key in ("run_after", "run_beside")}
    kept += [row for row in rows if row["file"] in needed and row not in kept]
    for file, left in ((manifest, kept), (fair, honest)):
        file.write_text("".join(json.dumps(row) + "\n" for row in left))


def run(setting: Setting, place: Path) -> dict[str, Any]:
    """The report of one setting; `skipped` with the reason where it cannot be had."""
    if setting.backend != "namespace":
        return _by_command(setting.backend, place)
    words = [str(place / "suite_child.py"), str(place), str(place / "suite"), str(setting.tier)]
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


def _by_command(backend: str, place: Path) -> dict[str, Any]:
    """By the command line, on an image built of this tree."""
    file = place / "report.json"
    check = ["check", "--backend", backend, "--suite", str(place / "suite"), "--json", str(file)]
    for words in (["build-image"], check):
        ran = subprocess.run(
            [sys.executable, "-m", "veriloop.stages.cli", "sandbox", *words],
            cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    if not file.exists():
        return {"skipped": (ran.stderr.strip().splitlines() or ["it said nothing"])[-1]}
    return json.loads(file.read_text())


def row(setting: Setting, suite: Path, report: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What one report comes to."""
    told = {"suite": suite.name, "who": setting.name, "tier": report.get("tier", setting.tier)}
    if "skipped" in report:
        return {**told, "skipped": report["skipped"]}
    allowed = NEEDS_FILES if told["tier"] == 2 else ()
    refused = [one for one in report["honest"] if not one["accepted"]]
    return {
        **told,
        "attacks": len(report["attacks"]),
        "effects": [one for one in report["attacks"] if one["effect"] != CONTAINED],
        "honest": len(report["honest"]),
        "refused": [one for one in refused if one["file"] not in allowed],
        "needs_files": [one["file"] for one in refused if one["file"] in allowed],
        "missing": report["missing"],
        "seconds": seconds,
    }


def cells(found: dict[str, Any]) -> list[str]:
    """One line of the matrix."""
    start = [found["suite"], found["who"], str(found["tier"] or "-")]
    if "skipped" in found:
        return [*start, "-", "-", "-", "-", f"skipped: {found['skipped']}"[:90]]
    notes = [f"needs files: {', '.join(found['needs_files'])}"] if found["needs_files"] else []
    notes += [f"no target: {', '.join(found['missing'])}"] if found["missing"] else []
    counts = [found["attacks"], len(found["effects"]), found["honest"], len(found["refused"])]
    return [*start, *map(str, counts), "; ".join(notes)]


def missed(found: dict[str, Any]) -> list[str]:
    """Every effect and every refusal, by name."""
    where = f"{found['suite']}, {found['who']}, tier {found['tier']}"
    told = [f"{where}: {one['file']}: {one['effect']}" for one in found.get("effects", ())]
    refused = found.get("refused", ())
    return told + [f"{where}: {one['file']} refused: {one['why']}" for one in refused]


def main() -> int:
    options = arguments(
        __doc__ or "",
        suite={"type": Path, "action": "append", "help": "another suite beside our own"},
    )
    found = []
    for suite in (OWN, *(options.suite or ())):
        with readable(suite, quick=options.quick) as place:
            for setting in settings(quick=options.quick):
                began = time.monotonic()
                report = run(setting, place)
                found.append(row(setting, suite, report, time.monotonic() - began))
    header = ["suite", "account", "tier", "attacks", "effects", "honest", "refused", "notes"]
    failed = [told for one in found for told in missed(one)]
    if all("skipped" in one for one in found):
        failed.append("nothing could be run")
    return publish(options, table(header, [cells(one) for one in found]), found, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
