"""Help of the stage commands: short, complete, and in the words of the schema. And switches, which
take no value."""

import re

import pytest
import tyro
import yaml

from veriloop.pipeline.config.load import FOLDER, read, shipped
from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.registry import STAGES
from veriloop.pipeline.errors import RecipeError
from veriloop.stages.cli import GROUPS, main
from veriloop.stages.flag_help import WIDTH, stage_help
from veriloop.stages.launch import Options, parse, unchecked

STAGE_COMMANDS = list(GROUPS["train"])
RECIPES = [str(path) for path in shipped() if not isinstance(read(str(path)), R1Recipe)]
OF_A_STAGE = {read(path).stage: path for path in reversed(RECIPES)}  # its first recipe


def listed_flags(text):
    """Every flag of a help, both ways of a switch, without the arguments."""
    words = re.findall(r"^ +(--\S+)", text, re.MULTILINE)
    on, off = ({word.replace("[no-]", no) for word in words} for no in ("", "no-"))
    return on | off


def parsed_flags(recipe, capsys):
    """Every flag that the parser knows, from its own help."""
    with pytest.raises(SystemExit):
        tyro.cli(
            Options[STAGES[recipe.stage]],
            args=["--help"],
            default=Options(recipe=recipe),
            registry=unchecked(),
        )
    lines = re.findall(r"^[│ ]+(?:-h, )?(--\w.*)", capsys.readouterr().out, re.MULTILINE)
    return {word for line in lines for word in re.findall(r"--[\w.-]+", line.split("  ")[0])}


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGE_COMMANDS)
def test_the_help_of_a_stage_fits_150_lines_of_100_columns(name, capsys):
    assert main([name, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 150 and max(map(len, lines)) <= WIDTH == 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [path if path in OF_A_STAGE.values() else pytest.param(path, marks=pytest.mark.slow)
     for path in RECIPES],
    ids=lambda path: path.removeprefix(str(FOLDER)),
)  # fmt: skip
def test_every_flag_has_one_line_with_a_description(path, capsys):
    recipe = read(path)
    text = stage_help(recipe, path)
    for section in re.findall(r"--help (\w+)", text):
        text += "\n" + stage_help(recipe, path, section)
    assert listed_flags(text) - {"--help"} == parsed_flags(recipe, capsys) - {"--help", "--stage"}
    for line in text.splitlines():
        if line.startswith("  "):
            assert re.search(r"\S  +\w", line.strip()), f"{line} has no description"


def test_defaults_are_the_values_of_the_recipe(tmp_path, capsys):
    values = yaml.safe_load((FOLDER / "tiny/zero.yaml").read_text())
    mine = tmp_path / "mine.yaml"
    mine.write_text(yaml.safe_dump(values | {"seed": 77, "problems": {"math500": 0.25}}))
    assert main(["zero", str(mine), "--steps", "3", "-h"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"--seed INT .*\(77\)", text)
    assert re.search(r"--problems.math500 FLOAT .*\(0\.25\)", text)
    assert re.search(r"--\[no-\]tensorboard .*\(on\)", text)
    assert "whole, to_go (whole)" in text


def test_a_long_value_is_cut_to_the_width():
    recipe = read("tiny/zero").model_copy(update={"start": "models/" + "a" * 200})
    assert max(map(len, stage_help(recipe, "mine.yaml").splitlines())) <= WIDTH


def test_a_section_of_the_help_is_shown_alone(capsys):
    assert main(["zero", "--help", "cluster"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:5] == ["", "cluster"]
    assert all(line.startswith("  --cluster.") for line in lines[5:]) and len(lines) > 8
    assert main(["zero", "tiny/zero", "--help", "clutser"]) == 2
    assert "no section of flags 'clutser'. Did you mean 'cluster'? Known: run, recipe, " in (
        capsys.readouterr().err
    )


def test_help_has_a_group_per_section(capsys):
    assert main(["zero", "--help"]) == 0
    groups = re.findall(r"^([a-z]+)$", capsys.readouterr().out, re.MULTILINE)
    sections = {"rollout", "algorithm", "reward", "optimizer", "trainer", "evaluation"}
    assert groups[:2] == ["run", "recipe"] and sections < set(groups)
    assert len(groups) == len(set(groups))


def switched(*words):
    """tiny/zero with these flags."""
    return parse("zero", ["tiny/zero", *words]).recipe


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--sampler.apart false", "--sampler.apart false: a switch takes no value"),
        ("--sampler.apart=True", "--sampler.apart True: a switch takes no value"),
        ("--sampler.no-apart yes", "--sampler.no-apart yes: a switch takes no value"),
        ("--no-sampler.apart", "no flag --no-sampler.apart"),
        ("--no-sampler.apart true", "no flag --no-sampler.apart"),
    ],
)
def test_a_switch_that_is_written_otherwise_is_refused_with_its_two_forms(words, said):
    with pytest.raises(RecipeError) as told:
        switched(*words.split())
    forms = "; write --sampler.apart to turn it on, --sampler.no-apart to turn it off"
    assert str(told.value) == said + forms


def test_switches_are_turned_on_and_off_by_their_flags_alone():
    recipe = switched("--sampler.apart", "--no-tensorboard", "--trainer.no-share-prompts")
    assert recipe.sampler.apart
    assert not recipe.tensorboard and not recipe.trainer.share_prompts
    with pytest.raises(RecipeError, match="write --tensorboard to turn it on, --no-tensorboard to"):
        switched("--no-tensorboard", "off")
