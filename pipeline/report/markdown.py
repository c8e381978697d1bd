"""Markdown whose cells are escaped, and the report as Markdown for pull requests and terminals."""

from collections.abc import Sequence

from veriloop.pipeline.report import identity_facts, outcome, tables
from veriloop.pipeline.report.checks import Check
from veriloop.pipeline.report.read_run import Run
from veriloop.pipeline.report.reward_hacks import RewardHackAlarms
from veriloop.pipeline.report.sections import LEVELS, MARKS
from veriloop.pipeline.runs.console import clip, plain

MAX_CELL = 160  # characters
MARKUP = "\\`|<>[]*_"
LINKS = {"://": "\\://", "www.": "www\\."}  # Markdown readers turn these into links


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; every cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


def cell(text: str) -> str:
    """The text of a table's cell: `escaped`, and clipped."""
    return escaped(clip(text, MAX_CELL))


def escaped(text: str) -> str:
    """The text on one line, with Markdown syntax and links escaped."""
    line = plain(text)
    for sign in MARKUP:
        line = line.replace(sign, f"\\{sign}")
    for prefix, replacement in LINKS.items():
        line = line.replace(prefix, replacement)
    return line


def with_interval(value: float | None, bounds: tuple[float, float] | None) -> str:
    """0.912 (0.880 to 0.936); a dash for a missing value."""
    if value is None:
        return "–"
    return f"{value:.3f}" + (f" ({bounds[0]:.3f} to {bounds[1]:.3f})" if bounds else "")


def markdown(
    runs: Sequence[Run],
    checks: Sequence[Check],
    alarms: Sequence[tuple[str, RewardHackAlarms]],
) -> str:
    """The report of the first run: outcome, health, stages, evaluations, reward-hack alarms, recipe
    changes and identity; outcomes, stages and settings of the others. `alarms` are by stage."""
    run = runs[0]
    parts = [
        f"# {escaped(run.name)}",
        f"{escaped(outcome.line(run))}.",
        f"{escaped(tables.status_line(run))}.",
        *_others(runs[1:]),
        "## Health",
        table(("", "question", "measured", "stage", "rule"), [_check(check) for check in checks]),
        "## Stages",
        _stages(runs),
        *_dropped(run),
        *_evaluations(run),
        *_alarms(alarms),
        *_flips(run),
        *_recipes(run),
        *(_compared(runs) if len(runs) > 1 else []),
        "## Identity",
        "\n".join(f"- {name}: {escaped(text)}" for name, text in identity_facts.facts(run)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _others(others: Sequence[Run]) -> list[str]:
    lines = (
        f"- {escaped(run.name)}: {escaped(outcome.line(run))}; {escaped(tables.status_line(run))}"
        for run in others
    )
    return ["Beside it:", "\n".join(lines)] if others else []


def _stages(runs: Sequence[Run]) -> str:
    """A row per stage, and per run if there are several."""
    if len(runs) == 1:
        return table(tables.STAGES, tables.stage_rows(runs[0]))
    by_run = [(run.name, {row[0]: row for row in tables.stage_rows(run)}) for run in runs]
    rows = [
        [name, run, *rows[name][1:]]
        for name in tables.stage_names(runs)
        for run, rows in by_run
        if name in rows
    ]
    return table((tables.STAGES[0], "run", *tables.STAGES[1:]), rows)


def _check(check: Check) -> list[str]:
    question = check.question
    level = f"{MARKS[check.level]} {LEVELS[check.level]}"
    return [level, question.asks, check.number, check.stage, question.rule]


def _dropped(run: Run) -> list[str]:
    rows = []
    for stage in run.stages:
        if (counts := identity_facts.rows_of(stage)) is not None:
            total, kept, dropped = counts
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
            rows.append([stage.name, f"{total:,}", f"{kept:,}", reasons or "none"])
    return [table(("stage", "rows in", "kept", "dropped"), rows)] if rows else []


def _evaluations(run: Run) -> list[str]:
    rows = [
        [
            stage.name,
            figure.name,
            with_interval(figure.before, figure.before_95),
            with_interval(figure.after, figure.after_95),
            figure.gain_text,
        ]
        for stage in run.stages
        for figure in tables.figures(stage)
    ]
    head = ("stage", "metric", "before (95 %)", "after (95 %)", "gain (95 %)")
    return ["## Evaluations", table(head, rows)] if rows else []


def _alarms(alarms: Sequence[tuple[str, RewardHackAlarms]]) -> list[str]:
    rows = [
        [stage, alarm.name, f"{alarm.count:,} of {hacks.answers:,}", alarm.rule]
        for stage, hacks in alarms
        for alarm in hacks.alarms.values()
        if alarm.count
    ]
    head = ("stage", "alarm", "answers", "rule")
    return ["## Possible reward hacks", table(head, rows)] if rows else []


def _flips(run: Run) -> list[str]:
    rows = [
        [stage.name, flips["component"], f"{flips['verifier']} {flips['version']}"]
        + [f"{flips[count]:,}" for count in ("rollouts", "up", "down", "errors")]
        for stage in run.stages
        for flips in stage.flips
    ]
    head = ("stage", "component", "judged again by", "rollouts", "up", "down", "errors")
    return ["## Verdict flips", table(head, rows)] if rows else []


def _recipes(run: Run) -> list[str]:
    rows = [
        [stage.name, key, str(shipped), str(used)]
        for stage in run.stages
        for key, shipped, used in identity_facts.against_shipped(stage)[1]
    ]
    head = ("stage", "key", "shipped", "this run")
    return ["## Changes to the shipped recipes", table(head, rows)] if rows else []


def _compared(runs: Sequence[Run]) -> list[str]:
    """A table of settings per stage: not every other run need have the stage."""
    parts = ["## Settings that differ"]
    for stage, theirs in tables.shared(runs):
        rows = identity_facts.differences(stage.recipe, *(same.recipe for _, same in theirs))
        head = ("stage", "key", runs[0].name, *(other.name for other, _ in theirs))
        if rows:
            parts.append(table(head, [[stage.name, *map(str, row)] for row in rows]))
    return parts if len(parts) > 1 else [*parts, "None."]
