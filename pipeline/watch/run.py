"""Follows a whole run: its manifest and its stages, with a cursor from which to resume.

The server keeps no state per client. A client that reconnects sends its last cursor and continues
from there, even if another process answers.
"""

import json
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.report import tables
from veriloop.pipeline.report.identity_facts import seconds
from veriloop.pipeline.report.read_run import Run, Stage, step_files
from veriloop.pipeline.watch.latest_rollouts import SampleCache
from veriloop.pipeline.watch.stage import Event, StageFollower

HEADS = ("stage", "status", "time", "pass@1", "goals")
FILES = ("metrics.jsonl", "evaluations.jsonl", "rollouts")  # of a stage; their dates show activity


class RunFollower:
    """Yields what changed in the run in `folder` since `cursor`; everything for an empty one."""

    def __init__(self, folder: Path, cache: SampleCache, cursor: str = "") -> None:
        self._folder, self._cache = folder, cache
        self._client = _parse_cursor(cursor, folder)
        self._manifest = self._client.get("run", 0)  # checksum of the run.json that was sent
        self._date = 0  # of the run.json that was read
        self._stages: dict[str, StageFollower] = {}
        self._started = False
        self._broken = False  # run.json could not be parsed

    def events(self) -> Iterator[tuple[Event, str]]:
        """The changes since the last call, each with the cursor behind it."""
        if not self._started:
            self._started = True
            if not self._client:
                yield ("reset", {"stage": None}), self.cursor
        for event in self._manifest_events():
            yield event, self.cursor
        for stage in self._stages.values():
            if stage.needs_reset:
                stage.needs_reset = False
                yield ("reset", {"stage": stage.name}), self.cursor
            for event in stage.events():
                yield event, self.cursor

    @property
    def cursor(self) -> str:
        """The position up to which changes were yielded."""
        stages = {name: stage.cursor for name, stage in self._stages.items()}
        state = {"of": _folder_id(self._folder), "run": self._manifest, "stages": stages}
        return json.dumps(state, separators=(",", ":"))

    def quiet(self) -> float:
        """Seconds since any file of the run changed."""
        files = [self._folder / stage / file for stage in self._stages for file in FILES]
        dates = [_date(path) for path in (self._folder / "run.json", *files)]
        return max(time.time() - max(dates) / 1e9, 0.0)

    def _manifest_events(self) -> Iterator[Event]:
        path = self._folder / "run.json"
        date = _date(path)
        if date in (0, self._date):
            return
        try:
            content = path.read_bytes()
            run = run_of(self._folder, content)
        except (OSError, RecipeError) as failure:
            self._date, self._broken = date, True
            yield "trouble", {"stage": "", "messages": [str(failure)]}
            return
        self._date = date
        self._follow(run.stages)
        if self._broken:
            self._broken = False
            yield "trouble", {"stage": "", "messages": []}
        if (checksum := zlib.crc32(content)) != self._manifest:
            self._manifest = checksum
            yield "run", summary(run)

    def _follow(self, stages: Sequence[Stage]) -> None:
        followers, cursors = self._stages, self._client.get("stages", {})
        self._stages = {}
        for stage in stages:
            follower = followers.get(stage.name)
            if follower is None:
                follower = StageFollower(stage, self._cache, cursors.pop(stage.name, None))
            else:
                follower.update(stage)
            self._stages[stage.name] = follower


def run_of(folder: Path, content: bytes) -> Run:
    """The run that a run.json describes. Raises RecipeError if it is no run manifest."""
    try:
        manifest = json.loads(content)
        entries = [dict(entry) for entry in manifest["stages"]]
        names = [str(entry["name"]) for entry in entries]
    except (ValueError, TypeError, KeyError) as failure:
        raise RecipeError(f"{folder / 'run.json'} is no run manifest: {failure!r}") from failure
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise RecipeError(f"{folder / 'run.json'}: {name!r} is no valid stage name")
    stages = [
        Stage(name=name, entry=entry, folder=folder / name)
        for name, entry in zip(names, entries, strict=True)
    ]
    return Run(folder=folder, manifest=manifest, stages=stages)


def summary(run: Run) -> Mapping[str, Any]:
    """What the page shows of a run and its stages."""
    return {
        "name": run.name,
        "ended": tables.status_line(run),
        "opens": stage_to_show(run),
        "heads": HEADS,
        "stages": [
            {
                "name": stage.name,
                "status": str(stage.entry.get("status", "unknown")),
                "steps": stage.recipe.get("steps"),
                "failure": (stage.entry.get("outputs") or {}).get("failure"),
                "cells": _cells(stage),
            }
            for stage in run.stages
        ],
    }


def stage_to_show(run: Run) -> str | None:
    """The stage that the page opens: the one that runs, else the last with rollouts, else the last
    with metrics, else the last; None before the first one has begun."""
    running = [s for s in run.stages if s.entry.get("status") == "running"]
    sampled = [s for s in run.stages if step_files(s.folder / "rollouts")]
    measured = [s for s in run.stages if (s.folder / "metrics.jsonl").is_file()]
    last = next((stages[-1] for stages in (running, sampled, measured, run.stages) if stages), None)
    return None if last is None else last.name


def _cells(stage: Stage) -> list[str]:
    """One cell per column of HEADS."""
    elapsed = stage.entry.get("seconds") or 0.0
    return [
        stage.name,
        str(stage.entry.get("status", "unknown")),
        seconds(elapsed) if elapsed else "–",
        tables.change(*stage.after("pass@1")),
        tables.goals(stage),
    ]


def _parse_cursor(cursor: str, folder: Path) -> dict[str, Any]:
    """The parts of a `RunFollower.cursor` of this run; {} for anything else."""
    try:
        state = json.loads(cursor) if cursor else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(state, dict) or state.get("of") != _folder_id(folder):
        return {}
    return state if isinstance(state.get("stages"), dict) else {}


def _folder_id(folder: Path) -> int:
    return zlib.crc32(str(folder.resolve()).encode())


def _date(path: Path) -> int:
    """Modification time in nanoseconds; 0 for a missing file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
