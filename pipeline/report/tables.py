"""Tables of a report as plain rows, for the page and for its Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veriloop.pipeline.report.identity_facts import rows_of, seconds
from veriloop.pipeline.report.read_run import Run, Stage

INTERVAL = " 95%"
FIRST = ("pass@1", "greedy", "general", "format", "language", "accuracy")
SHARES = ("pass@", "maj@", "greedy", "general", "format", "language", "accuracy")
STAGES = ("stage", "status", "data kept / total", "reward", "pass@1", "format", "time", "goals")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A held-out metric before and after a stage, and its gain, each with its 95 % interval if
    recorded. A gain is paired by problem."""

    name: str
    before: float | None
    after: float | None
    before_95: tuple[float, float] | None
    after_95: tuple[float, float] | None
    gain: float | None = None
    gain_95: tuple[float, float] | None = None

    @property
    def gain_text(self) -> str:
        """+0.041 (+0.012 to +0.070), or a dash."""
        if self.gain is None or self.gain_95 is None:
            return "–"
        low, high = self.gain_95
        return f"{self.gain:+.3f} ({low:+.3f} to {high:+.3f})"


def disjoint(first: tuple[float, float] | None, second: tuple[float, float] | None) -> bool:
    """Whether two intervals do not overlap; False if one is missing."""
    if first is None or second is None:
        return False
    return first[1] < second[0] or second[1] < first[0]


def otherwise_asked(name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """What forbids comparing a metric of two recorded evaluations: "other problems" or "another
    temperature", which greedy answers do not have; "" where nothing on record does."""
    hashes = one.get("problems_hash"), other.get("problems_hash")
    if all(hashes) and hashes[0] != hashes[1]:
        return "other problems"
    degrees = one.get("temperature"), other.get("temperature")
    known = None not in degrees and not name.startswith("greedy")
    return "another temperature" if known and degrees[0] != degrees[1] else ""


def beside(stage: Stage, other: Stage, figure: Figure, others: Figure | None) -> tuple[str, str]:
    """The other stage's figure after it, and whether the intervals of the two overlap; or what
    forbids comparing them, where problems, temperature or verifiers are on record as different."""
    if others is None or others.after is None:
        return "–", "–"
    if figure.after_95 is None or others.after_95 is None:
        return number(others.after), "–"
    if difference := otherwise_asked(figure.name, stage.entry["after"], other.entry["after"]):
        return number(others.after), difference
    own, theirs = (s.versions.get("verifiers", {}) for s in (stage, other))
    if any(own[name] != theirs[name] for name in own.keys() & theirs.keys()):
        return number(others.after), "other verifiers"
    apart = disjoint(figure.after_95, others.after_95)
    return number(others.after), "disjoint" if apart else "overlap"


def figures(stage: Stage) -> list[Figure]:
    """Shares measured on held-out problems, in the order of FIRST, then by name."""
    before, after, gains = (stage.entry.get(part) or {} for part in ("before", "after", "gains"))
    names = {n for side in (before, after) for n in side}
    shares = [n for n in names if n.startswith(SHARES) and INTERVAL not in n]
    return [
        Figure(
            name=name,
            before=before.get(name),
            after=after.get(name),
            before_95=_interval(before, name),
            after_95=_interval(after, name),
            gain=gains.get(name),
            gain_95=_interval(gains, name),
        )
        for name in sorted(shares, key=lambda n: (FIRST.index(n) if n in FIRST else len(FIRST), n))
    ]


def _interval(metrics: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    bounds = metrics.get(f"{name}{INTERVAL}")
    return (bounds[0], bounds[1]) if bounds else None


def decoding(stage: Stage) -> str:
    """How a stage was evaluated: problems, samples, temperature, lengths, failures."""
    metrics = stage.entry.get("after") or stage.entry.get("before") or {}
    if "problems" not in metrics:
        return ""
    parts = [
        f"{metrics['problems']} problems, {metrics.get('samples', '?')} samples each",
        f"temperature {metrics.get('temperature', '?'):g}",
        f"mean length {metrics['mean_length']:.1f} tokens" if "mean_length" in metrics else "",
        f"{metrics['truncated']:.1%} cut off" if "truncated" in metrics else "",
        f"{metrics['failed']} not judged" if metrics.get("failed") else "",
    ]
    return ", ".join(part for part in parts if part)


def stage_rows(run: Run) -> list[list[str]]:
    """One row per stage, with the columns STAGES."""
    return [
        [
            stage.name,
            str(stage.entry.get("status", "unknown")),
            "–" if (rows := rows_of(stage)) is None else f"{rows[1]:,} / {rows[0]:,}",
            change(rewards[0], rewards[-1]) if (rewards := stage.column("reward")) else "–",
            change(*stage.after("pass@1")),
            change(*stage.after("format")),
            seconds(stage.entry.get("seconds") or 0.0),
            goals(stage),
        ]
        for stage in run.stages
    ]


def change(before: float | None, after: float | None) -> str:
    """before → after, without a missing side."""
    return " → ".join(number(value) for value in (before, after) if value is not None) or "–"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def goals(stage: Stage) -> str:
    """The word "met", or each missed goal with its value and target."""
    entries = stage.entry.get("goals") or {}
    if not entries:
        return "–"
    missed = [
        f"{name} {number(goal['value']) if goal.get('value') is not None else 'not reported'}, "
        f"target {bounds(goal)}"
        for name, goal in entries.items()
        if not goal["met"]
    ]
    return f"missed: {'; '.join(missed)}" if missed else "met"


def bounds(goal: Mapping[str, Any]) -> str:
    """The target of a goal, such as ≥ 0.9."""
    low, high = goal.get("at_least"), goal.get("at_most")
    parts = [f"≥ {low:g}" if low is not None else "", f"≤ {high:g}" if high is not None else ""]
    parts.append(f"gain ≥ {goal['gain']:g}" if goal.get("gain") is not None else "")
    return " ".join(part for part in parts if part)


def status_line(run: Run) -> str:
    """One line: stages done, stages not done, missed goals."""
    states = {stage.name: str(stage.entry.get("status", "unknown")) for stage in run.stages}
    missed = [stage.name for stage in run.stages if goals(stage).startswith("missed")]
    parts = [f"{list(states.values()).count('done')} of {len(states)} started stages done"]
    parts += [
        f"{name} {'has not ended' if state == 'running' else state}"
        for name, state in states.items()
        if state != "done"
    ]
    return "; ".join([*parts, *(f"{name} missed its goals" for name in missed)])


def ended_well(run: Run) -> bool:
    """Whether every stage that began is done."""
    return all(stage.entry.get("status") == "done" for stage in run.stages)


def counterpart(stage: Stage, other: Run) -> Stage | None:
    """The stage of the other run with the same name and kind."""
    same = other.stage(stage.name)
    return same if same is not None and same.kind == stage.kind else None


def shared(runs: Sequence[Run]) -> Iterator[tuple[Stage, list[tuple[Run, Stage]]]]:
    """The stages of the first run that others have too, each with theirs."""
    for stage in runs[0].stages:
        theirs = [(run, same) for run in runs[1:] if (same := counterpart(stage, run)) is not None]
        if theirs:
            yield stage, theirs


def stage_names(runs: Sequence[Run]) -> list[str]:
    """The names of all stages: those of the first run in its order, then those it lacks."""
    return list(dict.fromkeys(stage.name for run in runs for stage in run.stages))


def side_by_side(runs: Sequence[Run]) -> list[list[str]]:
    """One row per stage: its name, then the columns STAGES[1:] for each run."""
    rows = [{row[0]: row[1:] for row in stage_rows(run)} for run in runs]
    lacking = ["–"] * len(STAGES[1:])
    return [
        [name, *(cell for by_name in rows for cell in by_name.get(name, lacking))]
        for name in stage_names(runs)
    ]
