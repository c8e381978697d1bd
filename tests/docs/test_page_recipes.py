"""Every recipe on a page is complete: one that begins with its stage and has a name is accepted."""

import re
from pathlib import Path

import pytest
import yaml

from veriloop.pipeline.config.load import validate
from veriloop.pipeline.errors import RecipeError

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
RECIPES = [
    (page.name, block)
    for page in PAGES
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    if block.startswith("stage:")
]


def test_pages_have_recipes():
    assert {"data.md", "sft.md", "coming_from.md", "r1.md"} <= {name for name, _ in RECIPES}


@pytest.mark.parametrize(("name", "block"), RECIPES, ids=[name for name, _ in RECIPES])
def test_a_recipe_on_a_page_is_accepted_and_asks_every_set_that_it_describes(name, block):
    recipe = validate(yaml.safe_load(block), name)
    asked = {**getattr(recipe, "problems", {})}
    asked |= getattr(getattr(recipe, "data", None), "problems", {})
    assert set(getattr(recipe, "sets", {})) <= set(asked)


def test_a_part_of_a_recipe_is_refused():
    with pytest.raises(RecipeError, match="steps: is required"):
        validate({"stage": "zero", "name": "mine", "start": "models/mine"}, "a page")
