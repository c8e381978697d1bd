"""Rows come from files, saved folders and hub-like folders; what is not here is one clear error."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from veriloop.data.hub import files
from veriloop.data.hub.files import held_out_split
from veriloop.data.hub.layout import Layout
from veriloop.data.hub.load import read
from veriloop.data.hub.sets import SETS

ROOT = Path(__file__).parent.parent.parent.parent


def problems(path, split=""):
    return [entry.problem for entry in read("gsm8k", path=str(path), split=split)]


def test_a_text_that_looks_like_a_date_stays_a_text(written):
    found = [{"question": "2020-01-01", "answer": "#### 1"}, {"question": "b", "answer": "#### 2"}]
    for ending in ("jsonl", "json", "parquet"):
        made = problems(written(found, f"rows.{ending}"))
        assert [one.prompt for one in made] == ["2020-01-01", "b"]


@pytest.mark.slow
def test_a_folder_that_datasets_has_saved(rows, tmp_path):
    import datasets

    whole = datasets.Dataset.from_list(rows["gsm8k"])
    whole.save_to_disk(str(tmp_path / "one"))
    both = datasets.DatasetDict({"train": whole.select([0]), "test": whole.select([1])})
    both.save_to_disk(str(tmp_path / "both"))
    assert [one.reference["answer"] for one in problems(tmp_path / "one")] == ["72", "-1200"]
    assert [one.id for one in problems(tmp_path / "both", "test")] == ["gsm8k/test/0"]
    with pytest.raises(ValueError, match=r"has no split 'tset'; it has train, test"):
        problems(tmp_path / "both", "tset")
    for split, folder in (("train", "learned"), ("test", "exam")):
        one = datasets.Dataset.from_list(rows["gsm8k"][:1], split=split)
        one.save_to_disk(str(tmp_path / folder))
    assert [one.id for one in problems(tmp_path / "exam", "test")] == ["gsm8k/test/0"]
    with pytest.raises(ValueError, match="learned holds split train, not 'test'"):
        problems(tmp_path / "learned", "test")
    assert held_out_split(SETS["gsm8k"], str(tmp_path / "learned"), "")[1] == ""


def test_a_single_file_has_no_other_split(tmp_path):
    with pytest.raises(
        ValueError, match=r"test='test' is a split, and rows\.jsonl holds one alone"
    ):
        held_out_split(SETS["gsm8k"], "rows.jsonl", "test")
    assert held_out_split(SETS["gsm8k"], "rows.jsonl", "exam.jsonl") == ("exam.jsonl", "test")


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_folder_of_files_has_their_names_as_splits(ending, rows, written, tmp_path):
    written(rows["gsm8k"][:1], f"set/train.{ending}")
    written(rows["gsm8k"][1:], f"set/test.{ending}")
    assert [one.reference["answer"] for one in problems(tmp_path / "set")] == ["72"]
    assert [one.reference["answer"] for one in problems(tmp_path / "set", "test")] == ["-1200"]


def test_a_folder_as_it_is_on_the_hub(rows, written, tmp_path):
    written(rows["gsm8k"][:1], "set/data/train-00000-of-00001.parquet")
    written(rows["gsm8k"][1:], "set/data/test-00000-of-00001.parquet")
    assert [one.reference["answer"] for one in problems(tmp_path / "set", "test")] == ["-1200"]
    with pytest.raises(ValueError, match="cannot be read as a data set"):
        problems(tmp_path / "set", "validation")


def test_reading_takes_no_more_rows_than_are_asked_for(rows, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(rows["gsm8k"][0]) + "\n{broken\n")
    reading = read("gsm8k", path=str(path))
    assert next(iter(reading)).problem.reference == {"answer": "72"}
    with pytest.raises(ValueError, match="line 2: not JSON"):
        list(read("gsm8k", path=str(path)))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.jsonl", "is not a file or folder"),
        ("rows.csv", r"does not end in one of \.jsonl, \.json, \.parquet"),
        ("object.json", "must hold a list of rows, got dict"),
        ("broken.json", "not JSON"),
        ("words.jsonl", "must be an object"),
    ],
)
def test_what_cannot_be_read_is_named(name, said, tmp_path):
    for made, text in (
        ("rows.csv", "a"), ("object.json", "{}"), ("broken.json", "["), ("words.jsonl", '"a"\n'),
    ):  # fmt: skip
        (tmp_path / made).write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        problems(tmp_path / name)


@pytest.mark.slow
def test_a_set_that_is_not_here_names_the_cache_and_what_to_do(tmp_path):
    code = "from veriloop.data.hub.load import read; next(iter(read('gsm8k', streaming=False)))"
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True
    )
    said = ran.stderr.strip().splitlines()
    assert (
        "DatasetNotFoundError: gsm8k: openai/gsm8k, main, split train is not in the cache"
        in said[-2]
    )
    assert f"{tmp_path}/datasets" in said[-2] and "(HF_HUB_OFFLINE is set)" in said[-2]
    assert "hf download openai/gsm8k --repo-type dataset --local-dir DIR" in said[-1]


def test_the_hub_is_asked_for_the_set_its_configuration_and_split(monkeypatch, rows):
    import datasets

    asked = []

    def load(repo, config, *, split, streaming):
        asked.append((repo, config, split, streaming))
        return rows["gsm8k"]

    monkeypatch.setattr(datasets, "load_dataset", load)
    layout = Layout(repo="a/b", config="c")
    assert list(files.rows("n", layout, "", "train")) == rows["gsm8k"]
    list(files.rows("n", layout, "", "test", config="d", streaming=False))
    assert asked == [("a/b", "c", "train", True), ("a/b", "d", "test", False)]


def test_a_loading_script_is_not_run_and_its_files_are_asked_for():
    with pytest.raises(
        files.DatasetNotFoundError, match=r"hf download codeparrot/apps .* --local-dir DIR"
    ):
        read("apps")
    with pytest.raises(files.DatasetNotFoundError, match="give its path"):
        files.rows("mine", Layout(), "", "train")


def test_a_json_file_may_have_an_object_a_line(written, rows, tmp_path):
    path = tmp_path / "rows.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows["gsm8k"]), encoding="utf-8-sig")
    assert [one.reference["answer"] for one in problems(path)] == ["72", "-1200"]


def test_a_downloaded_folder_has_the_configuration_of_its_set(rows, written, tmp_path):
    for config, row in zip(("main", "socratic"), rows["gsm8k"], strict=True):
        for split in ("train", "test"):
            written([row], f"set/{config}/{split}-00000-of-00001.parquet")
    assert [one.reference["answer"] for one in problems(tmp_path / "set")] == ["72"]


def test_a_date_in_a_folder_of_json_files_stays_text(written, tmp_path):
    written([{"question": "2020-01-15", "answer": "#### 1"}], "set/data/train.jsonl")
    assert [one.prompt for one in problems(tmp_path / "set")] == ["2020-01-15"]


def test_the_configurations_that_a_folder_lists_are_read_by_name(rows, written, tmp_path):
    first, second = (written([row], f"set/{n}.parquet") for n, row in enumerate(rows["gsm8k"]))
    listed = "".join(
        f"- config_name: {config}\n  data_files:\n  - split: train\n    path: {Path(file).name}\n"
        for config, file in (("socratic", first), ("main", second))
    )
    (tmp_path / "set/README.md").write_text(f"---\nconfigs:\n{listed}---\n")
    assert [one.reference["answer"] for one in problems(tmp_path / "set")] == ["-1200"]
    other = read("gsm8k", path=str(tmp_path / "set"), config="socratic")
    assert [entry.problem.reference["answer"] for entry in other] == ["72"]
