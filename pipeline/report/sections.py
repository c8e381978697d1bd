"""The sections of the page that need no JavaScript: health, stages, identity, evaluations."""

from collections.abc import Iterator, Sequence

from veriloop.pipeline.report import identity_facts, tables
from veriloop.pipeline.report.checks import Check
from veriloop.pipeline.report.markup import Html, el, join
from veriloop.pipeline.report.read_run import Run, Stage

MARKS = {"good": "●", "watch": "▲", "bad": "■", "unknown": "○"}
LEVELS = {"good": "good", "watch": "watch", "bad": "bad", "unknown": "unknown"}
MAX_VALUE = 120  # characters of a recipe's value


def section(id: str, title: str, lead: str, *inside: Html, cls: str | None = None) -> Html:
    """A section with its heading and a line that explains it."""
    return el("section", el("h2", title), el("p", lead, cls="lead"), *inside, id=id, cls=cls)


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, groups: Sequence[str] = ()
) -> Html:
    """A table; the first column holds the row headers. The columns head[1:] are repeated for each
    of `groups`, under its name."""
    names = [*head[1:]] * max(len(groups), 1)
    first = {at * len(head[1:]): group for at, group in enumerate(groups)}
    body = [
        el(
            "tr",
            el("th", row[0], scope="row"),
            # The names are shown next to the cells where the screen is too narrow for columns.
            [
                el("td", cell, data_column=names[at], data_group=first.get(at))
                for at, cell in enumerate(row[1:])
            ],
        )
        for row in rows
    ]
    span = str(len(head[1:]))
    above = el("tr", el("td"), [el("th", n, colspan=span, scope="colgroup") for n in groups])
    columns = [
        el("th", name, scope="col", data_group=first.get(at - 1))
        for at, name in enumerate((head[0], *names))
    ]
    top = el("thead", above if groups else None, el("tr", columns))
    return el("div", el("table", top, el("tbody", body)), cls="scroll")


def health(checks: Sequence[Check]) -> Html:
    counts = {level: sum(c.level == level for c in checks) for level in MARKS}
    summary = ", ".join(f"{n} {LEVELS[level]}" for level, n in counts.items() if n)
    return section(
        "health",
        "Health",
        f"{len(checks)} questions: {summary}. Each links to its chart.",
        el("ul", [_card(check) for check in checks], cls="health"),
    )


def _card(check: Check) -> Html:
    level, question = check.level, check.question
    others = ", ".join(
        f"{name} {assessment.number}"
        for name, assessment in check.assessments.items()
        if name != check.stage
    )
    if question.chart in ("verdicts", "evaluations"):
        link = f"#{question.chart}"
    else:
        link = f"#stage={check.stage}&chart={question.chart}" if check.stage else "#curves"
    inside = (
        el("span", MARKS[level], el("span", LEVELS[level], cls="unseen"), cls="mark"),
        el("strong", question.asks),
        el("span", check.number, cls="number"),
        el("span", check.stage, cls="where") if check.stage else None,
        el("span", question.rule, cls="rule"),
    )
    return el("li", el("a", *inside, href=link, title=others or None), cls=level)


def stages(runs: Sequence[Run]) -> Html:
    """The table of all runs' stages, and the lineage of those of the first run."""
    run, groups = runs[0], [run.name for run in runs] if len(runs) > 1 else []
    return section(
        "stages",
        "Stages",
        f"{tables.status_line(run)}. Before → after, on held-out problems.",
        table(tables.STAGES, tables.side_by_side(runs), groups=groups),
        el("h3", "Lineage and rows"),
        el("ol", [_lineage(stage, run.stages) for stage in run.stages], cls="lineage"),
    )


def _lineage(stage: Stage, stages: Sequence[Stage]) -> Html:
    inputs = [_file("←", *file) for file in identity_facts.made_from(stage, stages)]
    outputs = [_file("→", name, "", digest) for name, digest in identity_facts.outputs(stage)]
    status = str(stage.entry.get("status", "unknown"))
    return el(
        "li",
        el("div", el("strong", stage.name), " ", el("span", _kind(stage, status), cls="quiet")),
        el("ul", inputs, cls="files") if inputs else None,
        _funnel(stage),
        el("ul", outputs, cls="files") if outputs else None,
        cls=status,
    )


def _kind(stage: Stage, status: str) -> str:
    """The stage's kind if its name differs, and its status unless it is done."""
    kind = "" if stage.kind == stage.name else stage.kind.replace("_", " ")
    return ", ".join(part for part in (kind, "" if status == "done" else status) if part)


def _file(arrow: str, name: str, source: str, digest: str) -> Html:
    return el(
        "li", el("span", f"{arrow} ", cls="quiet"), name, " ",
        el("span", source, cls="quiet"), " ", el("code", digest),
    )  # fmt: skip


def _funnel(stage: Stage) -> Html | None:
    rows = identity_facts.rows_of(stage)
    if rows is None:
        return None
    total, kept, dropped = rows
    parts = [("kept", kept), *sorted(dropped.items(), key=lambda part: -part[1])]
    bar = [
        el("span", style=f"flex-grow:{count}", cls=f"part p{i}", title=f"{name}: {count:,}")
        for i, (name, count) in enumerate(parts)
        if count
    ]
    legend = [
        el("li", el("i", cls=f"p{i}"), f"{name.replace('_', ' ')} ", el("b", f"{count:,}"))
        for i, (name, count) in enumerate(parts)
        if count
    ]
    return el(
        "div",
        el("p", f"{total:,} rows in, {kept:,} kept", cls="quiet"),
        el("div", bar, cls="bar"),
        el("ul", legend, cls="legend"),
        cls="funnel",
    )


def identity(run: Run) -> Html:
    facts = identity_facts.facts(run)
    verifiers = identity_facts.verifiers(run)
    recipes = [
        el("h3", "Changes to the shipped recipes"),
        *[_recipe(stage) for stage in run.stages if stage.recipe],
    ]
    return section(
        "identity",
        "Identity",
        "The environment that produced this run, and its changes to the shipped recipes.",
        el("dl", [join([el("dt", name), el("dd", text)]) for name, text in facts], cls="facts"),
        join(
            [el("h3", "Verifiers"), table(("verifier", "version", "judged in"), verifiers)]
            if verifiers
            else []
        ),
        join(recipes),
    )


def _recipe(stage: Stage) -> Html:
    name, changes = identity_facts.against_shipped(stage)
    if not name:
        recipe = str(stage.recipe.get("name", "unnamed"))
        return el("p", f"{stage.name}: {recipe} is no shipped recipe", cls="quiet")
    if not changes:
        return el("p", f"{stage.name}: {name}, unchanged", cls="quiet")
    count = f"{len(changes)} change{'s' * (len(changes) != 1)}"
    head = el("summary", f"{stage.name}: {name} with {count}")
    return el("details", head, differences(changes, ("key", "shipped", "this run")))


def differences(rows: Sequence[identity_facts.Difference], head: Sequence[str]) -> Html:
    return table(head, [[key, *map(_value, values)] for key, *values in rows])


def _value(value: object) -> str:
    text = "–" if value is None else str(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


def evaluations(run: Run) -> Html:
    parts = [_evaluated(stage) for stage in run.stages if tables.figures(stage)]
    lead = (
        "Intervals are of 95 %, those of gains paired by problem. Bars: hollow before the stage, "
        "solid after it."
    )
    return section(
        "evaluations", "Evaluations", lead if parts else "No stage was evaluated.", *parts
    )


def _evaluated(stage: Stage) -> Html:
    rows = [
        el(
            "tr",
            el("th", figure.name, scope="row"),
            el("td", _with_interval(figure.before, figure.before_95)),
            el("td", _with_interval(figure.after, figure.after_95)),
            el("td", figure.gain_text),
            el("td", _whiskers(figure), cls="whiskers"),
        )
        for figure in tables.figures(stage)
    ]
    heads = ("metric", "before", "after", "gain", "0 to 1")
    head = el("thead", el("tr", [el("th", name, scope="col") for name in heads]))
    return el(
        "div",
        el("h3", stage.name),
        el("p", tables.decoding(stage), cls="quiet"),
        el("div", el("table", head, el("tbody", rows)), cls="scroll"),
    )


def _with_interval(value: float | None, bounds: tuple[float, float] | None) -> Html:
    if value is None:
        return Html("–")
    interval = f" [{bounds[0]:.3f}, {bounds[1]:.3f}]" if bounds else ""
    return join([f"{value:.3f}", el("span", interval, cls="quiet")])


def _whiskers(figure: tables.Figure) -> Html:
    marks = [
        mark
        for side, value, bounds in (
            ("before", figure.before, figure.before_95),
            ("after", figure.after, figure.after_95),
        )
        if value is not None
        for mark in (
            el("i", style=_span(*(bounds or (value, value))), cls=f"span {side}"),
            el("i", style=f"left:{100 * min(max(value, 0), 1):.2f}%", cls=f"dot {side}"),
        )
    ]
    return el("div", marks, cls="track")


def _span(low: float, high: float) -> str:
    return f"left:{100 * max(low, 0):.2f}%;width:{100 * max(min(high, 1) - max(low, 0), 0):.2f}%"


def comparison(runs: Sequence[Run]) -> Html:
    """Metrics after each stage of the first run and the others, and how their recipes differ."""
    run, *others = runs
    head = ["metric after", run.name]
    for other in others:
        head += [other.name, "95 % intervals"]
    parts = list[Html]()
    if rows := [row for stage in run.stages for row in _compared(stage, others)]:
        parts.append(table(head, rows))
    for stage, theirs in tables.shared(runs):
        rows = identity_facts.differences(stage.recipe, *(same.recipe for _, same in theirs))
        count = "1 setting differs" if len(rows) == 1 else f"{len(rows)} settings differ"
        names = ("key", run.name, *(other.name for other, _ in theirs))
        body = differences(rows, names) if rows else el("p", "None.")
        parts.append(el("details", el("summary", f"{stage.name}: {count}"), body))
    names = ", ".join(other.name for other in others)
    curves = "dashed" if len(others) == 1 else "coloured by run"
    lead = (
        f"{run.name} beside {names}: stages of the same name and kind. Intervals are compared with "
        f"those of {run.name}, where both runs asked the same problems at the same temperature "
        f"and judged by the same versions of verifiers; in the charts the curves of other runs are "
        f"{curves}."
    )
    return section("comparison", "Comparison", lead, *parts)


def _compared(stage: Stage, others: Sequence[Run]) -> Iterator[list[str]]:
    """A row per metric that the stage and one of the others' have after it."""
    counterparts = [tables.counterpart(stage, other) for other in others]
    theirs = [
        {} if match is None else {f.name: f for f in tables.figures(match)}
        for match in counterparts
    ]
    for figure in tables.figures(stage):
        values = [by_name.get(figure.name) for by_name in theirs]
        if figure.after is None or all(v is None or v.after is None for v in values):
            continue
        row = [f"{stage.name} {figure.name}", tables.number(figure.after)]
        for match, value in zip(counterparts, values, strict=True):
            row += ("–", "–") if match is None else tables.beside(stage, match, figure, value)
        yield row
