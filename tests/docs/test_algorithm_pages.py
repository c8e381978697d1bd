"""Every algorithm and loss has its section: the flags its curve was drawn from, and its picture."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from veriloop.pipeline.config.comparison import rows
from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.presets import DISTILLATIONS, PREFERENCES, PRESETS
from veriloop.stages.launch import parse

ROOT = Path(__file__).parents[2]


def sections(page, under):
    """Text by title of the sections one level below a heading."""
    part = (ROOT / "docs" / page).read_text().split(f"\n## {under}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", part, re.MULTILINE | re.DOTALL))


ALGORITHMS = sections("algorithms.md", "Each preset")
LOSSES = sections("preferences.md", "Each loss")


@pytest.fixture
def tuned(monkeypatch):
    """The flags that the benchmark gives each preset."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    spec = importlib.util.spec_from_file_location("told_here", ROOT / "benchmarks/algorithms.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TUNED


def test_every_preset_and_every_loss_has_a_section_in_their_order():
    assert list(ALGORITHMS) == list(PRESETS)
    assert list(LOSSES) == list(PREFERENCES)


@pytest.mark.parametrize("name", PRESETS)
def test_a_presets_command_is_the_one_that_its_curve_was_drawn_from(name, tuned):
    flags = " ".join(["--algorithm.preset", name, *tuned.get(name, ())])
    assert f"\n    veriloop zero tiny/algorithms {flags}\n" in ALGORITHMS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", PREFERENCES)
def test_a_losss_command_is_the_shipped_recipe_that_its_curve_was_drawn_from(name):
    (words,) = re.findall(r"^    veriloop preference (.*)$", LOSSES[name], re.MULTILINE)
    shipped = read(f"tiny/{name}")
    assert parse("preference", words.split()).recipe == shipped and len(words.split()) > 2


@pytest.mark.parametrize(("name", "text"), [*ALGORITHMS.items(), *LOSSES.items()])
def test_a_section_has_a_formula_a_use_and_its_own_picture(name, text):
    formula, _, rest = text.partition("**When**: ")
    assert re.search(r"^    \S", formula, re.MULTILINE) and len(rest.split()) > 10
    assert f"![{name} on the tiny model](images/curves/{name}.svg)" in rest


@pytest.mark.parametrize(
    ("page", "group"),
    [("algorithms", PRESETS), ("preferences", PREFERENCES), ("distillation", DISTILLATIONS)],
)
def test_the_comparison_on_a_page_is_the_one_that_the_command_prints(page, group):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    table = text.split("<!-- choices: ")[1].split("<!-- end")[0].splitlines()[3:]
    assert table == [" | ".join((f"| `{n}`", *words)) + " |" for n, *words in rows(list(group))]
