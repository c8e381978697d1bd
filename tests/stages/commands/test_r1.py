"""`veriloop r1`: everything is checked and told before anything starts."""

import json
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from veriloop.pipeline.config.r1_stages import StageSelection
from veriloop.pipeline.errors import RecipeError, StageError, Stopped
from veriloop.pipeline.rollouts import grade
from veriloop.stages import cli as command
from veriloop.stages.commands import r1 as r1_command
from veriloop.stages.commands.r1 import settings
from veriloop.verifiers.service.client import ServicePool

pytestmark = pytest.mark.usefixtures("here")


class MissedGoalError(StageError):
    pass


@pytest.fixture
def started(monkeypatch):
    """The runs that began, and what the next one raises."""
    calls, told = [], {"raises": None, "ran": ()}

    def run(recipe, output, *, resume, selection):
        calls.append((recipe.name, output, resume, selection))
        output.mkdir(parents=True, exist_ok=True)
        stage = {"name": "base", "seconds": 2.0, "before": {}, "after": {}, "status": "done",
                 "inputs": {}}  # fmt: skip
        goals = {"step_accuracy": {"at_least": 0.7, "value": 0.5, "met": False}}
        (output / "run.json").write_text(json.dumps({"stages": [stage | {"goals": goals}]}))
        if told["raises"]:
            raise told["raises"]
        return output / "base"

    module = ModuleType("veriloop.stages.r1")
    module.run, module.MissedGoalError = run, MissedGoalError
    module.to_run = lambda name, output: name not in told["ran"]
    monkeypatch.setitem(sys.modules, "veriloop.stages.r1", module)
    monkeypatch.setattr("veriloop.stages.r1", module, raising=False)
    return calls, told


def r1(*words):
    return r1_command.command(["r1", "tiny/r1", *words])


def test_a_reward_service_that_does_not_answer_is_refused_before_anything_runs(
    started, monkeypatch, tmp_path
):
    monkeypatch.setattr(grade, "ServicePool", partial(ServicePool, patience_s=0.1))
    service = "verifier_service=http://127.0.0.1:9"
    with pytest.raises(RecipeError, match=r"verifier_service http://127\.0\.0\.1:9: "):
        r1("--set", f"zero.{service}", "--set", f"reasoning_rl.{service}")
    assert started[0] == []


def test_a_run_gets_the_recipe_the_folder_and_what_was_asked(started, capsys):
    words = ["--set", "zero.steps=3", "--set", "zero.optimizer.learning-rate=1e-3", "--set"]
    assert r1(*words, "base.seed=1", "--output", "there", "--from", "zero") == 0
    over = {"zero": {"steps": 3, "optimizer.learning-rate": 0.001}, "base": {"seed": 1}}
    asked = StageSelection(since="zero", over=over)
    assert started[0] == [("tiny/r1", Path("there"), False, asked)]
    shown = capsys.readouterr().out
    assert shown.splitlines()[1].split()[:3] == ["stage", "sampler", "metric"]
    assert "checkpoint: there/base\nlineage: veriloop lineage there" in shown


@pytest.mark.slow
def test_runs_are_numbered_and_resumed_as_those_of_a_stage_are(started):
    r1()
    r1("--resume")
    r1()
    told = [(str(output), resume) for _, output, resume, _ in started[0]]
    assert told == [
        ("outputs/tiny-r1-1", False),
        ("outputs/tiny-r1-1", True),
        ("outputs/tiny-r1-2", False),
    ]
    with pytest.raises(RecipeError, match="already holds a run: --resume continues it"):
        r1("--output", "outputs/tiny-r1-1")


def test_a_dry_run_tells_every_stage_and_starts_nothing(started, here, capsys):
    assert r1("--dry-run", "--set", "zero.rollout.prompts=8") == 0
    shown = capsys.readouterr().out
    assert "8 prompts x 16 responses = 128" in shown
    assert "2/9 zero: tiny/zero\n  takes start from base.checkpoint\n" in shown
    assert "goal: pass@1 at least 0.95" in shown and "run folder  outputs/tiny-r1-1" in shown
    assert started[0] == [] and list(here.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "zero.steps"], "--set zero.steps: must be STAGE.KEY=VALUE"),
        (["--set", "steps=3"], "--set steps=3: must be STAGE.KEY=VALUE"),
        (["--set", "zreo.steps=3"], "no stage 'zreo' in tiny/r1. Did you mean 'zero'?"),
        (["--set", "zero.stps=3"], "stps: unknown key. Did you mean 'steps'?"),
        (["--set", "zero.algorithm.minibatches=7"], "nearest valid: 6"),
        (["--only", "zreo"], "--only: no stage 'zreo'. Did you mean 'zero'? Known: base, zero, "),
        (["--from", "zreo", "--dry-run"], "--from: no stage 'zreo'. Did you mean 'zero'?"),
        (["--only", "zero", "--from", "zero"], "--only zero with --from zero: give one of them"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(words, said, started, here, capsys):
    assert command.main(["r1", "tiny/r1", *words]) == 2
    assert said in capsys.readouterr().err
    assert started[0] == [] and list(here.iterdir()) == []


@pytest.mark.slow
def test_a_plan_with_one_stage_or_from_one_on_tells_these_alone(started, capsys):
    assert r1("--dry-run", "--only", "zero") == 0
    shown = capsys.readouterr().out
    assert "1/1 zero: tiny/zero" in shown and "cold_start" not in shown and "parameters" in shown
    assert r1("--dry-run", "--from", "student") == 0
    shown = capsys.readouterr().out
    assert "1/2 student: " in shown and "2/2 distill: " in shown and "base: " not in shown


def listed(*stages, **others):
    """A list of these stages in a file."""
    values = {"stage": "r1", "name": "m", "stages": [*stages], **others}
    Path("mine.yaml").write_text(yaml.safe_dump(values))
    return ["r1", "mine.yaml"]


SMALL_GPU = {"cluster.trainer.gpu_gib": 0.0001}
BASE = {"name": "base", "recipe": "tiny/base"}
SFT = {"name": "sft", "recipe": "tiny/sft", "take": {"start": "base.checkpoint"}}


@pytest.mark.parametrize("also", [[], ["--dry-run"], ["--only", "sft"]])
@pytest.mark.parametrize(
    ("changes", "others"),
    [({"set": SMALL_GPU}, {}), ({}, {"cluster": {"trainer": {"gpu_gib": 0.0001}}})],
)
def test_a_stage_too_large_for_its_memory_is_refused_before_anything_starts(
    changes, others, also, started, here
):
    words = listed(BASE, SFT | changes, **others)
    with pytest.raises(
        RecipeError, match=r"stage sft: cluster\.trainer\.gpu_gib=0\.0001: the plan"
    ):
        r1_command.command([*words, *also])
    assert started[0] == [] and [path.name for path in here.iterdir()] == ["mine.yaml"]
    assert r1_command.command([*words, "--only", "base"]) == 0


def test_a_teacher_that_is_no_checkpoint_is_refused_before_anything_starts(started, here):
    distill = {"name": "distill", "recipe": "tiny/distill_on_policy", "take": SFT["take"]}
    words = listed(BASE, distill | {"set": {"teacher": "models/nope/x"}})
    for also in ([], ["--dry-run"]):
        with pytest.raises(RecipeError, match="teacher: models/nope/x holds no Hugging Face check"):
            r1_command.command([*words, *also])
    taken = {"take": {"start": "base.checkpoint", "teacher": "base.checkpoint"}}
    assert r1_command.command(listed(BASE, distill | taken)) == 0


def test_a_start_that_is_no_checkpoint_is_refused_before_anything_starts(started):
    words = listed({"name": "zero", "recipe": "tiny/zero", "set": {"start": "models/none"}})
    with pytest.raises(RecipeError, match="models/none holds no Hugging Face checkpoint"):
        r1_command.command(words)
    Path("models/none").mkdir(parents=True)
    Path("models/none/config.json").write_text("{}")
    assert r1_command.command(words) == 0


def test_a_recipe_of_one_stage_names_its_command():
    with pytest.raises(RecipeError, match=r"'reward_model', not a .*veriloop reward-model tiny"):
        r1_command.command(["r1", "tiny/reward_model"])
    with pytest.raises(RecipeError, match="for 'r1', not for 'zero': veriloop r1 tiny/r1"):
        command.importlib.import_module("veriloop.stages.launch").parse("zero", ["tiny/r1"])


def test_a_missed_goal_is_a_failure_with_the_table_before_it(started, capsys):
    started[1]["raises"] = MissedGoalError("stage base misses its goals: step_accuracy is 0.5")
    assert command.main(["r1", "tiny/r1"]) == 1
    shown = capsys.readouterr()
    assert ">= 0.7 MISSED" in shown.out
    assert "MissedGoalError: stage base misses its goals: step_accuracy is 0.5" in shown.err


def test_a_stopped_run_says_how_to_go_on_and_does_nothing_twice(started):
    started[1].update(raises=Stopped("stopped after step 1 of 2"), ran=["zero", "cold_start"])
    with pytest.raises(Stopped) as stopped:
        r1("--set", "zero.steps=3", "--set", "base.name=a b", "--from", "zero")
    assert str(stopped.value) == (
        "stopped after step 1 of 2; go on with: veriloop r1 tiny/r1 --set zero.steps=3 --set "
        "'base.name=a b' --from reasoning_rl --output outputs/tiny-r1-1 --resume"
    )


def test_a_stopped_run_goes_on_with_its_plugins_and_with_the_same_stage_alone(started, tmp_path):
    started[1]["raises"] = Stopped("stopped after step 1 of 2")
    plugin = tmp_path / "mine.py"
    plugin.write_text("")
    with pytest.raises(Stopped, match=f"r1 tiny/r1 --plugin {plugin} --only zero --output"):
        r1("--plugin", str(plugin), "--only", "zero")


def test_settings_are_read_as_yaml():
    told = settings(["a.b.c=[1, x]", "a.d=true", "b.e=", "b.f=x=y", "b.g-h=2", "b.i=null"])
    values = {"e": "", "f": "x=y", "g-h": 2, "i": None}
    assert told == {"a": {"b.c": [1, "x"], "d": True}, "b": values}


@pytest.mark.slow
@pytest.mark.parametrize("value", ["[", "9" * 5000, "[" * 5000])
def test_a_setting_that_is_no_yaml_is_named(value):
    with pytest.raises(RecipeError, match=r"^--set zero\.steps=.*the value is not YAML: "):
        settings([f"zero.steps={value}"])
