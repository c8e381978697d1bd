"""Data that a recipe names are found before anything is trained or written."""

import json
import sys
from types import ModuleType

import datasets
import pytest
import yaml

from veriloop.pipeline.config.load import FOLDER, read, read_values, validate, with_flags
from veriloop.pipeline.dry_run.inputs import require_files
from veriloop.pipeline.errors import RecipeError
from veriloop.stages import launch

pytestmark = pytest.mark.usefixtures("here")
READ = ["--algorithm.ptx-coefficient", "0.1"]  # so that algorithm.ptx_text is read


@pytest.fixture
def begun(monkeypatch):
    """The stages that were begun."""
    names = []

    def run(recipe, output, *, resume):
        names.append(recipe.stage)
        raise RecipeError("begun")

    for name in ("zero", "sft", "reward_model"):
        module = ModuleType(f"veriloop.stages.{name}")
        module.run = run
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return names


def started(*words):
    """The message with which the command ends."""
    with pytest.raises(RecipeError) as refusal:
        launch.command(list(words))
    return str(refusal.value)


def recipe_with(path, **changes):
    values = yaml.safe_load((FOLDER / "tiny/zero.yaml").read_text())
    path.write_text(yaml.safe_dump(values | changes))
    return str(path)


def test_a_set_of_the_hub_that_cannot_be_downloaded_stops_the_run_before_its_base(
    here, begun, monkeypatch
):
    def load(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", load)
    mine = recipe_with(here / "mine.yaml", problems={"gsm8k": 1.0})
    message = started("zero", mine)
    assert "gsm8k" in message and "cannot be downloaded" in message and "no route" in message
    assert begun == [] and [path.name for path in here.iterdir()] == ["mine.yaml"]


@pytest.mark.slow
@pytest.mark.parametrize("key", ["problems", "evaluation"])
def test_every_split_of_a_set_is_looked_up_where_training_or_evaluation_names_it(
    key, here, begun, monkeypatch
):
    splits = []

    def load(repo, config, *, split, streaming):
        splits.append((split, streaming))
        return [{"question": "1+1?", "answer": "#### 2"}]

    monkeypatch.setattr(datasets, "load_dataset", load)
    value = {"gsm8k": 1.0} if key == "problems" else {"sources": ["gsm8k"]}
    assert started("zero", recipe_with(here / "mine.yaml", **{key: value})) == "begun"
    assert splits == [("train", False), ("test", False)] and begun == ["zero"]


def test_a_set_whose_held_out_split_is_missing_is_refused(here, begun):
    folder = here / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_text(json.dumps({"question": "1+1?", "answer": "#### 2"}) + "\n")
    sets = {"gsm8k": {"path": str(folder), "test": str(here / "none.jsonl")}}
    mine = recipe_with(here / "mine.yaml", sets=sets, problems={"gsm8k": 1.0})
    assert "none.jsonl is not a file or folder" in started("zero", mine)
    assert begun == []


@pytest.mark.parametrize(
    ("stage", "recipe", "flag"),
    [
        ("sft", "tiny/sft", "data.source"),
        ("reward-model", "tiny/reward_model", "anchors"),
        ("zero", "tiny/zero", "algorithm.ptx_text"),
    ],
)
def test_a_file_that_is_missing_is_named_with_its_key(stage, recipe, flag, here, begun):
    words = [f"--{flag}", "no.jsonl", *(READ if "ptx" in flag else ())]
    assert started(stage, recipe, *words) == f"{flag}: no.jsonl is not a file"
    assert begun == [] and list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("stage", "recipe", "key", "value", "nearest"),
    [
        ("sft", "tiny/sft", "data.source", "arithmetc", "arithmetic"),
        ("preference", "tiny/dpo", "data.source", "genral", "general"),
        ("rejection-sft", "tiny/rejection_sft", "general.source", "genral", "general"),
        ("zero", "tiny/zero", "algorithm.ptx_text", "corpu", "corpus"),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
def test_generated_data_that_is_mistyped_is_named_with_the_nearest(
    stage, recipe, key, value, nearest, dry, here, begun
):
    teacher = ["--teacher", "recipes/tiny/base.yaml"] if stage == "rejection-sft" else []
    teacher += READ if "ptx" in key else ()
    message = started(stage, recipe, f"--{key}", value, *teacher, *["--dry-run"] * dry)
    assert (
        f"{key}: {value!r} is no file and no generated data. Did you mean {nearest!r}?" in message
    )
    assert begun == [] and list(here.iterdir()) == []


def test_training_data_of_an_unknown_suffix_is_refused_before_the_run(here, begun):
    (here / "rows.txt").write_text("{}")
    message = started("sft", "tiny/sft", "--data.source", "rows.txt", "--dry-run")
    assert "data.source: rows.txt does not end in .jsonl or .parquet" in message
    text = started("zero", "tiny/zero", "--algorithm.ptx-text", "rows.txt", *READ)
    assert text == "begun" and begun == ["zero"]


def test_data_that_an_earlier_stage_makes_is_no_file_yet(here):
    values = yaml.safe_load((FOLDER / "tiny/distill.yaml").read_text())
    recipe = validate(values | {"data": {"source": "rejection_sft.data", "rows": 8}}, "mine")
    require_files(recipe, {"data.source": "rejection_sft.data"})
    with pytest.raises(RecipeError, match="is no file"):
        require_files(recipe)


def questions(path, count):
    rows = [{"question": f"{n} + 1?", "answer": f"#### {n + 1}"} for n in range(count)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return {"mine": {"of": "gsm8k", "path": str(path)}}


@pytest.mark.parametrize("dry", [True, False])
def test_a_share_that_holds_out_no_question_or_all_is_refused_before_the_run(here, begun, dry):
    sets = questions(here / "mine.jsonl", 4)
    for share, aim in ((1e-6, "held out"), (1.0, "left to train on")):
        sets["mine"]["held_out"] = share
        mine = recipe_with(here / "mine.yaml", sets=sets, problems={"mine": 1.0})
        message = started("zero", mine, *["--dry-run"] * dry)
        assert f"sets.mine: no question is {aim}: held_out={share:g} of 4 questions" in message
    assert begun == []
    sets["mine"]["held_out"] = 0.5
    mine = recipe_with(here / "mine.yaml", sets=sets, problems={"mine": 1.0})
    assert started("zero", mine) == "begun"


@pytest.mark.parametrize("dry", [True, False])
def test_a_split_whose_rows_are_no_questions_is_refused_before_the_run(here, begun, dry):
    sets = questions(here / "mine.jsonl", 4)
    (here / "test.jsonl").write_text(json.dumps({"question": "1 + 1?", "answer": "two"}) + "\n")
    sets["mine"]["test"] = str(here / "test.jsonl")
    mine = recipe_with(here / "mine.yaml", sets=sets, problems={"mine": 1.0})
    message = started("zero", mine, *["--dry-run"] * dry)
    assert "sets.mine: no question is held out: split 'test' has 1 row; 1 no #### answer" in message
    assert begun == []


def test_generated_data_needs_no_file(begun):
    assert read("tiny/zero").problems == {"arithmetic": 1.0}
    assert started("zero", "tiny/zero") == "begun" and begun == ["zero"]


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("tiny/cold_start", {"data.template": "own"}, "start: M has .* which data.template: own u"),
        ("tiny/rejection_sft", {"data.template": "own"}, "start: M has no chat template"),
        ("tiny/rejection_sft", {"collect.template": "chat"}, "teacher: M has .* which collect.tem"),
        ("tiny/sft", {"data.template": "own"}, "start: M has no chat template"),
        ("tiny/zero", {"rollout.template": "chat", "reward.format": 0}, "start: M has no chat"),
        ("tiny/online_dpo", {"rollout.template": "chat"}, "start: M has no chat template"),
    ],
)
def test_a_model_without_the_chat_template_that_is_used_is_refused_at_once(
    here, name, changes, said
):
    (here / "M").mkdir()
    models = {"start": "M", "teacher": "M"}
    values = read_values(name)
    values = with_flags(values, {k: models[k] for k in models if k in values} | changes)
    recipe = validate(values, "mine")
    require_files(recipe)  # nothing is known of its tokenizer
    (here / "M/tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    with pytest.raises(RecipeError, match=said):
        require_files(recipe)
    require_files(recipe, taken=models)
    require_files(
        validate(
            with_flags(values, {key: "r1_zero" for key in changes if "template" in key}), "mine"
        )
    )
    (here / "M/tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    require_files(recipe)
    (here / "M/tokenizer_config.json").write_text("[]")
    with pytest.raises(RecipeError, match=said):
        require_files(recipe)
    (here / "M/chat_template.jinja").write_text("{{ messages }}")
    require_files(recipe)


def test_a_system_message_has_to_go_with_the_chat_template(here):
    (here / "M").mkdir()
    (here / "M/tokenizer_config.json").write_text("{}")
    chat = {"start": "M", "rollout.template": "chat", "rollout.system": "boxed", "reward.format": 0}
    recipe = validate(with_flags(read_values("tiny/zero"), chat), "mine")
    with pytest.raises(RecipeError, match=r"set r1_zero and remove rollout\.system, or name"):
        require_files(recipe)


def test_a_base_recipe_has_a_chat_template_and_rows_of_a_file_may_need_none(here):
    require_files(validate(with_flags(read_values("tiny/sft"), {"data.template": "own"}), "mine"))
    (here / "rows.jsonl").write_text("{}")
    (here / "M").mkdir()
    (here / "M/tokenizer_config.json").write_text("{}")
    of_model = {"start": "M", "data.template": "own"}
    of_file = of_model | {"data.source": "rows.jsonl"}
    require_files(validate(with_flags(read_values("tiny/sft"), of_file), "mine"))
    with pytest.raises(RecipeError, match="start: M has no chat template"):  # generated messages
        require_files(validate(with_flags(read_values("tiny/sft"), of_model), "mine"))
