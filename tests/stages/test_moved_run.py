"""A run that was moved, that another directory resumes, or that was stopped after it was asked for
stages again. Most stages here train nothing."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import StageSelection
from veriloop.pipeline.errors import RecipeError, Stopped
from veriloop.pipeline.runs import lineage
from veriloop.pipeline.runs.manifest import RunManifest, recorded
from veriloop.stages import base, r1
from veriloop.stages.commands import lineage as lineage_command

STAGES = [
    {"name": "base", "recipe": "tiny/base"},
    {"name": "sft", "recipe": "tiny/sft", "take": {"start": "base.checkpoint"}},
    {"name": "zero", "recipe": "tiny/zero", "take": {"start": "sft.checkpoint"}},
]


@pytest.fixture
def ran(here, monkeypatch):
    """The stages that ran so far, by name; `stop` names the one that a stop ends."""
    told = SimpleNamespace(names=[], stop="")

    def run(recipe, output, *, resume, name):
        del resume
        if name == told.stop:
            raise Stopped("stopped")
        told.names.append(name)
        manifest, values = RunManifest(output / "run.json"), recipe.model_dump(mode="json")
        folder = output / name / "checkpoints/step_000001"
        folder = Path("outputs/cache/base") if recipe.stage == "base" else folder
        folder.mkdir(parents=True, exist_ok=True)
        manifest.begin_stage(name, {"recipe": values}, lineage.read_by(values))
        (folder / "config.json").write_text(json.dumps({"made by": name}))
        outputs = {"checkpoint": str(folder)}
        manifest.end_stage(name, 1.0, None, {}, {}, outputs)
        return folder

    monkeypatch.setattr(r1, "module_of", lambda stage: SimpleNamespace(run=run))
    return told


def go(output="outputs/w", **selection):
    Path("r1.yaml").write_text(yaml.safe_dump({"stage": "r1", "name": "t", "stages": STAGES}))
    selected = StageSelection(**selection)
    return r1.run(read("r1.yaml"), Path(output), resume=True, selection=selected)


def names(ran):
    told, ran.names[:] = list(ran.names), []
    return told


def test_a_moved_run_repeats_nothing_and_names_its_files_where_they_are(ran, here, capsys):
    go()
    names(ran)
    Path("outputs/w").rename("elsewhere")
    assert go("elsewhere") == Path("elsewhere/zero/checkpoints/step_000001")
    assert names(ran) == [] and "elsewhere/run.json: the files of sft, zero are" in (
        capsys.readouterr().out
    )
    entries = recorded(Path("elsewhere/run.json"))
    made = "elsewhere/sft/checkpoints/step_000001"
    assert entries["sft"]["outputs"]["checkpoint"] == made
    assert entries["zero"]["lineage"]["inputs"]["start"]["path"] == made
    assert lineage_command.command(["lineage", "elsewhere"]) == 0
    go("elsewhere")
    assert "are found in other places" not in capsys.readouterr().out


def test_another_directory_finds_the_run_and_the_base_in_its_cache(ran, here, monkeypatch):
    go()
    names(ran)
    (here / "below/deeper").mkdir(parents=True)
    monkeypatch.chdir("below/deeper")
    go(here / "outputs/w")
    assert names(ran) == []
    go("../../outputs/w", only="sft")
    assert names(ran) == ["sft"]
    entries = recorded(here / "outputs/w/run.json")
    assert entries["base"]["outputs"]["checkpoint"] == "../../outputs/cache/base"


def test_a_copied_run_uses_its_own_files(ran, here):
    go()
    shutil.copytree("outputs/w", "outputs/copy")
    (here / "outputs/copy/zero/checkpoints/step_000001/config.json").write_text("{}")
    names(ran)
    go()
    assert names(ran) == []
    go("outputs/copy")
    assert names(ran) == ["zero"]
    assert "aside" in os.listdir("outputs/copy") and "aside" not in os.listdir("outputs/w")


def test_a_file_with_other_content_is_no_base_of_the_run(ran, here, monkeypatch):
    go()
    names(ran)
    (here / "outputs/cache/base/config.json").write_text("{}")
    (here / "below").mkdir()
    monkeypatch.chdir("below")
    with pytest.raises(RecipeError, match=r"base\.checkpoint, and outputs/cache/base is missing"):
        go("../outputs/w", only="sft")


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["sft", "zero"])
def test_a_stopped_run_leaves_the_stages_that_were_asked_for_to_a_plain_resume(ran, stop):
    go()
    names(ran)
    ran.stop = stop
    with pytest.raises(Stopped):
        go(since="sft")
    began = names(ran)
    left = [name for name in ("sft", "zero") if r1.to_run(name, Path("outputs/w"))]
    assert [*began, *left] == ["sft", "zero"] and left[0] == stop
    ran.stop = ""
    go()
    assert names(ran) == left
    go()
    assert names(ran) == []


@pytest.mark.slow
def test_what_was_asked_for_is_not_repeated_by_going_on_from_where_it_stopped(ran):
    go()
    names(ran)
    ran.stop = "zero"
    with pytest.raises(Stopped):
        go(since="base")
    ran.stop = ""
    go(since="zero")
    assert names(ran) == ["base", "sft", "zero"]


SHAPE = {"hidden": 32, "layers": 1, "heads": 1, "feed_forward": 48, "vocabulary": 400}
SMALL = {
    "base": {
        "stage": "base", "name": "test/base", "steps": 3, "tokens_per_step": 256, "model": SHAPE,
        "tokenizer_documents": 300, "step_accuracy": 0.0,
        "optimizer": {"learning_rate": 4e-3, "muon_learning_rate": 2e-2},
    },
    "judge": {
        "stage": "reward_model", "name": "test/judge", "start": "nowhere", "batch": 8,
        "data": {"rows": 24, "held_out": 8}, "optimizer": {"learning_rate": 3e-3},
        "checkpoint": {"every": 1}, "tensorboard": False,
    },
}  # fmt: skip


@pytest.mark.slow
def test_a_stage_stopped_in_the_middle_goes_on_from_another_directory(
    here, monkeypatch, stopping, one_pool, capsys
):
    monkeypatch.setattr(base, "step_accuracy", lambda *_: 0.0)
    for name, values in SMALL.items():
        Path(f"{name}.yaml").write_text(yaml.safe_dump(values))
    stages = [
        {"name": "base", "recipe": str(here / "base.yaml")},
        {"name": "judge", "recipe": str(here / "judge.yaml"), "take": {"start": "base.checkpoint"}},
    ]
    recipe = R1Recipe.model_validate({"name": "t", "stages": stages})
    with stopping(), pytest.raises(Stopped):
        r1.run(recipe, Path("outputs/w"), resume=True)
    (here / "below").mkdir()
    monkeypatch.chdir("below")
    r1.run(recipe, Path("../outputs/w"), resume=True)
    assert "judge: resumes" in capsys.readouterr().out
    assert not (here / "outputs/w/aside").exists()
