"""What was read and made, by content: every byte counts, and nothing that is about the run."""

import hashlib
import json
import os
import shutil

import pytest

from veriloop.pipeline.runs import lineage


@pytest.fixture
def model(tmp_path):
    """A folder such as a stage leaves."""
    folder = tmp_path / "step_000010"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"):
        (folder / name).write_text(f"of {name}")
    for name in ("manifest.json", "base.json", "trainer_state.pt", ".hidden.json"):
        (folder / name).write_text(f"about {name}")
    return folder


def test_the_hash_of_a_checkpoint_is_that_of_its_names_and_bytes(model):
    names = ("chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json")
    lines = [f"{n}\0{hashlib.sha256(f'of {n}'.encode()).hexdigest()}\n" for n in names]
    assert lineage.checkpoint_hash(model) == hashlib.sha256("".join(lines).encode()).hexdigest()


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"]
)
def test_every_file_of_the_model_counts(model, name):
    before = lineage.checkpoint_hash(model)
    (model / name).write_text("another")
    assert lineage.checkpoint_hash(model) != before


def test_a_file_more_and_another_name_count(model):
    found = {lineage.checkpoint_hash(model)}
    (model / "vocab.txt").write_text("x")
    found.add(lineage.checkpoint_hash(model))
    (model / "vocab.txt").rename(model / "merges.txt")
    found.add(lineage.checkpoint_hash(model))
    assert len(found) == 3


@pytest.mark.parametrize("name", ["manifest.json", "base.json", "trainer_state.pt", ".hidden.json"])
def test_what_is_about_the_run_does_not_count(model, name):
    before = lineage.checkpoint_hash(model)
    (model / name).write_text("another")
    assert lineage.checkpoint_hash(model) == before


def test_where_it_lies_does_not_count(model, tmp_path):
    shutil.copytree(model, tmp_path / "elsewhere")
    assert lineage.checkpoint_hash(tmp_path / "elsewhere") == lineage.checkpoint_hash(model)


def test_a_file_is_read_once_while_nobody_touches_it(model):
    path = model / "model.safetensors"
    lineage._streamed.cache_clear()
    first = lineage.file_hash(path)
    assert lineage.file_hash(path) == first == hashlib.sha256(path.read_bytes()).hexdigest()
    assert lineage._streamed.cache_info().misses == 1
    about = path.stat()
    path.write_text("OF model.safetensors")  # as long, and dated back
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert lineage.file_hash(path) == hashlib.sha256(b"OF model.safetensors").hexdigest()


def test_what_is_neither_a_checkpoint_nor_a_file_is_not_traced(model, tmp_path):
    assert lineage.traced(tmp_path) is None and lineage.traced(tmp_path / "none") is None
    assert lineage.traced(model)["kind"] == "checkpoint"
    assert lineage.traced(model / "config.json") == {
        "path": str(model / "config.json"),
        "kind": "file",
        "sha256": hashlib.sha256(b"of config.json").hexdigest(),
    }


@pytest.mark.parametrize("length", [200, 256, 5000])  # of a name, and of a path, at most 255, 4095
def test_a_text_that_is_too_long_for_a_path_is_not_traced(length):
    assert lineage.inputs({"rollout": {"system": "x" * length}}) == {}


def test_the_state_of_what_was_traced(model):
    told = lineage.traced(model)
    assert lineage.state(told) == ""
    (model / "config.json").write_text("{}")
    assert lineage.state(told) == "changed"
    shutil.rmtree(model)
    assert lineage.state(told) == "missing"


def test_inputs_are_the_paths_in_a_recipe_anywhere(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("{}")
    (tmp_path / "arithmetic.yaml").write_text("x")
    (tmp_path / "mine").write_text("a file called as the recipe is")
    recipe = {
        "stage": "mine",
        "name": "mine",
        "start": str(model),
        "data": {"source": "rows.jsonl", "kind": "arithmetic", "more": ["none", "rows.jsonl"]},
        "anchors": "",
        "steps": 3,
    }
    found = lineage.inputs(recipe)
    assert {key: one["kind"] for key, one in found.items()} == {
        "start": "checkpoint",
        "data.source": "file",
        "data.more.1": "file",
    }
    assert found["data.source"]["path"] == "rows.jsonl"


def test_a_folder_of_a_data_set_is_an_input_by_the_names_and_bytes_of_its_files(tmp_path):
    folder = tmp_path / "rows"
    (folder / "train").mkdir(parents=True)
    (folder / "train/a.jsonl").write_text("1")
    recipe = {"sets": {"mine": {"path": str(folder)}}, "data": {"source": str(folder)}}
    [(key, entry)] = lineage.inputs(recipe).items()
    assert (key, entry["kind"], lineage.state(entry)) == ("sets.mine.path", "data", "")
    (folder / "train/a.jsonl").write_text("2")
    assert lineage.state(entry) == "changed"
    (folder / "train/a.jsonl").write_text("1")
    (folder / "train/a.jsonl").rename(folder / "train/b.jsonl")
    assert lineage.state(entry) == "changed"
    shutil.rmtree(folder)
    assert lineage.state(entry) == "missing"


def test_the_files_of_functions_and_plugins_in_modules_are_inputs(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "lineage_of_mine"
    package.mkdir()
    for name in ("__init__", "losses", "verifiers"):
        (package / f"{name}.py").write_text("")
    (tmp_path / "mine.py").write_text("")
    recipe = {
        "algorithm": {
            "objective": "lineage_of_mine.losses:mine",
            "advantage": f"{tmp_path}/mine.py:mine",
        },
        "reward": {"terms": {"x": {"function": "lineage_of_mine.losses:term"}}},
        "plugins": ["lineage_of_mine.verifiers", f"{tmp_path}/mine.py", "lineage_of_mine"],
        "sandbox": {"backend": "docker:image"},
    }
    found = lineage.inputs(recipe)
    assert {key: one["path"].removeprefix(f"{tmp_path}/") for key, one in found.items()} == {
        "algorithm.objective (file)": "lineage_of_mine/losses.py",
        "algorithm.advantage (file)": "mine.py",
        "reward.terms.x.function (file)": "lineage_of_mine/losses.py",
        "plugins.0": "lineage_of_mine/verifiers.py",
        "plugins.1": "mine.py",
        "plugins.2": "lineage_of_mine/__init__.py",
    }
    (package / "losses.py").write_text("def mine(inputs): ...")
    changed = lineage.inputs(recipe)
    assert {key for key in found if changed[key] != found[key]} == {
        "algorithm.objective (file)",
        "reward.terms.x.function (file)",
    }


@pytest.mark.parametrize(
    "source", ["veriloop.verifiers.text.number", "sys", "no_such", "no_such.module"]
)
def test_modules_of_veriloop_and_those_without_a_file_are_no_inputs(source):
    recipe = {"algorithm": {"objective": f"{source}:mine"}, "plugins": [source]}
    assert lineage.inputs(recipe) == {}


RECIPE = {"stage": "zero", "name": "n", "steps": 4, "rollout": {"prompts": 2, "stop": ["x"]}}


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({"steps": 5}, True),
        ({"name": "m"}, True),
        ({"rollout": {"prompts": 2, "stop": ["y"]}}, True),
        ({"evaluation": {"problems": 3}}, True),  # decides the figures
        ({"checkpoint": {"every": 3}}, False),
        ({"tensorboard": False}, False),
        ({"verifier_workers": 2}, False),
        ({"verifier_service": ["http://a", "http://b"]}, False),
        ({"verifier_workers_two": 2}, True),
        ({"trainer": {"threads": 2}}, False),
        ({"trainer": {"row": 2}}, True),
        ({"start": "moved/elsewhere"}, False),  # told by content
    ],
)
def test_a_recipe_is_identified_by_what_decides_the_outcome(change, counts):
    before = lineage.recipe_hash(RECIPE | {"start": "here"}, {"start"})
    after = lineage.recipe_hash(RECIPE | {"start": "here"} | change, {"start"})
    assert (before != after) is counts


def test_a_recipe_reads_the_same_in_any_order():
    turned = dict(reversed(list(RECIPE.items())))
    assert lineage.recipe_hash(turned, ()) == lineage.recipe_hash(RECIPE, ())


def test_what_a_stage_reads_has_the_start_that_its_recipe_led_to(model, tmp_path):
    (tmp_path / "base.yaml").write_text("stage: base")
    recipe = RECIPE | {"start": str(tmp_path / "base.yaml")}
    told = lineage.read_by(recipe, model)
    assert told["inputs"] == {"start": lineage.traced(model)}
    assert told["recipe"] == lineage.recipe_hash(RECIPE, ())
    assert lineage.read_by(RECIPE)["inputs"] == {}


def test_what_a_stage_made_leaves_out_records_and_numbers(model):
    outputs = {"checkpoint": str(model), "metrics": str(model / "config.json"), "zero_point": 0.5}
    assert lineage.output_hashes(outputs) == {"checkpoint": lineage.traced(model)}
    assert lineage.output_hashes({"failure": "no"}) == {}


def test_verifiers_are_those_noted_in_the_stage_s_folder(tmp_path):
    assert lineage.verifier_fingerprints(tmp_path) == {}
    (tmp_path / "versions.json").write_text(json.dumps({"verifiers": {"number": "1+ab"}}))
    assert lineage.verifier_fingerprints(tmp_path) == {"number": "1+ab"}
