"""The report's page: static sections, then the data as JSON, then the script that draws it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from veriloop.pipeline.report import outcome, outcome_picture, sections
from veriloop.pipeline.report.checks import Check
from veriloop.pipeline.report.markup import Html, data, el, join, plotly
from veriloop.pipeline.report.read_run import Run
from veriloop.pipeline.report.tables import ended_well, status_line

PARTS = Path(__file__).parent / "page"
SCRIPTS = ("state", "marks", "unpacking", "charts", "pictures", "tokens", "copying", "browser",
           "search", "keys", "links", "start")  # fmt: skip
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
DRAWN = {  # sections that the script fills: (title, lead)
    "curves": ("Curves", "One chart per metric, for one stage. Hover over a chart and all charts "
               "show that step. The text below each describes a good curve."),
    "groups": ("Prompts", "Mean reward of prompts over the steps. Click a cell to open its "
               "answers, if they are in the sample."),
    "verdicts": ("Verifiers", "Verdicts by kind, and how long answers waited to be judged, "
                 "and were judged."),
    "reward-hacks": ("Possible reward hacks", "Rewarded answers with a suspicious property. An "
                     "alarm is a reason to read the answer, not a proof."),
    "rollouts": ("Rollouts", "A sample: the best, worst, middle and most divided group of each "
                 "step, and groups with a verifier failure or an alarm."),
}  # fmt: skip
NAMES = {"health": "Health", "stages": "Stages", "identity": "Identity"} | {
    id: title for id, (title, _) in DRAWN.items()
}


def page(
    runs: Sequence[Run],
    checks: Sequence[Check],
    drawn: Mapping[str, Any],
    rollouts: Sequence[Mapping[str, Any]],
) -> str:
    """The HTML file of the first run, next to the others. `drawn` is the data of the charts;
    `rollouts` has one entry per stage."""
    body = [
        _header(runs),
        el("div", _contents(runs), _main(runs, checks), cls="columns"),
        _footer(),
        data("drawn", drawn),
        *[data(f"rollouts-{i}", sample) for i, sample in enumerate(rollouts)],
        plotly(),
        Html(f"<script>\n{in_one_function(map(page_file, SCRIPTS))}</script>\n"),
    ]
    head = [
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"{runs[0].name} – veriloop"),
        Html(f"<style>\n{page_file('page.css')}</style>"),
    ]
    return f"<!doctype html>\n{el('html', el('head', head), el('body', body), lang='en')}\n"


def _header(runs: Sequence[Run]) -> Html:
    run, beside = runs[0], ", ".join(other.name for other in runs[1:])
    return el(
        "header",
        el("div",
           el("p", f"veriloop run beside {beside}" if beside else "veriloop run", cls="kicker"),
           el("h1", run.name)),
        _outcomes(runs) if beside else el("p", outcome.line(run), cls="result"),
        None if beside else el("p", status_line(run), cls="ended"),
        el("button", "Theme", id="theme", type="button", title="light, dark, system setting"),
    )  # fmt: skip


def _outcomes(runs: Sequence[Run]) -> Html:
    """A line per run."""
    lines = [
        el(
            "li",
            outcome_picture.swatch(at),
            el("b", run.name),
            f" {outcome.line(run)}",
            None if ended_well(run) else el("span", f"; {status_line(run)}", cls="quiet"),
        )
        for at, run in enumerate(runs)
    ]
    return el("ul", lines, cls="result runs")


def _contents(runs: Sequence[Run]) -> Html:
    first = {"outcome": "Outcome"} if any(map(outcome.measured, runs)) else {}
    names = first | NAMES | {"evaluations": "Evaluations"}
    if len(runs) > 1:
        names |= {"comparison": "Comparison"}
    return el("nav", [el("a", title, href=f"#{id}") for id, title in names.items()])


def _main(runs: Sequence[Run], checks: Sequence[Check]) -> Html:
    run = runs[0]
    picker = el("div", id="picker", cls="picker", role="group", aria_label="stage")
    return el(
        "main",
        outcome_picture.section(runs),
        sections.health(checks),
        sections.stages(runs),
        sections.identity(run),
        picker,
        [
            sections.section(id, title, lead, el("div", id=f"{id}-here"), cls="drawn")
            for id, (title, lead) in DRAWN.items()
        ],
        el("noscript", el("p", "Charts and rollouts need JavaScript.")),
        sections.evaluations(run),
        sections.comparison(runs) if len(runs) > 1 else None,
    )


def _footer() -> Html:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return el("footer", f"Written {now}. Press ", el("kbd", "?"), " for keyboard shortcuts.")


def in_one_function(scripts: Iterable[str]) -> str:
    """The scripts wrapped in one function, so that nothing is global."""
    body = join([Html(script) for script in scripts])
    return f"(() => {{\n'use strict';\n{body}\n}})();\n"


def page_file(name: str) -> str:
    """A file of the page, such as page.css; a name without a suffix is a script."""
    return (PARTS / (name if "." in name else f"{name}.js")).read_text(encoding="utf-8")
