"""The report as Markdown, for pull requests and for readers without a browser."""

from collections.abc import Sequence

from pipeline.report import identity_facts, tables
from pipeline.report.cells import cell, table, with_interval
from pipeline.report.checks import Check
from pipeline.report.reading import Run
from pipeline.report.sections import MARKS, TOLD
from pipeline.report.suspicion import Suspicions


def markdown(
    run: Run, other: Run | None, checks: Sequence[Check], alarms: Sequence[tuple[str, Suspicions]]
) -> str:
    """Health, stages, evaluations, alarms, changes to recipes, identity."""
    parts = [
        f"# {cell(run.name)}",
        f"{cell(tables.how_it_ended(run))}.",
        "## Health",
        table(("", "question", "found", "stage", "rule"), [_check(check) for check in checks]),
        "## Stages",
        table(tables.STAGES, tables.stage_rows(run)),
        *_dropped(run),
        *_evaluations(run),
        *_alarms(alarms),
        *_flips(run),
        *_recipes(run),
        *(_compared(run, other) if other is not None else []),
        "## Identity",
        "\n".join(f"- {name}: {cell(text)}" for name, text in identity_facts.facts(run)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _check(check: Check) -> list[str]:
    asked = check.question
    mark = f"{MARKS[check.level]} {TOLD[check.level]}"
    return [mark, asked.asks, check.number, check.stage, asked.rule]


def _dropped(run: Run) -> list[str]:
    rows = [(stage.name, found) for stage in run.stages if (found := identity_facts.rows_of(stage))]
    told = [
        [name, f"{seen:,}", f"{kept:,}", ", ".join(f"{n:,} {r}" for r, n in lost.items()) or "none"]
        for name, (seen, kept, lost) in rows
    ]
    return [table(("stage", "rows in", "kept", "dropped"), told)] if told else []


def _evaluations(run: Run) -> list[str]:
    rows = [
        [
            stage.name,
            one.name,
            with_interval(one.before, one.before_95),
            with_interval(one.after, one.after_95),
        ]
        for stage in run.stages
        for one in tables.figures(stage)
    ]
    head = ("stage", "figure", "before (95 %)", "after (95 %)")
    return ["## Evaluations", table(head, rows)] if rows else []


def _alarms(alarms: Sequence[tuple[str, Suspicions]]) -> list[str]:
    rows = [
        [name, alarm.name, f"{alarm.count:,} of {seen.looked_at:,}", alarm.rule]
        for name, seen in alarms
        for alarm in seen.alarms.values()
        if alarm.count
    ]
    return ["## Suspicion", table(("stage", "alarm", "answers", "rule"), rows)] if rows else []


def _flips(run: Run) -> list[str]:
    rows = [
        [stage.name, one["component"], f"{one['verifier']} {one['version']}"]
        + [f"{one[count]:,}" for count in ("rollouts", "up", "down", "errors")]
        for stage in run.stages
        for one in stage.flips
    ]
    head = ("stage", "component", "judged anew by", "rollouts", "up", "down", "errors")
    return ["## Verdict flips", table(head, rows)] if rows else []


def _recipes(run: Run) -> list[str]:
    rows = [
        [stage.name, key, str(there), str(here)]
        for stage in run.stages
        for key, there, here in identity_facts.against_shipped(stage)[1]
    ]
    head = ("stage", "key", "shipped", "this run")
    return ["## Changes to the shipped recipes", table(head, rows)] if rows else []


def _compared(run: Run, other: Run) -> list[str]:
    rows = [
        [mine.name, key, str(there), str(here)]
        for mine, theirs in tables.in_both(run, other)
        for key, there, here in identity_facts.differences(theirs.recipe, mine.recipe)
    ]
    heading = f"## Settings that differ from {cell(other.name)}"
    head = ("stage", "key", other.name, run.name)
    return [heading, table(head, rows) if rows else "None."]
