"""`veriloop recipes` and `veriloop config`."""

import json

import jsonschema
import pytest
import yaml

from pipeline.failures import RecipeError
from pipeline.recipes import FOLDER, read, shipped
from stages.recipe_files import command, schema

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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["recipes"], "`veriloop recipes` needs one of: ls, show, cp, validate"),
        (["recipes", "lss"], "`veriloop recipes` cannot 'lss'. Did you mean 'ls'?"),
        (["recipes", "show"], "`veriloop recipes show` has too few or too many names"),
        (["recipes", "cp", "a"], "`veriloop recipes cp a` has too few or too many names"),
        (["recipes", "validate"], "`veriloop recipes validate` has too few or too many names"),
        (["recipes", "ls", "tiny"], "`veriloop recipes ls tiny` has too few or too many names"),
        (["config"], "`veriloop config` needs one of: schema"),
        (["config", "schem"], "`veriloop config` cannot 'schem'. Did you mean 'schema'?"),
    ],
)
def test_what_is_not_understood_is_told_with_the_usage(words, said):
    with pytest.raises(RecipeError) as told:
        command(words)
    first, usage, *lines = str(told.value).splitlines()
    assert (first, usage) == (said, "usage:")
    assert lines and all(line.startswith(f"  veriloop {words[0]} ") for line in lines)


@pytest.mark.parametrize(
    "words", [["recipes", "--help"], ["config", "-h"], ["recipes", "cp", "-h"]]
)
def test_help_is_no_mistake(words, capsys):
    assert command(words) == 0
    assert capsys.readouterr().out.startswith(f"usage:\n  veriloop {words[0]} ")


@pytest.fixture(scope="module")
def checker():
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


def test_the_schema_that_is_printed_is_the_schema(capsys):
    assert command(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()


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
