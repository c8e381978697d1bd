"""`veriloop lineage`: the tree of a run laid out by hand, and its marks."""

import json
import shutil
from pathlib import Path

import pytest

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs import lineage
from veriloop.pipeline.runs import manifest as run_json
from veriloop.pipeline.runs.manifest import RunManifest
from veriloop.stages import cli as command
from veriloop.stages.commands.lineage import described

NAMES = ("base", "zero", "sft")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """base -> zero -> sft, which also reads what a collection of zero's answers left."""
    git = {"commit": "0123456789abcdef", "dirty": False}
    known = {"versions": {"veriloop": "1"}, "machine": {}, "git": git}
    monkeypatch.setattr(run_json, "identity", lambda: known)
    monkeypatch.chdir(tmp_path)
    folder = Path("run")
    manifest = RunManifest(folder / "run.json")

    def checkpoint(name):
        made = folder / name / "step_1"
        made.mkdir(parents=True)
        (made / "config.json").write_text(name)
        return made

    def stage(name, recipe, made, after=()):
        manifest.begin_stage(name, {"recipe": recipe}, lineage.read_by(recipe))
        manifest.end_stage(name, 12.4, None, {}, dict(after), made)

    base = checkpoint("base")
    stage("base", {"stage": "base", "steps": 3}, {"checkpoint": str(base)})
    zero = checkpoint("zero")
    run_json.write_versions(folder / "zero/versions.json", {"number": "1+abc"})
    stage("zero", {"stage": "zero", "start": str(base)}, {"checkpoint": str(zero)})
    data, card = folder / "data.jsonl", folder / "data.card.json"
    data.write_text("{}\n")
    card.write_text(json.dumps({"kept": 90, "dropped": {"wrong": 8, "too_long": 2}}))
    files = {"data": str(data), "card": str(card)}
    stage("collect", {"stage": "collect", "start": str(zero)}, files)
    manifest.note("collect", {"goals": {"kept": {"at_least": 95, "value": 90, "met": False}}})
    sft = checkpoint("sft")
    recipe = {"stage": "sft", "start": str(base), "data": {"source": str(data)}}
    stage("sft", recipe, {"checkpoint": str(sft), "metrics": str(data)})
    return folder


def shown(run, capsys, *more):
    code = command.main(["lineage", str(run), *more])
    return code, capsys.readouterr().out


def digits(path):
    return lineage.traced(path)["sha256"][:10]


def test_the_tree_goes_from_the_last_stage_to_where_all_came_from(run, capsys):
    code, told = shown(run, capsys)
    recipes = {name: stage["recipe"][:10] for name, stage in described(run).items()}
    base, zero, sft = (f"{digits(run / n / 'step_1')} {run / n / 'step_1'}" for n in NAMES)
    data = f"{digits(run / 'data.jsonl')} {run / 'data.jsonl'}"
    card = f"{digits(run / 'data.card.json')} {run / 'data.card.json'}"
    assert told == "\n".join([
        f"sft: done in 12 s, recipe {recipes['sft']}, code 0123456789",
        f"  -> checkpoint {sft}",
        f"  <- start {base}",
        f"     base: done in 12 s, recipe {recipes['base']}, code 0123456789",
        f"       -> checkpoint {base}",
        f"  <- data.source {data}",
        f"     collect: done in 12 s, recipe {recipes['collect']}, code 0123456789, MISSED kept",
        f"       -> data {data}",
        f"       -> card {card}  kept 90, dropped 8 wrong, 2 too_long",
        f"       <- start {zero}",
        f"          zero: done in 12 s, recipe {recipes['zero']}, code 0123456789, "
        "judged by number 1+abc",
        f"            -> checkpoint {zero}",
        f"            <- start {base}",
        "               base: see above",
        "",
    ])  # fmt: skip
    assert code == 0


def test_what_changed_on_disk_is_marked_anywhere(run, capsys):
    (run / "zero/step_1/config.json").write_text("tampered")
    code, told = shown(run, capsys)
    assert code == 1
    marked = [line.strip() for line in told.splitlines() if line.endswith("  CHANGED")]
    assert [line.split()[1] for line in marked] == ["start", "checkpoint"]
    assert all("zero/step_1" in line for line in marked)


def test_what_is_gone_is_marked(run, capsys):
    (run / "data.jsonl").unlink()
    code, told = shown(run, capsys)
    assert code == 1 and told.count("data.jsonl  MISSING") == 2


def test_a_run_is_described_from_another_directory(run, tmp_path, monkeypatch, capsys):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    code, told = shown(Path("..") / run, capsys)
    assert code == 0 and "../run/sft/step_1" in told and "MISSING" not in told
    (tmp_path / run / "data.jsonl").unlink()
    assert shown(Path("..") / run, capsys)[0] == 1


def test_an_input_whose_stage_was_done_again_is_of_an_earlier_run(run, capsys):
    manifest = RunManifest(run / "run.json")
    (run / "base/step_1/config.json").write_text("another base")
    manifest.begin_stage("base", {}, lineage.read_by({"steps": 4}))
    made = {"checkpoint": str(run / "base/step_1")}
    manifest.end_stage("base", 1.0, None, {}, {}, made)
    code, told = shown(run, capsys)
    assert code == 1 and told.count("OF AN EARLIER RUN") == 2 and "CHANGED" not in told


def test_it_is_reported_as_json_too(run, capsys):
    shutil.rmtree(run / "sft/step_1")
    code, told = shown(run, capsys, "--json")
    stages = json.loads(told)
    assert code == 1 and list(stages) == ["base", "zero", "collect", "sft"]
    assert stages["sft"]["outputs"]["checkpoint"]["state"] == "missing"
    assert stages["sft"]["inputs"]["data.source"]["from"] == "collect.data"
    assert stages["collect"]["outputs"]["card"]["dropped"] == {"wrong": 8, "too_long": 2}
    assert stages["zero"]["verifiers"] == {"number": "1+abc"}
    assert stages == described(run)


def test_a_damaged_card_is_reported_as_changed(run, capsys):
    (run / "data.card.json").write_text('{"kept": 9')
    code, tree = shown(run, capsys)
    assert code == 1 and "data.card.json  CHANGED" in tree


def test_a_run_from_before_there_was_a_lineage_is_reported_as_far_as_it_goes(run, capsys):
    told = json.loads((run / "run.json").read_text())
    for stage in told["stages"]:
        del stage["lineage"]
    (run / "run.json").write_text(json.dumps(told))
    code, tree = shown(run, capsys)
    assert code == 0 and tree.splitlines()[0] == (
        "sft: done in 12 s, recipe not recorded, code unknown"
    )


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"holds no run: it has no run\.json"):
        command.importlib.import_module("veriloop.stages.commands.lineage").command(
            ["lineage", str(tmp_path)]
        )
