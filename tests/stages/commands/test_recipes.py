"""`veriloop recipes` and `veriloop config`."""

import json

import pytest
import yaml
from jsonschema_rs import Draft202012Validator

from veriloop.pipeline.config.load import FOLDER, read, shipped
from veriloop.pipeline.errors import RecipeError
from veriloop.stages.cli import main
from veriloop.stages.commands.recipes import command, schema

NAMES = [p.relative_to(FOLDER).with_suffix("").as_posix() for p in shipped()]


def test_ls_lists_every_recipe_with_its_first_line(capsys):
    assert command(["recipes", "ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    for line, path in zip(lines, shipped(), strict=True):
        first = path.read_text().splitlines()[0]
        assert first.startswith("# ") and line.endswith(first[2:])


@pytest.mark.parametrize("name", NAMES)
def test_show_prints_the_file_as_it_is(name, capsys):
    assert command(["recipes", "show", name]) == 0
    assert capsys.readouterr().out == (FOLDER / f"{name}.yaml").read_text()


def test_cp_makes_a_recipe_of_ones_own(tmp_path, capsys):
    target = tmp_path / "new/folder/mine.yaml"
    assert command(["recipes", "cp", "tiny/zero", str(target)]) == 0
    assert target.read_bytes() == (FOLDER / "tiny/zero.yaml").read_bytes()
    assert str(target) in capsys.readouterr().out


def test_cp_into_a_folder_keeps_the_name(tmp_path):
    command(["recipes", "cp", "tiny/zero", str(tmp_path)])
    assert read(str(tmp_path / "zero.yaml")) == read("tiny/zero")


@pytest.mark.parametrize("named", ["zero.yaml", ""])
def test_cp_overwrites_nothing(named, tmp_path):
    (tmp_path / "zero.yaml").write_text("mine")
    with pytest.raises(RecipeError, match=r"zero.yaml exists already; nothing was copied"):
        command(["recipes", "cp", "tiny/zero", str(tmp_path / named)])
    assert (tmp_path / "zero.yaml").read_text() == "mine"


@pytest.mark.slow
def test_every_shipped_recipe_validates(capsys):
    assert command(["recipes", "validate", *NAMES]) == 0
    assert capsys.readouterr().out.count(": a valid recipe for ") == len(NAMES) > 2


def test_validate_checks_every_file_and_tells_all_that_is_wrong(tmp_path, capsys):
    (tmp_path / "bad.yaml").write_text("stage: zreo")
    good = (FOLDER / "tiny/zero.yaml").read_text()
    (tmp_path / "start.yaml").write_text(good.replace("tiny/base.yaml", "tiny/zero.yaml"))
    names = [str(tmp_path / "bad.yaml"), "tiny/zreo", "tiny/zero", str(tmp_path / "start.yaml")]
    with pytest.raises(RecipeError) as told:
        command(["recipes", "validate", *names])
    assert capsys.readouterr().out == "tiny/zero: a valid recipe for 'zero'\n"
    for part in ("Did you mean 'zero'?", "Did you mean 'tiny/zero'?", "only a base recipe"):
        assert part in str(told.value)


def test_a_file_that_is_no_text_is_not_shown(tmp_path, capsys):
    path = tmp_path / "latin.yaml"
    path.write_bytes("# caf\u00e9\n".encode("latin-1"))
    assert main(["recipes", "show", str(path)]) == 2
    assert f"{path} is no text in UTF-8" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["recipes"], "Expected one of {ls, show, cp, validate}"),
        (["recipes", "lss"], "no command 'recipes lss'. Did you mean 'ls'?"),
        (["recipes", "xyz"], "no command 'recipes xyz'. Allowed: ls, show, cp, validate"),
        (["recipes", "show"], "Missing from veriloop recipes show: NAME"),
        (["recipes", "cp", "a"], "Missing from veriloop recipes cp: FILE"),
        (["recipes", "validate"], "recipes validate: name at least one recipe"),
        (["recipes", "ls", "tiny"], "Unrecognized options: tiny"),
        (["config"], "Expected one of {schema}"),
        (["config", "schem"], "no command 'config schem'. Did you mean 'schema'?"),
    ],
)
def test_a_mistake_names_what_is_allowed(words, said, capsys):
    assert main(words) == 2
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "words", [["recipes", "--help"], ["config", "-h"], ["recipes", "cp", "-h"]]
)
def test_help_is_no_mistake(words, capsys):
    assert main(words) == 0
    assert capsys.readouterr().out.startswith(f"usage: veriloop {words[0]} ")


@pytest.fixture(scope="module")
def checker():
    return Draft202012Validator(schema())  # raises on an invalid schema


def test_the_schema_that_is_printed_is_the_schema(capsys):
    assert command(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()


def test_every_property_of_the_schema_has_a_description():
    properties = [
        (section, name, field.get("description", ""))
        for section, definition in schema()["$defs"].items()
        for name, field in definition.get("properties", {}).items()
    ]
    assert len(properties) > 400
    assert [row for row in properties if not row[2]] == []
    sentences = {row for row in properties if not row[2].endswith((".", "..."))}
    assert sentences == set()


@pytest.mark.slow
@pytest.mark.parametrize("path", shipped(), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_the_schema_accepts_shipped_recipes_as_written_and_in_full(path, checker):
    checker.validate(yaml.safe_load(path.read_text()))
    checker.validate(read(str(path)).model_dump(mode="json"))


@pytest.mark.parametrize(
    "change",
    [{"step": 4}, {"steps": 0}, {"steps": "many"}, {"stage": "zreo"}, {"rollout": {}},
     {"algorithm": {"aggregation": "sum"}}],
)  # fmt: skip
def test_the_schema_refuses_what_reading_would(change, checker):
    values = yaml.safe_load((FOLDER / "tiny/zero.yaml").read_text())
    assert checker.is_valid(values) and not checker.is_valid(values | change)


def test_the_schema_wants_the_stage_to_be_said(checker):
    for name in ("tiny/zero", "tiny/base"):
        values = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
        del values["stage"]
        assert not checker.is_valid(values)
