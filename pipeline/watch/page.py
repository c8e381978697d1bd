"""The live page: an empty frame with the report's scripts and a script that fills it."""

from pathlib import Path

from veriloop.pipeline.report.markup import Html, data, el
from veriloop.pipeline.report.page import in_one_function, page_file
from veriloop.pipeline.report.sections import section

PARTS = Path(__file__).parent / "page"
SHARED = ("state", "marks", "charts", "tokens", "copying", "browser", "keys", "links")  # report's
OWN = ("library", "growing", "live")
CURVES = (
    "One chart per metric, for one stage, redrawn after every step. "
    "Hover over a chart and all charts show that step."
)
ROLLOUTS = (
    "The best, worst, middle and most divided group of each of the latest steps. "
    "Shows the newest step until you open an answer."
)


def page() -> str:
    """The HTML page, the same for every run. The run's data arrives as events."""
    head = [
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", "veriloop watch"),
        Html('<link rel="stylesheet" href="/page.css"><link rel="icon" href="data:,">'),
    ]
    body = [
        el(
            "header",
            el("div", el("p", "veriloop watch", cls="kicker"), el("h1", "…", id="name")),
            el("p", "connecting", id="state", cls="ended", role="status"),
            el("button", "Theme", id="theme", type="button"),
        ),
        el("div", _contents(), _main(), cls="columns"),
        el("footer", "Press ", el("kbd", "?"), " for keyboard shortcuts."),
        data("drawn", {"name": "", "others": [], "stages": []}),
        Html('<script src="/page.js"></script>\n'),
    ]
    return f"<!doctype html>\n{el('html', el('head', head), el('body', body), lang='en')}\n"


def _contents() -> Html:
    names = {"stages": "Stages", "curves": "Curves", "rollouts": "Rollouts"}
    return el("nav", [el("a", title, href=f"#{id}") for id, title in names.items()])


def _main() -> Html:
    return el(
        "main",
        section("stages", "Stages", "As recorded in run.json.", el("div", id="stages-here")),
        el("p", id="trouble", cls="missed", hidden=True),
        el("div", id="picker", cls="picker", role="group", aria_label="stage"),
        section("curves", "Curves", CURVES, el("div", id="curves-here")),
        section(
            "rollouts", "Rollouts", ROLLOUTS,
            el("p", id="newest", cls="tools"), el("div", id="rollouts-here"),
        ),
        el("noscript", el("p", "This page needs JavaScript.")),
    )  # fmt: skip


def script() -> str:
    """All scripts of the page as one."""
    own = [(PARTS / f"{name}.js").read_text(encoding="utf-8") for name in OWN]
    return in_one_function([*map(page_file, SHARED), *own])


def style() -> str:
    return page_file("page.css") + (PARTS / "live.css").read_text(encoding="utf-8")
