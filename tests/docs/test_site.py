"""The site is built where its generator is installed, fetches nothing and can be searched."""

import importlib.util
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from benchmarks.chromium import Chromium, find_chromium

ROOT = Path(__file__).parents[2]
FETCHED = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src"}

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("mkdocs", "mkdocstrings", "pymdownx")),
    reason="mkdocs or a plugin is not installed (requirements/docs.txt)",
)


def built(folder, *flags):
    words = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder), *flags]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = built(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Page(HTMLParser):
    """What a page fetches, and the text of its paragraphs."""

    def __init__(self, path):
        super().__init__()
        self.fetched, self.paragraphs, self.inside = [], [""], False
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        if tag in FETCHED and dict(attrs).get(FETCHED[tag]):
            self.fetched.append(dict(attrs)[FETCHED[tag]])
        if tag == "p":
            self.inside = True
            self.paragraphs.append("")

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "p"

    def handle_data(self, data):
        if self.inside:
            self.paragraphs[-1] += data


@pytest.mark.slow
def test_every_page_is_there_and_what_it_fetches_lies_next_to_it(site):
    pages = {path.stem: Page(path) for path in site.glob("*.html")}
    assert set(pages) == {path.stem for path in (ROOT / "docs").glob("*.md")} | {"404", "search"}
    del pages["404"]  # which a server gives, from its root
    assert any("report-outcome.png" in name for name in pages["index"].fetched)
    for name, page in pages.items():
        lacking = [one for one in page.fetched if not (site / one.partition("?")[0]).is_file()]
        assert not lacking, f"{name}: {lacking}"


@pytest.mark.slow
def test_styles_fetch_nothing_from_elsewhere(site):
    told = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.findall(r"(?:@import|url\()\s*['\"]?(?:https?:)?//[^)]*", told)


@pytest.mark.slow
def test_tables_lists_and_code_came_out_as_such(site):
    """What the two dialects of Markdown read differently shows as marks in a paragraph."""
    for path in site.glob("*.html"):
        marks = [p for p in Page(path).paragraphs if re.search(r"\|\s*-{3}|```|^\|.*\|$|\n- ", p)]
        assert not marks, f"{path.name}: {marks}"


@pytest.mark.slow
def test_the_search_index_is_a_script_with_every_page(site):
    text = (site / "search/index.js").read_text()
    sections = json.loads(text.removeprefix("var searchIndex = ").removesuffix(";\n"))["docs"]
    pages = {section["location"].partition("#")[0] for section in sections}
    assert pages == {path.with_suffix(".html").name for path in (ROOT / "docs").glob("*.md")}
    assert any(
        s["location"] == "reference.html#veriloop.verifiers.registry.judge" for s in sections
    )


@pytest.mark.slow
def test_code_is_highlighted_and_its_style_is_there(site):
    for name in ("api", "verifiers", "cli"):
        assert '<div class="highlight">' in (site / f"{name}.html").read_text()
    assert '<span class="kn">import</span>' in (site / "api.html").read_text()
    assert ".highlight .kn" in (site / "code.css").read_text()


@pytest.mark.slow
def test_the_reference_has_signatures_and_docstrings(site):
    text = (site / "reference.html").read_text()
    for name in (
        "verifiers.registry.judge",
        "verifiers.pool.VerifierPool",
        "sandbox.limits.Limits",
        "sandbox.backends.open_backend",
        "pipeline.losses.advantages.group_advantages",
    ):
        assert f'id="veriloop.{name}"' in text, name
    assert "leave_one_out" in text and "ragged" in text


@pytest.mark.browser
@pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed")
def test_search_works_in_a_page_opened_from_disk(site):
    with Chromium() as browser:
        for words, page in (("icepop", "algorithms.html"), ("group_advan", "reference.html")):
            browser.open(f"{(site / 'search.html').as_uri()}?q={words}")
            link = f"#mkdocs-search-results a[href*='{page}']"
            browser.until(f'document.querySelector("{link}") !== null')
        browser.open(f"{(site / 'search.html').as_uri()}?q=nosuchword")
        results = 'document.getElementById("mkdocs-search-results").textContent'
        browser.until(f"{results} === 'No results found'")


@pytest.mark.slow
def test_a_broken_link_and_a_page_that_is_not_listed_end_the_build(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "theme").symlink_to(ROOT / "docs/theme")
    (tmp_path / "mkdocs.yml").write_text(
        (ROOT / "mkdocs.yml").read_text().split("nav:")[0] + "nav: [index.md]\n"
    )

    def told():
        done = built(tmp_path / "out", "--config-file", str(tmp_path / "mkdocs.yml"))
        return done.returncode, done.stdout + done.stderr

    (docs / "index.md").write_text("# Start\n\n[here](#start)\n")
    assert told()[0] == 0
    (docs / "index.md").write_text("# Start\n\n[there](#elsewhere)\n")
    assert told()[0] == 1 and "elsewhere" in told()[1]
    (docs / "index.md").write_text("# Start\n\n[there](gone.md)\n")
    assert told()[0] == 1 and "gone.md" in told()[1]
    (docs / "index.md").write_text("# Start\n")
    (docs / "more.md").write_text("# More\n")
    assert told()[0] == 1 and "more.md" in told()[1]
