"""Flags on top of a recipe, and where a run goes: refused before anything is touched."""

import json
import re
import shutil
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from veriloop.data.sources import SOURCES
from veriloop.pipeline.config.load import locate, read, shipped
from veriloop.pipeline.config.pretraining import BaseRecipe
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.errors import RecipeError, Stopped
from veriloop.pipeline.rollouts import grade
from veriloop.stages import launch
from veriloop.stages.cli import COMMANDS, main
from veriloop.stages.launch import Options, parse, run_folder
from veriloop.verifiers.service.client import ServicePool

pytestmark = pytest.mark.usefixtures("here")
ZERO = ["zero", "tiny/zero"]


@pytest.fixture
def started(monkeypatch):
    """The calls of a stage that writes a run.json as real ones do."""
    calls = []

    def run(recipe, output, *, resume):
        calls.append((recipe, output, resume))
        leave_run(output, recipe)
        return output / "zero/checkpoints/step_000001"

    for name in ("veriloop.stages.zero", "veriloop.stages.base"):
        module = ModuleType(name)
        module.run = run
        monkeypatch.setitem(sys.modules, name, module)
    return calls


def leave_run(folder, recipe, **inputs):
    stage = {"name": recipe.stage, "seconds": 1.0, "sampler": "torch", "before": {}, "after": {}}
    stage["inputs"] = {"recipe": recipe.model_dump(mode="json")} | inputs
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / "run.json").write_text(json.dumps({"stages": [stage]}))


def contents(folder):
    return {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.rglob("*") if p.is_file()}


def flags(*words):
    return parse("zero", ["tiny/zero", *words]).recipe


@pytest.mark.parametrize("written", ["''", "http://c", "[http://c, http://d]"])
def test_one_url_or_several_name_the_reward_services(written, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(f"{locate('tiny/zero').read_text()}\nverifier_service: {written}\n")

    def services(*words):
        return parse("zero", [str(path), *words, "--seed", "3"]).recipe.verifier_service

    assert services("--verifier-service", "http://a") == "http://a"
    assert services("--verifier-service=http://a") == "http://a"
    assert services("--verifier-service", "http://a", "http://b") == ("http://a", "http://b")
    assert services() == read(str(path)).verifier_service
    assert yaml.safe_load(written) in (services(), list(services()))


def test_without_flags_it_is_the_recipe():
    assert parse("zero", ["tiny/zero"]) == Options(recipe=read("tiny/zero"))
    assert parse("base", ["tiny/base"]) == Options(recipe=read("tiny/base"))


def test_a_flag_wins_over_the_file_and_leaves_the_rest():
    recipe, file = flags("--rollout.prompts", "16"), read("tiny/zero")
    assert recipe.rollout.prompts == 16 and isinstance(recipe, ZeroRecipe)
    assert recipe.model_copy(update={"rollout": file.rollout}) == file


@pytest.mark.parametrize("flag", ["--rollout.per-prompt", "--rollout.per_prompt"])
def test_words_of_a_flag_are_joined_either_way(flag):
    assert flags(flag, "8").rollout.per_prompt == 8


def test_every_kind_of_value_has_its_flag():
    recipe = flags(
        *("--optimizer.learning-rate", "2e-6"), *("--optimizer.betas", "0.8", "0.99"),
        "--no-tensorboard", *("--algorithm.dual-clip", "3"), *("--rollout.stop", "</answer>", "x"),
        *("--algorithm.aggregation", "token_mean"), "--seed=5",
    )  # fmt: skip
    assert (recipe.optimizer.learning_rate, recipe.optimizer.betas) == (2e-6, (0.8, 0.99))
    assert (recipe.tensorboard, recipe.algorithm.dual_clip) == (False, 3.0)
    assert recipe.rollout.stop == ("</answer>", "x")
    assert (recipe.algorithm.aggregation, recipe.seed) == ("token_mean", 5)


def test_the_corpus_of_a_base_recipe_has_flags_too():
    recipe = parse("base", ["tiny/base", "--corpus.worked", "0.5", "--model.tied"]).recipe
    assert isinstance(recipe, BaseRecipe)
    assert recipe.corpus.worked == 0.5 and recipe.model.tied is True


def test_the_weights_of_a_recipes_sources_are_flags_and_the_others_stay(monkeypatch, tmp_path):
    monkeypatch.setitem(SOURCES, "other", SOURCES["arithmetic"])
    assert flags("--problems.arithmetic", "0.5").problems == {"arithmetic": 0.5}
    mine = tmp_path / "mine.yaml"
    mixed = {"problems": {"arithmetic": 0.7, "other": 0.3}}
    mine.write_text(yaml.safe_dump(read("tiny/zero").model_dump(mode="json") | mixed))
    both = parse("zero", [str(mine), "--problems.other", "1"]).recipe
    assert both.problems == {"arithmetic": 0.7, "other": 1.0}


@pytest.mark.slow
def test_a_reward_model_that_is_not_there_is_refused_before_anything_is_written(
    here, tiny_checkpoint, monkeypatch
):
    monkeypatch.setitem(SOURCES, "general", SOURCES["arithmetic"])
    words = ["--start", str(tiny_checkpoint()), "--reward.reward-model", "models/liking"]
    with pytest.raises(RecipeError, match="reward_model: models/liking holds no Hugging Face"):
        launch.command(["preference-rl", "tiny/preference_rl", *words])
    assert list(here.iterdir()) == []


def test_options_of_the_run_are_no_part_of_the_recipe():
    options = parse("zero", ["tiny/zero", "--output", "o", "--resume", "--dry-run"])
    assert (options.output, options.resume, options.dry_run) == ("o", True, True)
    assert options.recipe == read("tiny/zero")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "nearest"),
    [
        ("--rollout.prompt", "--rollout.prompts"),
        ("--algorithm.minibatch", "--algorithm.minibatches"),
        ("--optimizer.learning_rat", "--optimizer.learning-rate"),
        ("--dryrun", "--dry-run"),
    ],
)
def test_an_unknown_flag_names_the_nearest(flag, nearest, capsys):
    with pytest.raises(SystemExit) as left:
        flags(flag, "4")
    shown = capsys.readouterr().err
    assert left.value.code == 2 and flag in shown and nearest in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rollout.prompts", "four"), ("--rollout.prompts", "'four'", "INT")),
        (("--sampler.engine", "vlm"), ("--sampler.engine", "'vlm'", "'auto', 'vllm', 'torch'")),
        (("--optimizer.betas", "0.9"), ("--optimizer.betas", "Expected 2 values")),
    ],
)
def test_a_value_of_the_wrong_type_names_flag_value_and_what_is_allowed(words, said, capsys):
    with pytest.raises(SystemExit) as left:
        flags(*words)
    shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert left.value.code == 2 and all(part in shown for part in said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rollout.prompts", "0"), r"  rollout\.prompts: .* greater than or equal to 1, got 0$"),
        (("--optimizer.learning-rate", "nan"), r"optimizer\.learning_rate: .* got nan"),
        (("--algorithm.dual-clip", "0.5"), r"algorithm\.dual_clip: .* greater than 1, got 0.5"),
        (
            ("--algorithm.advantage", "leave_one_out"),
            r"algorithm: advantage=leave_one_out .* advantage_scale: none",
        ),
        (("--algorithm.minibatches", "7"), r"40 \* 16 = 640 .*minibatches=7; nearest valid: 8"),
        (("--rollout.per-prompt", "1"), r"rollout\.per_prompt=1 .* at least 2"),
    ],
)
def test_an_impossible_value_names_key_value_and_the_nearest_valid(words, said):
    with pytest.raises(RecipeError, match=r"flags on top of tiny/zero:\n(.|\n)*" + said):
        flags(*words)


def test_every_impossible_flag_is_reported_at_once():
    with pytest.raises(RecipeError) as told:
        flags("--rollout.prompts", "0", "--optimizer.learning-rate", "-1")
    assert "rollout.prompts" in str(told.value) and "learning_rate" in str(told.value)


@pytest.mark.parametrize("words", [[], ["--dry-run"], ["--rollout.prompts", "4", "tiny/zero"]])
def test_the_recipe_comes_first(words):
    with pytest.raises(RecipeError, match=r"needs a recipe first: veriloop zero tiny/zero"):
        parse("zero", words)


def test_a_recipe_of_another_stage_names_its_command():
    with pytest.raises(RecipeError, match=r"for 'base', not for 'zero': veriloop base tiny/base"):
        parse("zero", ["tiny/base"])


NAMED = r"^ *(start|teacher|reward_model): (models|outputs)/|source: \S+\.(jsonl|parquet)"


OF_A_STAGE = {read(str(path)).stage: path for path in reversed(shipped())}  # its first recipe


@pytest.mark.parametrize(
    "path",
    [path if path in OF_A_STAGE.values() else pytest.param(path, marks=pytest.mark.slow)
     for path in shipped()],
    ids=lambda p: f"{p.parent.name}/{p.stem}",
)  # fmt: skip
def test_every_shipped_recipe_dry_runs_and_writes_nothing(path, here, started, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    stage = read(str(path)).stage
    module = import_module(COMMANDS[stage.replace("_", "-")][0])
    refused = ""
    try:
        assert module.command([stage, str(path), "--dry-run"]) == 0
    except RecipeError as refusal:
        refused = str(refusal)
    names = re.search(NAMED, path.read_text(), re.MULTILINE)
    expected = names if stage != "r1" else path.parent.name != "tiny"
    assert refused.startswith("a run of this recipe would be refused:\n") is bool(expected)
    shown = capsys.readouterr().out
    assert (f"stage: {stage}\n" in shown) is (stage != "r1") and "run folder" in shown
    assert started == [] and list(here.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["zero", "tiny/zero", "--start", "models/nothing"], "start: models/nothing holds no"),
        (["zero", "tiny/zero", "--start", "tiny/base"], "Did you mean recipes/tiny/base.yaml?"),
        (["distill", "tiny/distill_on_policy", "--teacher", "nothing/at/all"],
         "teacher: nothing/at/all holds no Hugging Face checkpoint"),
        (["sft", "tiny/sft", "--data.source", "none.jsonl"], "data.source: none.jsonl is not a"),
    ],
)  # fmt: skip
def test_a_dry_run_shows_the_plan_and_refuses_what_a_run_would(
    words, refused, here, capsys, monkeypatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(RecipeError) as refusal:
        launch.command([*words, "--dry-run"])
    assert refused in str(refusal.value) and "run folder" in capsys.readouterr().out


def test_a_config_is_enough_for_a_dry_run(here, capsys):
    (here / "mine").mkdir()
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "vocab_size": 99,
              "num_hidden_layers": 2, "num_attention_heads": 2}  # fmt: skip
    (here / "mine/config.json").write_text(json.dumps(config))
    assert launch.command([*ZERO, "--start", "mine", "--dry-run"]) == 0
    assert "- sampler weights" in capsys.readouterr().out


@pytest.mark.slow
def test_what_a_dry_run_prints_first_is_the_recipe(here, capsys):
    launch.command([*ZERO, "--rollout.prompts", "8", "--dry-run"])
    text, _, table = capsys.readouterr().out.partition("\n\n")
    (here / "again.yaml").write_text(text)
    assert read("again.yaml") == flags("--rollout.prompts", "8")
    assert "8 prompts x 16 responses = 128" in table


def test_a_dry_run_refuses_before_it_prints(capsys):
    with pytest.raises(RecipeError, match="only a base recipe"):
        launch.command([*ZERO, "--start", "tiny/zero.yaml", "--dry-run"])
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_a_run_gets_the_recipe_the_folder_and_no_resume(started, capsys):
    assert launch.command([*ZERO, "--steps", "3", "--output", "there"]) == 0
    assert started == [(flags("--steps", "3"), Path("there"), False)]
    shown = capsys.readouterr().out
    assert shown.startswith("stage ") and shown.endswith(
        "\n\ncheckpoint: there/zero/checkpoints/step_000001\nreport: there/report.html\n"
    )


@pytest.mark.slow
def test_runs_are_numbered_and_none_is_reused(started):
    for _ in range(2):
        launch.command(ZERO)
    shutil.rmtree("outputs/tiny-zero-1")
    Path("outputs/tiny-zero-10").mkdir()
    Path("outputs/tiny-zero-99-copy").mkdir()
    launch.command(ZERO)
    launch.command(["base", "tiny/base"])
    names = ["tiny-zero-1", "tiny-zero-2", "tiny-zero-11", "tiny-base-1"]
    assert [output for _, output, _ in started] == [Path("outputs") / name for name in names]


@pytest.mark.parametrize("also", [[], ["--dry-run"]])
def test_a_folder_with_a_run_is_refused_and_left_untouched(also, here, started):
    leave_run("mine", read("tiny/zero"))
    before = contents(here)
    with pytest.raises(RecipeError, match=r"mine already holds a run: --resume continues it"):
        launch.command([*ZERO, "--output", "mine", *also])
    assert contents(here) == before and started == []


def test_a_file_is_no_run_folder(here):
    (here / "notes").write_text("x")
    for resume in (True, False):
        with pytest.raises(RecipeError, match="--output notes is a file"):
            run_folder(read("tiny/zero"), "notes", resume=resume)


def test_a_folder_without_a_run_is_taken(here):
    (here / "mine").mkdir()
    (here / "mine/log").write_text("from a shell that redirects into it")
    assert run_folder(read("tiny/zero"), "mine", resume=False) == Path("mine")


def test_resume_continues_with_the_last_run_that_there_is(started):
    for number in (2, 9, 10):
        leave_run(f"outputs/tiny-zero-{number}", read("tiny/zero"))
    Path("outputs/tiny-zero-11").mkdir()  # holds no run
    assert run_folder(read("tiny/zero"), "", resume=True) == Path("outputs/tiny-zero-10")


def test_resume_without_a_run_to_go_on_with_is_refused():
    leave_run("outputs/tiny-base-1", read("tiny/base"))
    with pytest.raises(RecipeError, match="--resume: no run of 'tiny/zero' in outputs/"):
        run_folder(read("tiny/zero"), "", resume=True)


def test_resume_into_a_named_folder_starts_the_run_and_says_so(started, capsys):
    launch.command([*ZERO, "--output", "mine", "--resume"])
    assert started == [(read("tiny/zero"), Path("mine"), True)]
    assert capsys.readouterr().out.startswith("mine holds no run yet: starting one\n")


def test_resume_under_another_recipe_is_refused_names_the_field_and_touches_nothing(here, started):
    leave_run("mine", read("tiny/zero"))
    before = contents(here)
    for also in ([], ["--dry-run"]):
        with pytest.raises(
            RecipeError, match=r"\(optimizer.learning_rate: 0.00016 -> 0.1\).* another --output"
        ):
            launch.command(
                [*ZERO, "--output", "mine", "--resume", "--optimizer.learning-rate", "0.1", *also]
            )
    assert contents(here) == before and started == []


def test_resume_may_change_what_training_never_sees(capsys):
    leave_run("mine", read("tiny/zero"))
    harmless = [
        "--checkpoint.keep",
        "7",
        "--evaluation.every",
        "5",
        "--warn-zero-reward-after",
        "5",
        "--trainer.threads",
        "1",
    ]
    assert launch.command([*ZERO, "--output", "mine", "--resume", "--dry-run", *harmless]) == 0
    assert "keep: 7" in capsys.readouterr().out


def test_a_run_that_was_killed_in_its_base_stage_can_go_on():
    leave_run("mine", read("tiny/base"))
    assert run_folder(read("tiny/zero"), "mine", resume=True) == Path("mine")


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"stages": [1]}', '{"stages": [{"name": "a"}]}']
)
def test_a_run_json_that_is_none_is_named(text, here):
    (here / "mine").mkdir()
    (here / "mine/run.json").write_text(text)
    with pytest.raises(RecipeError, match=r"mine/run.json is no run manifest"):
        run_folder(read("tiny/zero"), "mine", resume=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "said"),
    [
        (
            "models/none",
            r"models/none holds no Hugging Face checkpoint \(no config.json in it\)\..* Allowed",
        ),
        ("tiny/base", r"Did you mean recipes/tiny/base.yaml\? Allowed: such a folder, a base"),
        ("nope.yaml", "no recipe 'nope.yaml'"),
        ("tiny/sft.yaml", "start: tiny/sft.yaml is a recipe for 'sft'; only a base recipe"),
    ],
)
def test_a_start_that_is_not_there_is_reported_before_anything_starts(start, said, here, started):
    with pytest.raises(RecipeError, match=said):
        launch.command([*ZERO, "--start", start])
    assert started == [] and list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("models/x/y", r"teacher: models/x/y holds no Hugging Face .*Allowed: such a folder, or"),
        ("tiny/base.yaml", r"teacher: tiny/base.yaml holds no Hugging Face checkpoint"),
    ],
)
def test_a_teacher_that_is_not_there_is_reported_before_anything_starts(name, said, here):
    words = ["distill", "tiny/distill_on_policy", "--start", "tiny/student.yaml"]
    with pytest.raises(RecipeError, match=said):
        launch.command([*words, "--teacher", name])
    assert list(here.iterdir()) == []


def test_a_folder_with_a_checkpoint_can_be_started_from(here, started):
    (here / "model").mkdir()
    (here / "model/config.json").write_text("{}")
    launch.command([*ZERO, "--start", "model"])
    assert len(started) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "veriloop zero tiny/zero --output outputs/tiny-zero-1 --resume"),
        (["--output", "my run"], "veriloop zero tiny/zero --output 'my run' --resume"),
        (["--output=a", "--resume"], "veriloop zero tiny/zero --output=a --resume"),
    ],
)
def test_a_stopped_run_says_how_to_go_on(words, told, monkeypatch):
    def run(recipe, output, *, resume):
        raise Stopped("stopped after step 1 of 2")

    module = ModuleType("veriloop.stages.zero")
    module.run = run
    monkeypatch.setitem(sys.modules, "veriloop.stages.zero", module)
    with pytest.raises(Stopped) as stopped:
        launch.command([*ZERO, *words])
    assert str(stopped.value) == f"stopped after step 1 of 2; go on with: {told}"


@pytest.mark.slow
def test_a_preset_named_by_a_flag_brings_its_parts_and_the_files_own_stay():
    parts = parse("zero", ["tiny/algorithms", "--algorithm.preset", "dapo"]).recipe.algorithm
    assert (parts.clip_high, parts.dynamic_sampling, parts.kl_coefficient) == (0.28, 3, 0.0)
    dapo = parse("zero", ["tiny/algorithms", "--algorithm.preset", "dapo"]).recipe
    assert dapo.reward.overlong == dapo.rollout.max_tokens // 5 == 22
    over = parse("zero", ["tiny/zero", "--algorithm.preset", "dapo"]).recipe.algorithm
    assert (over.clip_high, over.dynamic_sampling, over.minibatches) == (0.2, 3, 4)


def test_a_flag_that_says_what_was_the_default_is_still_laid_over_the_preset():
    words = ["tiny/algorithms", "--algorithm.preset", "ppo", "--algorithm.minibatches", "2"]
    assert parse("zero", words).recipe.algorithm.minibatches == 2
    words = ["tiny/algorithms", "--algorithm.preset=dapo", "--algorithm.clip-high=0.2"]
    assert parse("zero", words).recipe.algorithm.clip_high == 0.2


def test_a_stage_of_two_words_is_called_with_a_dash():
    with pytest.raises(RecipeError, match="veriloop reward-model needs a recipe first: veriloop r"):
        parse("reward_model", [])
    with pytest.raises(RecipeError, match="veriloop preference tiny/dpo"):
        parse("preference", [])
    with pytest.raises(RecipeError, match="not for 'zero': veriloop reward-model tiny/reward_mod"):
        parse("zero", ["tiny/reward_model"])
    assert launch.command(["reward-model", "tiny/reward_model", "--dry-run"]) == 0


def test_parts_of_a_preference_recipe_are_flags():
    words = ["tiny/kto", "--loss.desirable-weight", "2", "--loss.undesirable-weight", "1"]
    loss = parse("preference", [*words, "--schedule.epochs", "3"]).recipe.loss
    assert (loss.desirable_weight, loss.undesirable_weight) == (2.0, 1.0)
    with pytest.raises(RecipeError, match=r"loss: tau=0\.5 is not read by kto"):
        parse("preference", ["tiny/kto", "--loss.tau", "0.5"])


def test_a_reward_service_that_does_not_answer_is_refused_before_a_base_is_trained(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(grade, "ServicePool", partial(ServicePool, patience_s=0.1))
    assert main(["zero", "tiny/zero", "--verifier-service", "http://127.0.0.1:9"]) == 2
    assert "verifier_service http://127.0.0.1:9: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
