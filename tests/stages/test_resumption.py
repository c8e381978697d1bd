"""A stage is resumed with what it began with; a change is refused by name or allowed by name."""

import json
import shutil

import pytest
import yaml

from veriloop.pipeline.config.load import read
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs import lineage
from veriloop.stages.cli import main
from veriloop.stages.resumption import (
    allowing,
    changed_content,
    changed_inputs,
    note_verifiers,
)
from veriloop.stages.staleness import current_fingerprints

OLD, NEW = "a" * 64, "b" * 64


def entry(**hashes):
    return {"lineage": {"inputs": {k: {"path": k, "sha256": v} for k, v in hashes.items()}}}


def inputs(**hashes):
    return entry(**hashes)["lineage"]["inputs"]


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (
            entry(start=OLD),
            inputs(start=NEW),
            r"start start = start: a{12} -> b{12}.*--allow-changed start",
        ),
        (
            entry(**{"plugins.0": OLD}),
            inputs(**{"plugins.0": NEW}),
            r"verifier plugins\.0 = plugins\.0: a{12} -> b{12}.*--allow-changed verifier, or",
        ),
        (
            entry(**{"reward.terms.x.function (file)": OLD}),
            inputs(**{"reward.terms.x.function (file)": NEW}),
            r"file reward\.terms\.x\.function",
        ),
        (entry(data=OLD), {}, "file data = data: a{12} -> missing"),
        (entry(start=OLD, data=OLD), inputs(start=NEW), "--allow-changed file --allow-changed st"),
    ],
)
def test_changed_inputs_are_refused_by_name(before, now, said):
    with pytest.raises(RecipeError, match=said):
        changed_inputs(before, now)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({}, inputs(start=NEW)),  # a run that recorded no inputs
        (entry(start=OLD), inputs(start=OLD)),
        (entry(), inputs(start=OLD)),  # a new input of a newer version
    ],
)
def test_unchanged_inputs_are_accepted(before, now):
    assert changed_inputs(before, now) == []


def test_an_allowed_change_is_returned_and_others_are_still_refused():
    with allowing(["verifier"]):
        (change,) = changed_content(
            "verifier", {"number": "1+aaa"}, {"number": "2+bbb", "fresh": "1+c"}
        )
        assert change == {"kind": "verifier", "name": "number", "before": "1+aaa", "now": "2+bbb"}
        with pytest.raises(RecipeError):
            changed_inputs(entry(start=OLD), inputs(start=NEW))
    with pytest.raises(RecipeError, match=r"verifier number: 1\+aaa -> 2\+bbb"):
        changed_content("verifier", {"number": "1+aaa"}, {"number": "2+bbb"})


def test_what_was_allowed_is_not_refused_again_and_neither_is_what_the_stage_began_with():
    with allowing(["file"]):
        changes = changed_inputs(entry(data=OLD), inputs(data=NEW))
    later = entry(data=OLD) | {"allowed_changes": changes}
    assert lineage.begun_with(later, inputs(data=NEW, more=NEW)) == inputs(data=OLD, more=NEW)
    for now in (OLD, NEW):
        assert changed_inputs(later, inputs(data=now)) == changes
    with pytest.raises(RecipeError, match=r"file data = data: a{12} -> c{12}"):
        changed_inputs(later, inputs(data="c" * 64))


def test_the_verifiers_that_a_stage_began_with_stay_on_record_beside_allowed_changes(tmp_path):
    note_verifiers(tmp_path, {"number": "1+aaa"}, {"backend": "namespace"})
    note_verifiers(tmp_path, {"format": "1+ccc"})
    with pytest.raises(RecipeError, match=r"verifier number: 1\+aaa -> 2\+bbb"):
        note_verifiers(tmp_path, {"number": "2+bbb"})
    with allowing(["verifier"]):
        note_verifiers(tmp_path, {"number": "2+bbb"})
    change = {"kind": "verifier", "name": "number", "before": "1+aaa", "now": "2+bbb"}
    for now in ("1+aaa", "2+bbb"):
        note_verifiers(tmp_path, {"number": now})
        assert lineage.judges(tmp_path) == {
            "verifiers": {"number": "1+aaa", "format": "1+ccc"},
            "sandbox": {"backend": "namespace"},
            "allowed_changes": [change],
        }


def test_the_verifiers_of_a_stage_that_collects_are_those_of_its_settings():
    recipe = read("tiny/cold_start")
    collect = recipe.collect.model_copy(update={"verifier_computer_algebra": "never"})
    own, other = (
        current_fingerprints(["math_answer"], one)["math_answer"]
        for one in (recipe, recipe.model_copy(update={"collect": collect}))
    )
    assert other == f"{own},computer_algebra=never"


@pytest.fixture
def stopped(tiny_checkpoint, tmp_path, one_pool, stopping):
    """(words of the command, its run folder, its start) of a run stopped after its first step."""
    start = tmp_path / "start"
    shutil.copytree(tiny_checkpoint(), start)
    values = {
        "stage": "zero",
        "name": "test",
        "start": str(start),
        "steps": 2,
        "rollout": {"prompts": 2, "per_prompt": 2, "max_tokens": 8},
        "optimizer": {"learning_rate": 0.01},
        "sampler": {"engine": "torch"},
        "evaluation": {"problems": 2, "samples": 1},
        "tensorboard": False,
    }
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(values))
    words = ["zero", str(recipe), "--output", str(tmp_path / "run"), "--resume"]
    with stopping():
        assert main(words) == 130
    return words, tmp_path / "run", start


def files(folder):
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("report.")
    }


@pytest.mark.slow
def test_a_changed_verifier_is_refused_or_allowed_and_recorded(stopped, stage, capsys):
    words, run, _ = stopped
    path = run / "zero" / "versions.json"
    versions = json.loads(path.read_text())
    now = versions["verifiers"]["number"]
    versions["verifiers"]["number"] = "0+cafe"
    path.write_text(json.dumps(versions))
    before, entry_before = path.read_bytes(), stage(run)
    metrics = (run / "zero" / "metrics.jsonl").read_bytes()
    assert main(words) == 2
    said = capsys.readouterr().err
    assert f"verifier number: 0+cafe -> {now[:14]}" in said and "--allow-changed verifier" in said
    assert path.read_bytes() == before
    assert (run / "zero" / "metrics.jsonl").read_bytes() == metrics
    assert stage(run) == entry_before
    assert main([*words, "--allow-changed", "verifier"]) == 0
    change = {"kind": "verifier", "name": "number", "before": "0+cafe", "now": now}
    assert stage(run)["lineage"]["allowed_changes"] == [change]


@pytest.mark.slow
def test_a_changed_start_is_refused_untouched_or_allowed_and_recorded(stopped, stage, capsys):
    words, run, start = stopped
    (start / "vocab.txt").write_text("one more file of the model folder")
    before = files(run)
    assert main(words) == 2
    assert f"(start start = {start}: " in capsys.readouterr().err
    assert files(run) == before
    assert main([*words, "--allow-changed", "file"]) == 2
    assert main([*words, "--allow-changed", "start"]) == 0
    (change,) = stage(run)["allowed_changes"]
    assert (change["kind"], change["path"]) == ("start", str(start))
