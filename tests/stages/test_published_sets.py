"""A model trains on a published set from a file; the plan and the record say what became of it."""

import json
import re

import pyarrow.parquet as pq
import pytest
import yaml

from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.stages.cli import main


@pytest.fixture
def words(tiny_checkpoint, tmp_path, one_pool):
    """Function: what runs two steps on GSM8K's columns, with changes of the recipe."""
    rows = [
        {"question": f"What is {n}+{n}?", "answer": f"{n}+{n}={2 * n}\n#### {2 * n}"}
        for n in range(1, 9)
    ]
    rows.append({"question": "What is " + "1+" * 400 + "1?", "answer": "#### 401"})
    rows.append({"question": "What is nothing?", "answer": "nothing"})
    for name, some in (("train", rows), ("test", rows[:2])):
        lines = "".join(json.dumps(row) + "\n" for row in some)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    values = {
        "stage": "zero",
        "name": "test",
        "start": str(tiny_checkpoint()),
        "sets": {
            "gsm8k": {
                "path": str(tmp_path / "train.jsonl"),
                "test": str(tmp_path / "test.jsonl"),
            }
        },
        "problems": {"gsm8k": 1.0},
        "steps": 2,
        "rollout": {"prompts": 2, "per_prompt": 2, "max_tokens": 8},
        "optimizer": {"learning_rate": 0.01},
        "algorithm": {"minibatches": 1},
        "reward": {"control": "random"},
        "sampler": {"engine": "torch"},
        "evaluation": {"sources": ["gsm8k"], "problems": 9, "samples": 1},
        "tensorboard": False,
    }

    def made(**changes):
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(yaml.safe_dump(values | changes))
        return ["zero", str(recipe), "--output", str(tmp_path / "run")]

    return made


def rollouts(folder):
    found = sorted((folder / "run/zero/rollouts").glob("*.parquet"))
    assert len(found) == 2
    return [row for path in found for row in pq.read_table(path).to_pylist()]


@pytest.mark.slow
def test_two_steps_are_trained_on_a_file_of_gsm8k(words, tmp_path, capsys, stage):
    assert main(words()) == 0
    shown = capsys.readouterr().out
    assert (
        "gsm8k: 6 questions to learn from, 2 held out; 2 also held out; 1 no #### answer; "
        "1 prompt too long"
    ) in shown
    noted = json.loads((tmp_path / "run/zero/sets.json").read_text())
    assert noted["gsm8k"]["learned"] == 6 and len(noted["gsm8k"]["sha256"]) == 64
    asked = {row["problem_id"] for row in rollouts(tmp_path)}
    assert 2 <= len(asked) <= 4 and all(one.startswith("gsm8k/train/") for one in asked)
    assert stage(tmp_path / "run")["status"] == "done"
    assert str(tmp_path / "train.jsonl") in json.dumps(stage(tmp_path / "run")["lineage"])


@pytest.mark.slow
def test_a_chat_template_is_asked_in_where_the_recipe_says_so(words, tmp_path, tiny_checkpoint):
    rollout = {"prompts": 2, "per_prompt": 2, "max_tokens": 8, "template": "chat", "system": "Add."}
    assert main(words(rollout=rollout)) == 0
    tokenizer = load_tokenizer(tiny_checkpoint())
    asked = {tokenizer.decode(row["prompt_ids"]) for row in rollouts(tmp_path)}
    assert all(re.fullmatch(r"<bos>Add\. User: What is (\d)\+\1\? Assistant:", a) for a in asked)


def test_the_plan_counts_the_rows_of_a_file(words, tmp_path, capsys):
    assert main([*words(), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "gsm8k: 7 questions to learn from, 2 held out; 2 also held out; 1 no ####" in shown
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_not_there_is_refused_before_anything_starts(words, tmp_path, capsys):
    absent = {"gsm8k": {"path": str(tmp_path / "absent.jsonl"), "held_out": 0.2}}
    assert main([*words(sets=absent), "--dry-run"]) == 2
    assert "absent.jsonl is not a file or folder" in capsys.readouterr().err
    assert main(words(sets=absent)) == 2
    assert "absent.jsonl is not a file or folder" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_resumed_run_refuses_other_questions_than_it_began_with(
    words, tmp_path, capsys, stopping
):
    with stopping():
        assert main(words()) == 130
    path = tmp_path / "train.jsonl"
    whole = path.read_text()
    path.write_text(whole.replace("What is 3+3?", "What is 3 + 3, please?"))
    assert main([*words(), "--resume"]) == 2
    assert f"has changed (file sets.gsm8k.path = {path}: " in capsys.readouterr().err
    path.write_text(whole)
    noted = tmp_path / "run/zero/sets.json"
    noted.write_text('{"gsm8k": []}')
    assert main([*words(), "--resume"]) == 2
    assert "file questions of gsm8k: unknown -> " in capsys.readouterr().err
    noted.unlink()
    assert main([*words(), "--resume"]) == 0
    assert f"WARNING: {noted} is lost, so it is not known" in capsys.readouterr().out
    assert {row["step"] for row in rollouts(tmp_path)} == {1, 2}


@pytest.mark.slow
def test_other_questions_are_allowed_by_name_and_the_first_ones_are_not_refused(
    words, tmp_path, stopping, stage
):
    with stopping():
        assert main(words(steps=4)) == 130
    path = tmp_path / "train.jsonl"
    whole = path.read_text()
    path.write_text(whole.replace("What is 3+3?", "What is 3 + 3, please?"))
    resume = [*words(steps=4), "--resume"]
    begun = stage(tmp_path / "run")
    assert main(resume) == 2
    assert stage(tmp_path / "run") == begun
    with stopping():
        assert main([*resume, "--allow-changed", "file"]) == 130
        assert main(resume) == 130
    path.write_text(whole)
    assert main(resume) == 0
    ended = stage(tmp_path / "run")
    assert [change["name"] for change in ended["allowed_changes"]] == [
        "sets.gsm8k.path",
        "questions of gsm8k",
    ]
    assert ended["lineage"]["inputs"] == begun["lineage"]["inputs"]
