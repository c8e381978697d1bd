"""Tables of a report as plain rows, for the page and for its Markdown alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report.identity_facts import rows_of, seconds
from pipeline.report.reading import Run, Stage

INTERVAL = " 95%"
FIRST = ("pass@1", "greedy", "general", "format", "language", "accuracy")
SHARES = ("pass@", "maj@", "greedy", "general", "format", "language", "accuracy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A held-out figure before and after a stage, each with its 95 % interval where it has one."""

    name: str
    before: float | None
    after: float | None
    before_95: tuple[float, float] | None
    after_95: tuple[float, float] | None

    @property
    def apart(self) -> bool:
        """Whether the two intervals have nothing in common."""
        if self.before_95 is None or self.after_95 is None:
            return False
        return self.before_95[1] < self.after_95[0] or self.after_95[1] < self.before_95[0]


def figures(stage: Stage) -> list[Figure]:
    """Shares measured on held-out problems, the first ones first."""
    sides = [stage.entry.get(side) or {} for side in ("before", "after")]
    names = {n for side in sides for n in side if n.startswith(SHARES) and INTERVAL not in n}
    order = sorted(names, key=lambda n: (FIRST.index(n) if n in FIRST else len(FIRST), n))
    return [
        Figure(
            name=name,
            before=sides[0].get(name),
            after=sides[1].get(name),
            before_95=_interval(sides[0], name),
            after_95=_interval(sides[1], name),
        )
        for name in order
    ]


def _interval(side: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    found = side.get(f"{name}{INTERVAL}")
    return (found[0], found[1]) if found else None


def decoding(stage: Stage) -> str:
    """How a stage was examined: problems, samples, temperature, what could not be judged."""
    told = stage.entry.get("after") or stage.entry.get("before") or {}
    if "problems" not in told:
        return ""
    parts = [
        f"{told['problems']} problems, {told.get('samples', '?')} samples each",
        f"temperature {told.get('temperature', '?'):g}",
        f"mean length {told['mean_length']:.1f} tokens" if "mean_length" in told else "",
        f"{told['truncated']:.1%} cut off" if "truncated" in told else "",
        f"{told['failed']} not judged" if told.get("failed") else "",
    ]
    return ", ".join(part for part in parts if part)


STAGES = ("stage", "status", "data kept / seen", "reward", "pass@1", "format", "time", "goals")


def stage_rows(run: Run) -> list[list[str]]:
    """One row a stage, as STAGES heads them."""
    return [
        [
            stage.name,
            str(stage.entry.get("status", "unknown")),
            _kept(stage),
            _reward(stage),
            change(*stage.after("pass@1")),
            change(*stage.after("format")),
            seconds(stage.entry.get("seconds") or 0.0),
            goals(stage),
        ]
        for stage in run.stages
    ]


def _kept(stage: Stage) -> str:
    rows = rows_of(stage)
    return "–" if rows is None else f"{rows[1]:,} / {rows[0]:,}"


def _reward(stage: Stage) -> str:
    rewards = stage.column("reward")
    return change(rewards[0], rewards[-1]) if rewards else "–"


def change(before: float | None, after: float | None) -> str:
    """before → after, or what there is of them."""
    told = [number(one) for one in (before, after) if one is not None]
    return " → ".join(told) if told else "–"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def goals(stage: Stage) -> str:
    """met, or each goal that was missed with what was asked."""
    told = stage.entry.get("goals") or {}
    if not told:
        return "–"
    missed = [
        f"{name} {number(one['value']) if one.get('value') is not None else 'not reported'}, "
        f"asked {bounds(one)}"
        for name, one in told.items()
        if not one["met"]
    ]
    return f"missed: {'; '.join(missed)}" if missed else "met"


def bounds(one: Mapping[str, Any]) -> str:
    low, high = one.get("at_least"), one.get("at_most")
    told = [f"≥ {low:g}" if low is not None else "", f"≤ {high:g}" if high is not None else ""]
    return " ".join(part for part in told if part)


def how_it_ended(run: Run) -> str:
    """One line: what is done, what is not, what was missed."""
    states = [str(stage.entry.get("status", "unknown")) for stage in run.stages]
    missed = [stage.name for stage in run.stages if goals(stage).startswith("missed")]
    open_ = [s.name for s, state in zip(run.stages, states, strict=True) if state != "done"]
    parts = [f"{states.count('done')} of {len(states)} begun stages done"]
    parts += [f"{name} {run_state(run, name)}" for name in open_]
    parts += [f"{name} missed its goals" for name in missed]
    return "; ".join(parts)


def run_state(run: Run, name: str) -> str:
    stage = run.stage(name)
    assert stage is not None, "named from the run itself"
    state = stage.entry.get("status", "unknown")
    return "had not ended" if state == "running" else str(state)


def in_both(one: Run, other: Run) -> Sequence[tuple[Stage, Stage]]:
    """Stages of one name and kind in two runs."""
    pairs = ((stage, other.stage(stage.name)) for stage in one.stages)
    return [(a, b) for a, b in pairs if b is not None and a.kind == b.kind]
