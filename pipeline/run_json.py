"""The manifest of a run: what was asked, on what, and what each stage took, did and left."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pipeline import lineage
from pipeline.durable import write_atomically
from pipeline.identity import identity

_opened: set[tuple[Path, str]] = set()  # manifests of this process, by their command


def typed() -> list[str]:
    """The words that began this process, as a user types them."""
    program, *rest = sys.argv
    ours = program.endswith(("stages/command.py", "bin/veriloop"))
    return ["veriloop" if ours else program, *rest]


class RunManifest:
    """`run.json`, rewritten whole at every change, so that a reader never finds half of it.

    Opening one that exists keeps its stages: that is how a resumed run knows what is done. The
    first identity stays, and that of each later command joins the list "resumed". Nothing is
    written before the first stage begins.
    """

    def __init__(self, path: Path, *, command: Sequence[str] | None = None) -> None:
        opened = {
            "started": _now(),
            "command": shlex.join(typed() if command is None else command),
        }
        self.path, known = path, identity()
        self._code = {"veriloop": known["versions"].get("veriloop"), **known["git"]}
        here = (path.absolute(), opened["command"])
        if path.exists():
            self._run = _read(path)
            if here not in _opened:  # the stages of one command are one run
                self._run["resumed"].append(opened | known)
        else:
            name = path.absolute().parent.name
            self._run = {"name": name, "seconds": 0.0, **opened, **known}
            self._run |= {"resumed": [], "stages": []}
        _opened.add(here)

    @property
    def stages(self) -> tuple[Mapping[str, Any], ...]:
        """The stages in the order they first began."""
        return tuple(self._run["stages"])

    def is_done(self, name: str) -> bool:
        """Whether the stage ended well, in this process or in one before it."""
        return any(one["name"] == name and one["status"] == "done" for one in self.stages)

    def begin_stage(
        self, name: str, inputs: Mapping[str, Any], reads: Mapping[str, Any] | None = None
    ) -> None:
        """Note that a stage runs on `inputs` (JSON values: paths, counts, the recipe).

        `reads` is what `lineage.read_by` makes of them; the version of the code joins it. A stage
        of that name from before, done or not, starts anew in its old place.
        """
        fresh = {
            "name": name,
            "status": "running",
            "started": _now(),
            "seconds": 0.0,
            "sampler": None,
            "before": {},
            "after": {},
            "inputs": dict(inputs),
            "outputs": {},
            "lineage": {**(reads or {}), "code": self._code},
        }
        names = [one["name"] for one in self.stages]
        at = names.index(name) if name in names else len(names)
        self._write([*self.stages[:at], fresh, *self.stages[at + 1 :]])

    def end_stage(
        self,
        name: str,
        seconds: float,
        sampler: str | None,
        before: Mapping[str, float],
        after: Mapping[str, float],
        outputs: Mapping[str, Any],
        *,
        status: Literal["done", "failed"] = "done",
    ) -> None:
        """Note what a begun stage came to. `before` and `after` are evaluations by metric name.

        Outputs that are checkpoints or files are hashed; the verifiers are those that the stage
        noted in its folder. `seconds` is the stage's wall time, all its resumptions together; the
        run's is their sum. Raises KeyError for a stage that never began and ValueError for what
        JSON cannot hold.
        """
        one = self._begun(name)
        traced = {
            "verifiers": lineage.judged_by(self.path.parent / name),
            "outputs": lineage.made_of(outputs),
        }
        ended = {
            "status": status,
            "seconds": float(seconds),
            "sampler": sampler,
            "before": dict(before),
            "after": dict(after),
            "outputs": dict(outputs),
            "lineage": one.get("lineage", {}) | traced,
        }
        self.note(name, ended)

    def note(self, name: str, facts: Mapping[str, Any]) -> None:
        """Set keys of a begun stage's entry. Raises as `end_stage` does."""
        told = self._begun(name) | dict(facts)
        self._write([told if one["name"] == name else one for one in self.stages])

    def _begun(self, name: str) -> dict[str, Any]:
        entries = {one["name"]: one for one in self.stages}
        if name not in entries:
            close = get_close_matches(name, entries, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise KeyError(
                f"stage {name!r} never began in {self.path}.{hint} Begun: {list(entries)}"
            )
        return dict(entries[name])

    def _write(self, stages: Sequence[Mapping[str, Any]]) -> None:
        run = self._run | {"stages": stages, "seconds": sum(one["seconds"] for one in stages)}
        text = _text(run, self.path)
        write_atomically(self.path, lambda fresh: fresh.write_text(text, encoding="utf-8"))
        self._run = json.loads(text)


def recorded(path: Path) -> dict[str, Mapping[str, Any]]:
    """The entries of the stages in a run.json, by name; none where there is no such file."""
    stages = _read(path)["stages"] if path.exists() else []
    return {one["name"]: one for one in stages}


def write_versions(path: Path, verifiers: Mapping[str, str]) -> None:
    """Write versions.json: `identity()` and the fingerprint of each verifier by its name."""
    text = _text(identity() | {"verifiers": dict(verifiers)}, path)
    write_atomically(path, lambda fresh: fresh.write_text(text, encoding="utf-8"))


def _text(value: Mapping[str, Any], path: Path) -> str:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as failure:
        raise ValueError(f"{path} can hold JSON values and finite numbers: {failure}") from failure


def _read(path: Path) -> dict[str, Any]:
    try:
        run = json.loads(path.read_bytes())
    except ValueError as failure:
        raise ValueError(
            f"{path} is not JSON ({failure}); put a copy back, or move it away to start afresh"
        ) from failure
    lacks = {"name", "stages", "resumed"} - (run.keys() if isinstance(run, dict) else set())
    if lacks:
        raise ValueError(f"{path} is no run manifest: it lacks {sorted(lacks)}; move it away")
    return run


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
