"""What docs/recipe.md says of the recipes is what stands in them."""

import re
from pathlib import Path

from veriloop.pipeline.config.load import flat, read

TEXT = (Path(__file__).parents[2] / "docs/recipe.md").read_text()
HEAD = re.compile(r"^\| key \| `([\w/]+)` \| `([\w/]+)` \| .* \|$")
ROW = re.compile(r"^\| `([\w.]+)` \| ([^|]*) \| ([^|]*) \| [^|]+ \|$")


def told(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def rows():
    """(recipe, key, what the page says) of every value in its tables."""
    names = ()
    for line in TEXT.splitlines():
        if head := HEAD.match(line):
            names = head.groups()
        elif (row := ROW.match(line)) and names:
            yield from (
                (name, row[1], said) for name, said in zip(names, row.groups()[1:], strict=True)
            )
        elif not line.startswith("|"):
            names = ()


def test_every_value_is_that_of_the_recipe():
    wrong = {
        (name, key, said, told(real))
        for name, key, said in rows()
        if (real := dict(flat(read(name).model_dump()))[key]) is None or told(real) != said
    }
    assert not wrong


def test_every_stage_of_the_paper_has_its_table():
    named = {name for name, _, _ in rows()}
    stages = {one.recipe for one in read("paper/r1").stages}
    assert stages <= named and len(list(rows())) > 60


def test_every_line_that_names_a_key_is_read():
    keys = [line for line in TEXT.splitlines() if re.match(r"\| `[\w.]+` \|", line)]
    assert 2 * len(keys) == len(list(rows()))
