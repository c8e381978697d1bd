"""Numbers and booleans of recipes: those of YAML 1.2, and no boolean for a number."""

import pytest
import yaml

from veriloop.pipeline.config.load import read, read_values, validate, with_flags
from veriloop.pipeline.errors import RecipeError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:30", "1:30"), ("1:30.5", "1:30.5"), ("yes", "yes"), ("off", "off"), ("No", "No"),
        ("true", True), ("False", False), ("12", 12), ("-3", -3), ("010", 10), ("0x1f", 31),
        ("0o17", 15), ("1e-4", 1e-4), ("1.5", 1.5), (".5", 0.5), ("2.", 2.0), ("1E3", 1000.0),
        ("-1.0e+3", -1000.0), ("'12'", "12"), ("abc", "abc"), ("1.2.3", "1.2.3"), ("null", None),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(tmp_path, text, value):
    path = tmp_path / "recipe.yaml"
    path.write_text(f"key: {text}\n")
    found = read_values(str(path))["key"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("steps", "true"), ("steps", "1:30"), ("steps", "yes"), ("seed", "false"),
        ("optimizer.learning_rate", "true"), ("optimizer.learning_rate", "1:30"),
        ("optimizer.betas", "[true, 0.9]"), ("problems", "{arithmetic: true}"),
    ],
)  # fmt: skip
def test_what_is_no_number_is_refused_by_key(tmp_path, key, text):
    path = tmp_path / "recipe.yaml"
    flags = {key: "PLACE"}
    path.write_text(
        yaml.safe_dump(with_flags(read_values("tiny/zero"), flags)).replace("PLACE", text)
    )
    with pytest.raises(RecipeError, match=key.replace(".", r"\.")):
        read(str(path))


@pytest.mark.parametrize(
    ("key", "value", "number"),
    [("steps", 7, 7), ("optimizer.learning_rate", "1e-4", 1e-4), ("optimizer.learning_rate", 1, 1)],
)
def test_numbers_and_their_texts_are_accepted(key, value, number):
    recipe = validate(with_flags(read_values("tiny/zero"), {key: value}), "flags")
    for part in key.split("."):
        recipe = getattr(recipe, part)
    assert recipe == number


def test_a_switch_stays_a_switch():
    recipe = validate(with_flags(read_values("tiny/zero"), {"tensorboard": False}), "flags")
    assert recipe.tensorboard is False
