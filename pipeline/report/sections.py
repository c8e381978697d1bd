"""The parts of the page that stand without JavaScript: health, stages, lineage, identity."""

from collections.abc import Sequence

from pipeline.report import identity_facts, tables
from pipeline.report.checks import Check
from pipeline.report.markup import Html, el, join
from pipeline.report.reading import Run, Stage

MARKS = {"good": "●", "watch": "▲", "bad": "■", "unknown": "○"}
TOLD = {"good": "good", "watch": "watch", "bad": "bad", "unknown": "not known"}
MAX_VALUE = 120  # characters of a recipe's value


def section(id: str, title: str, lead: str, *inside: Html, cls: str | None = None) -> Html:
    """A part of the page with its heading and a line that says how to read it."""
    return el("section", el("h2", title), el("p", lead, cls="lead"), *inside, id=id, cls=cls)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, wide: bool = True) -> Html:
    """The first column names the row."""
    body = [
        el("tr", el("th", row[0], scope="row"), [el("td", cell) for cell in row[1:]])
        for row in rows
    ]
    top = el("thead", el("tr", [el("th", name, scope="col") for name in head]))
    return el("div", el("table", top, el("tbody", body)), cls="scroll" if wide else None)


def health(checks: Sequence[Check]) -> Html:
    counts = {level: sum(c.level == level for c in checks) for level in MARKS}
    told = ", ".join(f"{n} {TOLD[level]}" for level, n in counts.items() if n)
    return section(
        "health",
        "Health",
        f"{len(checks)} questions: {told}. Each links to its picture.",
        el("ul", [_card(check) for check in checks], cls="health"),
    )


def _card(check: Check) -> Html:
    level, asked = check.level, check.question
    others = [name for name in check.told if name != check.stage]
    rest = ", ".join(f"{name} {check.told[name].number}" for name in others)
    where = f"#{asked.picture}" if asked.picture in ("verdicts", "evaluations") else (
        f"#stage={check.stage}&chart={asked.picture}" if check.stage else "#curves"
    )  # fmt: skip
    inside = (
        el("span", MARKS[level], el("span", TOLD[level], cls="unseen"), cls="mark"),
        el("strong", asked.asks),
        el("span", check.number, cls="number"),
        el("span", check.stage, cls="where") if check.stage else None,
        el("span", asked.rule, cls="rule"),
    )
    return el("li", el("a", *inside, href=where, title=rest or None), cls=level)


def stages(run: Run) -> Html:
    return section(
        "stages",
        "Stages",
        f"{tables.how_it_ended(run)}. Before → after, on held-out problems.",
        table(tables.STAGES, tables.stage_rows(run)),
        el("h3", "Where rows went"),
        el("ol", [_lineage(stage, run.stages) for stage in run.stages], cls="lineage"),
    )


def _lineage(stage: Stage, among: Sequence[Stage]) -> Html:
    made_from = identity_facts.made_from(stage, among)
    made = identity_facts.outputs(stage)
    status = str(stage.entry.get("status", "unknown"))
    return el(
        "li",
        el("div", el("strong", stage.name), " ", el("span", _kind(stage, status), cls="quiet")),
        el("ul", [_file("←", *one) for one in made_from], cls="files") if made_from else None,
        _funnel(stage),
        el("ul", [_file("→", name, "", short) for name, short in made], cls="files")
        if made
        else None,
        cls=status,
    )


def _kind(stage: Stage, status: str) -> str:
    kind = stage.kind.replace("_", " ")
    told = [kind] if stage.kind != stage.name else []
    return ", ".join([*told, *([] if status == "done" else [status])])


def _file(arrow: str, name: str, source: str, short: str) -> Html:
    return el(
        "li", el("span", f"{arrow} ", cls="quiet"), name, " ",
        el("span", source, cls="quiet"), " ", el("code", short),
    )  # fmt: skip


def _funnel(stage: Stage) -> Html | None:
    rows = identity_facts.rows_of(stage)
    if rows is None:
        return None
    seen, kept, dropped = rows
    parts = [("kept", kept), *sorted(dropped.items(), key=lambda one: -one[1])]
    bar = [
        el("span", style=f"flex-grow:{count}", cls=f"part p{at}", title=f"{name}: {count:,}")
        for at, (name, count) in enumerate(parts)
        if count
    ]
    legend = [
        el("li", el("i", cls=f"p{at}"), f"{name.replace('_', ' ')} ", el("b", f"{count:,}"))
        for at, (name, count) in enumerate(parts)
        if count
    ]
    return el(
        "div",
        el("p", f"{seen:,} rows in, {kept:,} kept", cls="quiet"),
        el("div", bar, cls="bar"),
        el("ul", legend, cls="legend"),
        cls="funnel",
    )


def identity(run: Run) -> Html:
    told = identity_facts.facts(run)
    verifiers = identity_facts.verifiers(run)
    recipes = [
        el("h3", "Against the shipped recipes"),
        *[_recipe(stage) for stage in run.stages if stage.recipe],
    ]
    return section(
        "identity",
        "Identity",
        "What it takes to find this run again, and where it left the recipes that are shipped.",
        el("dl", [join([el("dt", name), el("dd", text)]) for name, text in told], cls="facts"),
        join(
            [el("h3", "Verifiers"), table(("verifier", "version", "judged in"), verifiers)]
            if verifiers
            else []
        ),
        join(recipes),
    )


def _recipe(stage: Stage) -> Html:
    name, found = identity_facts.against_shipped(stage)
    if not name:
        told = str(stage.recipe.get("name", "unnamed"))
        head = f"{stage.name}: no recipe called {told} is shipped here"
        return el("p", head, cls="quiet")
    if not found:
        return el("p", f"{stage.name}: {name} as it is shipped", cls="quiet")
    head = el("summary", f"{stage.name}: {name} with {len(found)} change{'s' * (len(found) != 1)}")
    return el("details", head, differences(found, ("key", "shipped", "this run")))


def differences(found: Sequence[identity_facts.Difference], head: tuple[str, str, str]) -> Html:
    return table(head, [[key, _value(there), _value(here)] for key, there, here in found])


def _value(value: object) -> str:
    text = "–" if value is None else str(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


def evaluations(run: Run) -> Html:
    parts = [_evaluated(stage) for stage in run.stages if tables.figures(stage)]
    told = "Bars are 95 % intervals: hollow before the stage, solid after it."
    return section(
        "evaluations", "Evaluations", told if parts else "No stage was evaluated.", *parts
    )


def _evaluated(stage: Stage) -> Html:
    rows = [
        el(
            "tr",
            el("th", one.name, scope="row"),
            el("td", _with_interval(one.before, one.before_95)),
            el("td", _with_interval(one.after, one.after_95)),
            el("td", _whiskers(one), cls="whiskers"),
        )
        for one in tables.figures(stage)
    ]
    heads = ("figure", "before", "after", "0 to 1")
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
    told = f" [{bounds[0]:.3f}, {bounds[1]:.3f}]" if bounds else ""
    return join([f"{value:.3f}", el("span", told, cls="quiet")])


def _whiskers(one: tables.Figure) -> Html:
    marks = [
        mark
        for side, value, bounds in (
            ("before", one.before, one.before_95),
            ("after", one.after, one.after_95),
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


def comparison(run: Run, other: Run) -> Html:
    """Figures after each stage of both runs, and how their recipes differ."""
    pairs = tables.in_both(run, other)
    rows = [
        [f"{mine.name} {a.name}", tables.number(a.after), tables.number(b.after), _apart(a, b)]
        for mine, theirs in pairs
        for a in tables.figures(mine)
        for b in tables.figures(theirs)
        if a.name == b.name and a.after is not None and b.after is not None
    ]
    parts: list[Html] = []
    if rows:
        parts.append(table(("figure after", run.name, other.name, "95 % intervals"), rows))
    for mine, theirs in pairs:
        found = identity_facts.differences(theirs.recipe, mine.recipe)
        told = differences(found, ("key", other.name, run.name)) if found else el("p", "None.")
        parts.append(el("details", el("summary", f"{mine.name}: {_settings(len(found))}"), told))
    lead = f"Beside {other.name}, whose curves are dashed in every picture."
    return section("comparison", "Comparison", lead, *parts)


def _settings(count: int) -> str:
    return "1 setting differs" if count == 1 else f"{count} settings differ"


def _apart(one: tables.Figure, other: tables.Figure) -> str:
    mine, theirs = one.after_95, other.after_95
    if mine is None or theirs is None:
        return "–"
    return "apart" if mine[1] < theirs[0] or theirs[1] < mine[0] else "overlap"
