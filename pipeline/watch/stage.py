"""Follows one stage: new rows of metrics and evaluations, and its latest rollouts."""

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from veriloop.pipeline.report.curves import derived, drawn_names, layout, short
from veriloop.pipeline.report.read_run import Stage
from veriloop.pipeline.watch.latest_rollouts import LatestRollouts, SampleCache
from veriloop.pipeline.watch.tail import FilePosition, RewrittenError, Tail

MAX_METRICS = 500  # names
MAX_EVALUATIONS = 1200  # rows
MAX_NUMBER = 2**53  # larger integers are not exact in JavaScript
HELD_OUT = ("pass@1", "greedy")
Event = tuple[str, Any]  # name, and data: JSON values, or a string that is already JSON


class StageFollower:
    """Yields what changed in a stage since the last look. Holds metric names, but no rows."""

    def __init__(self, stage: Stage, cache: SampleCache, cursor: Mapping[str, Any] | None) -> None:
        """`cursor` is the `cursor` of an earlier follower; None starts from the beginning."""
        self.name, folder = stage.name, stage.folder
        self._metrics = Tail(folder / "metrics.jsonl")
        self._evaluations = Tail(folder / "evaluations.jsonl")
        self._names: dict[str, None] = {}  # of metrics, in the order of appearance
        self._held_out: list[dict[str, Any]] = []
        self._layout: list[dict[str, Any]] = []  # charts that the client has
        self._problems: dict[str, str] = {}  # last unreadable line, by file
        self._reported = 0  # checksum of the problems that the client has
        state = _parse_cursor(cursor)
        # Set if the client's data is outdated, because a file was rewritten.
        self.needs_reset = cursor is not None and (
            state is None or not self._metrics.holds(state[0])
        )
        if state is None or self.needs_reset:
            self._rollouts = LatestRollouts(stage, cache, {})
            return
        metrics, evaluations, sent, self._reported = state
        self._rollouts = LatestRollouts(stage, cache, sent)
        self._replay(metrics, evaluations)

    def update(self, stage: Stage) -> None:
        """Replace the stage after its entry in run.json has changed."""
        self._rollouts.stage = stage

    @property
    def cursor(self) -> dict[str, Any]:
        """The position up to which changes were yielded, as JSON values."""
        metrics, evaluations = self._metrics.position, self._evaluations.position
        return {
            "m": [metrics.offset, metrics.mark],
            "e": [evaluations.offset, evaluations.mark],
            "r": {str(step): version for step, version in self._rollouts.sent.items()},
            "t": self._reported,
        }

    def events(self) -> Iterator[Event]:
        """The changes, in a few events. After each event `cursor` is the position behind it."""
        try:
            lines = self._metrics.read()
        except RewrittenError:
            self._forget()
            yield "reset", {"stage": self.name}
            return
        steps, columns = self._add_metrics(lines)
        self._read_evaluations()
        groups = layout(list(self._names), self._held_out)
        if steps or groups != self._layout:
            changed = {} if groups == self._layout else {"groups": groups}
            self._layout = groups
            yield "curves", {"stage": self.name, "steps": steps, "columns": columns, **changed}
        if (sample := self._rollouts.read()) is not None:
            # The sample is large and already JSON, so it is not parsed again.
            yield "rollouts", f'{{"stage":{json.dumps(self.name)},"sample":{sample}}}'
        problems = [*self._problems.values(), *self._rollouts.problems]
        checksum = zlib.crc32(json.dumps(problems).encode()) if problems else 0
        if checksum != self._reported:
            self._reported = checksum
            yield "trouble", {"stage": self.name, "messages": problems}

    def _add_metrics(
        self, lines: Sequence[bytes | None]
    ) -> tuple[list[int], dict[str, list[float | None]]]:
        """The steps of some lines, and by metric one value per step."""
        steps, rows = list[int](), list[dict[str, float]]()
        for line in lines:
            try:
                step, row = parse_metrics(line)
            except ValueError as failure:
                self._problems["metrics"] = f"metrics.jsonl: {failure}"
                continue
            row |= derived(row)
            for name in drawn_names(row):
                if name in self._names or len(self._names) < MAX_METRICS:
                    self._names[name] = None
            steps.append(step)
            rows.append(row)
        names = [name for name in self._names if any(name in row for row in rows)]
        return steps, {name: [short(row.get(name)) for row in rows] for name in names}

    def _read_evaluations(self) -> None:
        try:
            self._add_evaluations(self._evaluations.read())
        except RewrittenError:
            self._held_out = []
            self._add_evaluations(self._evaluations.read())

    def _add_evaluations(self, lines: Sequence[bytes | None]) -> None:
        for line in lines:
            try:
                self._held_out.append(parse_evaluation(line))
            except ValueError as failure:
                self._problems["evaluations"] = f"evaluations.jsonl: {failure}"
        if len(self._held_out) > MAX_EVALUATIONS:
            self._held_out = [*self._held_out[:-1:2], self._held_out[-1]]

    def _replay(self, metrics: FilePosition, evaluations: FilePosition) -> None:
        """Read what the client already has, without yielding it."""
        while lines := self._metrics.read(metrics):
            self._add_metrics(lines)
        if self._evaluations.holds(evaluations):
            while lines := self._evaluations.read(evaluations):
                self._add_evaluations(lines)
            self._layout = layout(list(self._names), self._held_out)

    def _forget(self) -> None:
        self._names, self._held_out, self._layout, self._problems = {}, [], [], {}
        self._reported = 0
        self._evaluations = Tail(self._evaluations.path)
        self._rollouts.sent.clear()


def _parse_cursor(cursor: Any) -> tuple[FilePosition, FilePosition, dict[int, str], int] | None:
    """The parts of a `StageFollower.cursor`; None for anything else, since clients send it."""
    try:
        metrics, evaluations = (FilePosition(*map(_count, cursor[key])) for key in ("m", "e"))
        sent = {int(step): str(version) for step, version in cursor["r"].items()}
        reported = _count(cursor["t"])
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
    return metrics, evaluations, sent, reported


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def parse_metrics(line: bytes | None) -> tuple[int, dict[str, float]]:
    """The step of a line of metrics.jsonl and its finite numbers by name. Raises ValueError."""
    row = _parse_row(line)
    return row["step"], {name: y for name, y in row.items() if name != "step" and _is_finite(y)}


def parse_evaluation(line: bytes | None) -> dict[str, Any]:
    """The step, metrics and intervals of a line of evaluations.jsonl. Raises ValueError."""
    row = _parse_row(line)
    evaluation: dict[str, Any] = {"step": row["step"]}
    if row.get("full") is False:
        problems = row.get("problems")
        evaluation |= {"full": False, "problems": problems if _is_finite(problems) else 0}
    for name in HELD_OUT:
        bounds = row.get(f"{name} 95%")
        if _is_finite(row.get(name)):
            evaluation[name] = row[name]
        if isinstance(bounds, list) and len(bounds) == 2 and all(map(_is_finite, bounds)):
            evaluation[f"{name} 95%"] = bounds
    return evaluation


def _parse_row(line: bytes | None) -> Mapping[str, Any]:
    if line is None:
        raise ValueError("a line that is too long")
    try:
        row = json.loads(line)
    except RecursionError as failure:
        raise ValueError("a line that is nested too deeply") from failure
    step = row.get("step") if isinstance(row, dict) else None
    if type(step) is not int or not 0 <= step < MAX_NUMBER:
        raise ValueError("a line without a step")
    return row


def _is_finite(value: Any) -> bool:
    if type(value) not in (int, float):
        return False
    return abs(value) < MAX_NUMBER if type(value) is int else math.isfinite(value)
