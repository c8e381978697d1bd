"""run.json, the manifest of a run: command, versions, and each stage's inputs and outputs."""

import json
import math
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from veriloop.pipeline.errors import (
    NonFiniteError,
    RecipeError,
    StageError,
    Stopped,
    did_you_mean,
)
from veriloop.pipeline.runs import lineage
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.json_file import RESTORE, read_manifest
from veriloop.pipeline.runs.provenance import identity
from veriloop.sandbox.remote.redaction import redacted

AGAIN = "again"  # key of an entry: the finished stage was asked for again and has not begun
_opened: set[tuple[Path, str]] = set()  # (manifest, command) opened by this process


def typed() -> list[str]:
    """The command line of this process, as a user types it, without secrets."""
    program, *rest = map(redacted, sys.argv)
    is_veriloop = program.endswith(("stages/cli.py", "bin/veriloop"))
    return ["veriloop" if is_veriloop else program, *rest]


class RunManifest:
    """`run.json`, rewritten atomically at every change.

    Opening an existing one keeps its stages, so a resumed run knows which are done. The identity of
    the first command stays; those of later commands are appended to "resumed". Nothing is written
    before the first stage begins.
    """

    def __init__(self, path: Path, *, command: Sequence[str] | None = None) -> None:
        opened = {
            "started": _now(),
            "command": shlex.join(typed() if command is None else command),
        }
        self.path, environment = path, identity()
        versions, commit = environment["versions"], environment["git"]
        self._code = {"veriloop": versions.get("veriloop"), **commit}
        key = (path.absolute(), opened["command"])
        if path.exists():
            self._run = _read(path)
            if key not in _opened:  # the stages of one command are one run
                self._run["resumed"].append(opened | environment)
        else:
            name = path.absolute().parent.name
            self._run = {"name": name, "seconds": 0.0, **opened, **environment}
            self._run |= {"resumed": [], "stages": []}
        _opened.add(key)

    @property
    def stages(self) -> tuple[Mapping[str, Any], ...]:
        """The stages in the order they first began."""
        return tuple(self._run["stages"])

    def is_done(self, name: str) -> bool:
        """Whether the stage completed, in this process or an earlier one."""
        return any(entry["name"] == name and entry["status"] == "done" for entry in self.stages)

    def begin_stage(
        self,
        name: str,
        inputs: Mapping[str, Any],
        reads: Mapping[str, Any] | None = None,
        allowed_changes: Sequence[Mapping[str, str]] = (),
        seconds: float = 0.0,
    ) -> None:
        """Record that a stage runs on `inputs` (JSON values: paths, counts, the recipe).

        `reads` is the result of `lineage.read_by`; the version of the code is added.
        `allowed_changes` are those in spite of which it is resumed, `seconds` the wall time that it
        ran before. An earlier entry of that name is replaced in its position.
        """
        entry = {
            "name": name,
            "status": "running",
            "started": _now(),
            "seconds": float(seconds),
            "sampler": None,
            "before": {},
            "after": {},
            "gains": {},
            "inputs": dict(inputs),
            "outputs": {},
            "lineage": {**(reads or {}), "code": self._code},
        }
        if allowed_changes:
            entry["allowed_changes"] = list(allowed_changes)
        names = [stage["name"] for stage in self.stages]
        index = names.index(name) if name in names else len(names)
        self._write([*self.stages[:index], entry, *self.stages[index + 1 :]])

    def end_stage(
        self,
        name: str,
        seconds: float,
        sampler: str | None,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        outputs: Mapping[str, Any],
        *,
        gains: Mapping[str, Any] = MappingProxyType({}),
        status: Literal["done", "failed"] = "done",
    ) -> None:
        """Record the result of a stage. `before`, `after` and `gains` are values by metric name.

        Outputs that are checkpoints or files are hashed; verifier fingerprints and the sandbox are
        read from the stage's folder. `seconds` is the stage's wall time over all resumptions; the
        run's is the sum over stages. Raises KeyError for a stage that has not begun, and ValueError
        for values that JSON cannot hold.
        """
        entry = self._entry(name)
        hashes = {
            **lineage.judges(self.path.parent / name),
            "outputs": lineage.output_hashes(outputs),
        }
        ended = {
            "status": status,
            "seconds": float(seconds),
            "sampler": sampler,
            "before": dict(before),
            "after": dict(after),
            "gains": dict(gains),
            "outputs": dict(outputs),
            "lineage": entry.get("lineage", {}) | hashes,
        }
        self.note(name, ended)

    def note(self, name: str, facts: Mapping[str, Any]) -> None:
        """Set keys of a stage's entry. Raises as `end_stage` does."""
        changed = self._entry(name) | dict(facts)
        self._write([changed if entry["name"] == name else entry for entry in self.stages])

    def _entry(self, name: str) -> dict[str, Any]:
        entries = {entry["name"]: entry for entry in self.stages}
        if name not in entries:
            hint = did_you_mean(name, entries)
            raise KeyError(
                f"stage {name!r} has not begun in {self.path}.{hint} Begun: {list(entries)}"
            )
        return dict(entries[name])

    def _write(self, stages: Sequence[Mapping[str, Any]]) -> None:
        run = self._run | {"stages": stages, "seconds": sum(entry["seconds"] for entry in stages)}
        text = _text(run, self.path)
        write_atomically(self.path, lambda draft: draft.write_text(text, encoding="utf-8"))
        self._run = json.loads(text)


def recorded(path: Path) -> dict[str, Mapping[str, Any]]:
    """The entries of the stages in a run.json, by name; empty without the file."""
    stages = _read(path)["stages"] if path.exists() else []
    return {entry["name"]: entry for entry in stages}


def write_versions(
    path: Path,
    verifiers: Mapping[str, str],
    sandbox: Mapping[str, Any] = MappingProxyType({}),
    allowed_changes: Sequence[Mapping[str, str]] = (),
) -> None:
    """Write versions.json: `identity()`, the verifiers' fingerprints by name, the sandbox, and the
    changes of verifiers in spite of which the stage was resumed."""
    judges: dict[str, Any] = {"verifiers": dict(verifiers)}
    if sandbox:
        judges["sandbox"] = dict(sandbox)
    if allowed_changes:
        judges["allowed_changes"] = list(allowed_changes)
    text = _text(identity() | judges, path)
    write_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def _text(value: Mapping[str, Any], path: Path) -> str:
    """The value as JSON. Raises NonFiniteError for a number that is not finite, and ValueError for
    anything else that JSON cannot hold."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as failure:
        said = f"{path} can only hold JSON with finite numbers"
        for key, number in _not_finite(value):
            raise NonFiniteError(f"{said}: {key} is {number}") from failure
        raise ValueError(f"{said}: {failure}") from failure


def _not_finite(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """The dotted keys of numbers that are not finite, and the numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        yield key, value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _not_finite(part, f"{key}.{name}".removeprefix("."))
    elif isinstance(value, list | tuple):
        for place, part in enumerate(value):
            yield from _not_finite(part, f"{key}.{place}")


def _read(path: Path) -> dict[str, Any]:
    run = read_manifest(path)
    missing = {"name", "stages", "resumed"} - run.keys()
    if missing:
        raise RecipeError(
            f"{path} is no run manifest: it lacks {', '.join(sorted(missing))}. {RESTORE}"
        )
    return run


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def failure_recorded(
    manifest: RunManifest, name: str, seconds: Callable[[], float]
) -> Iterator[None]:
    """Record the stage `name`, which has begun, as failed when an exception passes through.

    A stop is no failure, its time alone is recorded, and a stage that is done stays done. If the
    record cannot be written, for example because the disk is full, a line on stderr says so; the
    exception is raised unchanged.
    """
    try:
        yield
    except (Stopped, KeyboardInterrupt, SystemExit):
        if not manifest.is_done(name):
            stopped = {"seconds": float(seconds())}
            _record(manifest, f"lacks the time of {name}", lambda: manifest.note(name, stopped))
        raise
    except Exception as failure:
        if not manifest.is_done(name):
            _record_failure(manifest, name, seconds(), failure)
        raise


def _record_failure(manifest: RunManifest, name: str, seconds: float, failure: Exception) -> None:
    (sampler,) = (entry["sampler"] for entry in manifest.stages if entry["name"] == name)
    outputs = {"failure": reason(failure)}
    _record(
        manifest,
        f"still says that {name} is running",
        lambda: manifest.end_stage(name, seconds, sampler, {}, {}, outputs, status="failed"),
    )


def _record(manifest: RunManifest, what: str, write: Callable[[], None]) -> None:
    """`write`; where it fails, a line on stderr says what is wrong with the manifest."""
    try:
        write()
    except Exception as second:  # noqa: BLE001  the first failure is the one to report
        print(
            f"WARNING: {manifest.path} {what}, as it could not be written: {reason(second)}",
            file=sys.stderr,
        )


def reason(failure: Exception) -> str:
    """The message of a failure without secrets; of an unexpected one it begins with its class."""
    expected = isinstance(failure, StageError | RecipeError)
    return redacted(str(failure) if expected else f"{type(failure).__name__}: {failure}")
