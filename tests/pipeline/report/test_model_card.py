"""What a model card makes of a record: hostile names, gaps, goals, and failures of its own."""

import json
import re
from itertools import pairwise

import pytest
import yaml
from huggingface_hub import ModelCard

from veriloop.pipeline.config.load import flat, read
from veriloop.pipeline.config.sft import ColdStartRecipe
from veriloop.pipeline.report import model_card
from veriloop.pipeline.report.model_card import defaults, own_settings
from veriloop.pipeline.report.read_run import read_run

HOSTILE = (
    "x\n---\ntags: [pwned]\n---\n# Owned <img src=x onerror=alert(1)> | [go](https://evil.example) "
    "`code` www.evil.example \u202e!!python/object/apply:os.system"
)
MARKUP = re.compile(r"(?<!\\)[<>`\[\]]")


@pytest.fixture
def carded(tmp_path):
    """Function: the card of a stage whose entry in run.json has these keys."""

    def write(entry=None, *, run=None, files=None, recipe=None, read=None):
        folder = tmp_path / "run"
        checkpoint = folder / "one/checkpoints/step_000003"
        checkpoint.mkdir(parents=True)
        values = {"stage": "sft", "name": "test/one", **(recipe or {})}
        whole = {
            "name": "one",
            "started": "2026-01-02T10:00:00+00:00",
            "inputs": {"recipe": values},
            "outputs": {"checkpoint": str(checkpoint), **(read or {})},
        }
        told = {"name": "run", "resumed": [], "stages": [whole | (entry or {})], **(run or {})}
        (folder / "run.json").write_text(json.dumps(told))
        for name, text in (files or {}).items():
            (folder / "one" / name).write_text(text)
        model_card.write_card("one", lambda: read_run(folder))
        return checkpoint / "README.md"

    return write


def test_what_the_record_does_not_know_is_left_out(carded):
    text = carded().read_text()
    assert text == (
        "---\nlibrary_name: transformers\nmodel_name: test/one\npipeline_tag: text-generation\n"
        "tags:\n- veriloop\n- sft\n---\n\n# test/one\n\n"
        "Supervised fine-tuning on a file. Made by the stage one of the run run.\n\n"
        "## Recipe\n\ntest/one.\n\n"
        "## How it was made\n\n- started: 2026-01-02T10:00:00+00:00\n\n"
        "## Limits\n\n- It was not evaluated on held-out data.\n"
    )


def test_a_gain_is_shown_with_its_interval(carded):
    sides = {"before": {"pass@1": 0.25, "loss": 2.0}, "after": {"pass@1": 0.75, "loss": 1.0}}
    gains = {"pass@1": 0.5, "pass@1 95%": [0.375, 0.625]}
    text = carded({**sides, "gains": gains}).read_text()
    assert "| held out | before (95 %) | after (95 %) | gain (95 %) |" in text
    assert "| pass@1 | 0.250 | 0.750 | +0.500 (+0.375 to +0.625) |" in text
    assert "| loss | 2 | 1 | – |" in text


def test_hostile_names_stay_text_anywhere(carded):
    traced = {"path": HOSTILE, "kind": "checkpoint", "sha256": "f" * 64}
    path = carded(
        {
            "after": {HOSTILE: 0.5},
            "goals": {HOSTILE: {"value": 0.1, "at_least": 0.5, "met": False}},
            "lineage": {"inputs": {HOSTILE: traced}, "verifiers": {HOSTILE: HOSTILE}},
            "sampler": HOSTILE,
        },
        run={"name": HOSTILE, "command": HOSTILE, "versions": {HOSTILE: HOSTILE}},
        recipe={"name": HOSTILE, "start": HOSTILE, "evaluation": {"sources": [HOSTILE]}},
        files={
            "data.card.json": json.dumps(
                {"kept": 1, "dropped": {HOSTILE: 2}, "sources": {HOSTILE: 1}}
            ),
            "sets.json": json.dumps(
                {HOSTILE: {"path": HOSTILE, "learned": 1, "held_out": 0, "dropped": {HOSTILE: 1}}}
            ),
        },
    )
    card = ModelCard.load(path)
    assert card.data.tags == ["veriloop", "sft"] and "\n" not in card.data.model_name
    assert card.text.count("\n---\n") == 0 and "\n# Owned" not in card.text
    body = [line for line in card.text.splitlines() if not line.startswith("    ")]
    assert not [line for line in body if MARKUP.search(line)]
    assert "://" not in "".join(body).replace("\\://", "") and "\u202e" not in card.text
    rows = [line for line in body if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) > 1 and len(rows) > 15
    for head, row in pairwise(rows):
        if row.startswith("| ---"):
            assert len(re.findall(r"(?<!\\)\|", head)) == len(re.findall(r"(?<!\\)\|", row))


def test_front_matter_is_yaml_that_runs_nothing(carded):
    text = carded(recipe={"name": "!!python/object/apply:os.system ['x']"}).read_text()
    told = yaml.safe_load(text.split("---\n")[1])
    assert told["model_name"] == "!!python/object/apply:os.system ['x']"


def test_rows_learned_from_are_those_that_were_read(carded):
    """Not those accepted: general rows are added, and some are held out or too long."""
    card = {"kept": 1200, "rows": 1600, "dropped": {"wrong": 2000}}
    read = {"rows": 1540, "held_out": 52, "too_long": 8}
    text = carded(files={"data.card.json": json.dumps(card)}, read=read).read_text()
    said = "Of 3,600 rows 1,540 are learned from; left out: 2,000 wrong, 8 too long, 52 held out."
    assert said in text


@pytest.mark.parametrize(
    ("kind", "said"),
    [("zero", "4 answers could not be judged and were left out of training."),
     ("distill", "4 answers could not be judged.")],
)  # fmt: skip
def test_answers_without_a_verdict_teach_where_no_reward_is_read(carded, kind, said):
    rows = "".join(
        json.dumps({"step": n, "reward": 0.5, "questions": 8, "unscored": 2}) + "\n" for n in (1, 2)
    )
    text = carded(recipe={"stage": kind}, files={"metrics.jsonl": rows}).read_text()
    assert f"16 questions were asked; {said}\n" in text


def test_goals_are_reported_met_or_missed(carded):
    goals = {
        "pass@1": {"value": 0.91, "at_least": 0.9, "met": True},
        "length": {"value": 80.0, "at_most": 50.0, "met": False},
        "format": {"value": None, "at_least": 0.5, "met": False},
    }
    text = carded({"goals": goals}).read_text()
    assert "| pass@1 | ≥ 0.9 | 0.91 | met |" in text
    assert "| length | ≤ 50 | 80 | missed |" in text
    assert "| format | ≥ 0.5 | not reported | missed |" in text
    assert "- It misses goals of its run: length, format." in text


def test_sets_of_the_hub_are_named_and_files_are_not(carded):
    facts = {"learned": 7, "held_out": 2, "dropped": {"duplicate": 3}, "sha256": "0"}
    found = {"gsm8k": {"path": "openai/gsm8k", **facts}, "own": {"path": "my/rows.jsonl", **facts}}
    path = carded(
        recipe={"sets": {"own": {"path": "my/rows.jsonl"}, "gsm8k": {"path": ""}}},
        files={"sets.json": json.dumps(found)},
    )
    card = ModelCard.load(path)
    assert card.data.datasets == ["openai/gsm8k"]
    assert "| gsm8k | openai/gsm8k | 7 | 2 | 3 duplicate |" in card.text
    assert "| own | my/rows.jsonl | 7 | 2 | 3 duplicate |" in card.text


def test_commands_after_the_stage_are_not_what_made_it(carded):
    later = [
        {"started": "2026-01-02T10:00:00+00:00", "command": "resumed", "versions": {"torch": "2"}},
        {"started": "2026-01-03T10:00:00+00:00", "command": "another", "versions": {"torch": "3"}},
    ]
    first = {"command": "first", "versions": {"torch": "1"}, "resumed": later}
    text = carded(run=first).read_text()
    assert "    first\n    resumed\n" in text and "another" not in text
    assert "- versions: torch 2" in text


def test_a_stage_without_a_checkpoint_or_a_record_is_reported(carded, tmp_path, capsys):
    assert not carded({"outputs": {}}).exists()
    assert "no model card of one: KeyError: 'checkpoint'" in capsys.readouterr().err
    (tmp_path / "run/run.json").write_text("{")
    model_card.write_card("one", lambda: read_run(tmp_path / "run"))
    assert "no model card of one: RecipeError: " in capsys.readouterr().err


def test_settings_by_default_are_not_told_and_all_others_are():
    shipped = read("tiny/zero").model_dump(mode="json")
    told = {key: (there, here) for key, there, here in own_settings(shipped)}
    assert told["algorithm.kl_coefficient"] == (0.001, 0.05) and told["steps"] == (None, 50)
    assert told["rollout.per_prompt"] == (None, 16) and told["trainer.row"] == (256, 128)
    assert "algorithm.clip_low" not in told and "seed" not in told and "name" not in told
    rest = dict(flat(shipped))
    assert all(rest[key] == here != there for key, (there, here) in told.items())


def test_a_part_differs_from_what_its_recipe_gives_it():
    assert defaults(ColdStartRecipe)["data"]["template"] == "r1_zero"
    recipe = read("tiny/cold_start").model_dump(mode="json")
    for given, told in (("r1_zero", []), ("own", [("data.template", "r1_zero", "own")])):
        recipe["data"] = recipe["data"] | {"template": given}
        assert [one for one in own_settings(recipe) if one[0] == "data.template"] == told
    assert own_settings({"stage": "of another time", "steps": 3}) == []
