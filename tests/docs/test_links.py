"""What the pages point at is there: links, anchors, images, files of the repository."""

import re
import unicodedata
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
OURS = "data|sandbox|verifiers|pipeline|stages|recipes|benchmarks|tests|requirements|docs"
NAMED = re.compile(rf"`((?:{OURS})/(?:[\w/-]*|[\w./-]*\.(?:py|sh|txt|yaml|json|md|svg)))`")
LARGEST = 60_000  # bytes of a picture

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def prose(text):
    """Without fenced blocks, in which nothing is a heading or a link."""
    return FENCE.sub("", text)


def on_github(title):
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def on_the_site(title):
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def anchors(text):
    """Those that lead to the same heading on GitHub and on the site."""
    titles = [re.sub(r"[`*]", "", title) for title in HEADING.findall(prose(text))]
    return {on_github(title) for title in titles} & {on_the_site(title) for title in titles}


def broken(page):
    """(link, why) of every link of a page that leads nowhere."""
    for link in LINK.findall(prose(page.read_text())):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_file():
            yield link, "no such file"
        elif not target.is_relative_to(page.parent.resolve()):
            yield link, "outside of what the site is built from"
        elif anchor and anchor not in anchors(target.read_text()):
            yield link, f"no such heading; there are {sorted(anchors(target.read_text()))}"


@pages
def test_every_link_anchor_and_image_of_a_page_is_there(page):
    assert not list(broken(page))


@pages
def test_the_text_of_a_link_to_a_page_is_no_file_name(page):
    texts = re.findall(r"\[([^\]]*)\]\([^)\s]+\)", prose(page.read_text()))
    assert [text for text in texts if text.strip("`").endswith(".md")] == []


def test_what_leads_nowhere_is_found(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "outside.md").write_text("x")
    (tmp_path / "docs/other.md").write_text(
        "# One `two` -- three\n\n## Two's\n\n```\n# no heading\n```\n"
    )
    page = tmp_path / "docs/page.md"
    page.write_text(
        "[a](other.md#twos) [b](gone.md) ![c](gone.png) [d](other.md#no-heading)\n"
        "[e](../outside.md) [f](#there) [g](other.md#one-two----three) [h](https://x.org/y)\n"
        "```\n[i](gone.md)\n```\n# There\n"
    )
    found = [link for link, _ in broken(page)]
    assert found == [
        "gone.md",
        "gone.png",
        "other.md#no-heading",
        "../outside.md",
        "other.md#one-two----three",  # the site has another one
    ]


@pages
def test_every_file_that_a_page_names_is_in_the_repository(page):
    names = NAMED.findall(page.read_text())
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_every_page_is_in_the_navigation_once_and_nothing_else_is():
    def listed(entry):
        if isinstance(entry, str):
            return [entry]
        inside = entry if isinstance(entry, list) else entry.values()
        return [name for one in inside for name in listed(one)]

    told = listed(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(told) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_every_picture_is_shown_somewhere_and_small():
    shown = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in LINK.findall(page.read_text())
        if link.endswith((".png", ".svg"))
    }
    pictures = {path for path in (ROOT / "docs/images").rglob("*") if path.is_file()}
    assert pictures == shown
    assert [path.name for path in pictures if path.stat().st_size >= LARGEST] == []


def test_the_readme_is_read_in_five_minutes():
    assert len((ROOT / "README.md").read_text().split()) <= 900
