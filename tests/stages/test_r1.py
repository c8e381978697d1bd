"""A whole run in order: goals, resumption at and inside a stage, what a change does again."""

import importlib
import inspect
import json
import os
import re
import shutil
import time
import weakref
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest
import yaml

from tests.forked import forked_command
from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.r1 import R1Stage
from veriloop.pipeline.config.r1_stages import StageSelection, Step
from veriloop.pipeline.config.registry import STAGES
from veriloop.pipeline.errors import RecipeError, StageError, Stopped
from veriloop.pipeline.preference import loop as preference_loop
from veriloop.pipeline.runs import manifest as run_json
from veriloop.pipeline.runs.manifest import recorded
from veriloop.pipeline.training.gc_freeze import lasting
from veriloop.pipeline.training.trainer import Trainer
from veriloop.stages import base, r1, reward_model, staleness
from veriloop.stages.cli import main
from veriloop.stages.r1 import MissedGoalError

OPTIMIZER = {"learning_rate": 4e-3, "muon_learning_rate": 2e-2}
SHAPE = {"hidden": 32, "layers": 1, "heads": 1, "feed_forward": 48, "vocabulary": 400}
QUICK = {
    "base": {
        "stage": "base", "name": "test/base", "steps": 3, "tokens_per_step": 256, "model": SHAPE,
        "tokenizer_documents": 300, "optimizer": OPTIMIZER, "step_accuracy": 0.0,
    },
    "judge": {
        "stage": "reward_model", "name": "test/judge", "start": "nowhere", "batch": 8,
        "data": {"rows": 24, "held_out": 8}, "optimizer": {"learning_rate": 3e-3},
        "checkpoint": {"every": 1, "keep": 9}, "tensorboard": False,
    },
    "dpo": {
        "stage": "preference", "name": "test/dpo", "start": "nowhere", "batch": 4,
        "data": {"rows": 8, "held_out": 4}, "optimizer": {"learning_rate": 1e-3},
        "checkpoint": {"every": 1, "keep": 9}, "tensorboard": False,
    },
}  # fmt: skip
LIST = [
    {"name": "base", "recipe": "base.yaml", "goals": {"step_accuracy": 0.0}},
    {"name": "judge", "recipe": "judge.yaml", "take": {"start": "base.checkpoint"}},
    {"name": "dpo", "recipe": "dpo.yaml", "take": {"start": "base.checkpoint"}},
    {"name": "dpo_2", "recipe": "dpo.yaml", "take": {"start": "dpo.checkpoint"}},
]


IDENTITY = {"versions": {"veriloop": "1"}, "machine": {}, "git": {"commit": "abc"}}
MEASURED = base.step_accuracy


def settled(monkeypatch, folder):
    """Work in a folder with the recipes of quick stages, and caches of its own."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(preference_loop, "CACHE", folder / "outputs/cache/reference")
    monkeypatch.setattr(base, "step_accuracy", lambda checkpoint: MEASURED(checkpoint, 2))
    monkeypatch.setattr(run_json, "identity", lambda: IDENTITY)
    for name, values in QUICK.items():
        Path(f"{name}.yaml").write_text(yaml.safe_dump(values))


@pytest.fixture(autouse=True)
def arranged(here, monkeypatch, one_pool):
    settled(monkeypatch, here)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A folder in which the whole list ran."""
    folder = tmp_path_factory.mktemp("once")
    with pytest.MonkeyPatch.context() as patched:
        settled(patched, folder)
        go()
    return folder


@pytest.fixture
def finished(once, here):
    """The same run, here; its last checkpoint."""
    shutil.copytree(once, here, dirs_exist_ok=True)
    return Path(recorded(Path("run/run.json"))["dpo_2"]["outputs"]["checkpoint"])


@pytest.fixture
def calls(monkeypatch):
    """The stages that ran, by name, in order: (name, resumed)."""
    noted = []
    for kind in ("base", "reward_model", "preference"):
        module = import_module(f"veriloop.stages.{kind}")

        def run(recipe, output, *, resume, name, inner=module.run):
            noted.append((name, resume))
            return inner(recipe, output, resume=resume, name=name)

        monkeypatch.setattr(module, "run", run)
    return noted


def listed(stages=None, **changes):
    """The recipe, with keys of stages replaced."""
    stages = [one | changes.get(one["name"], {}) for one in stages or LIST]
    Path("r1.yaml").write_text(yaml.safe_dump({"stage": "r1", "name": "t", "stages": stages}))
    return read("r1.yaml")


def go(recipe=None, selection=None):
    return r1.run(recipe or listed(), Path("run"), resume=True, selection=selection)


def names(calls):
    told = [name for name, _ in calls]
    calls.clear()
    return told


def weights(name):
    made = recorded(Path("run/run.json"))[name]["outputs"]["checkpoint"]
    return (Path(made) / "model.safetensors").read_bytes()


def aside():
    return sorted(path.name for path in Path("run/aside").glob("*"))


def test_every_stage_takes_a_name_and_notes_itself_under_it():
    for kind in STAGES:
        parameters = inspect.signature(import_module(f"veriloop.stages.{kind}").run).parameters
        assert list(parameters)[:4] == ["recipe", "output", "resume", "name"], kind


@pytest.mark.slow
def test_the_stages_run_in_order_each_from_what_it_takes(calls, capsys):
    made = go()
    assert names(calls) == ["base", "judge", "dpo", "dpo_2"]
    entries = recorded(Path("run/run.json"))
    assert {e["status"] for e in entries.values()} == {"done"} and list(entries) == [
        one["name"] for one in LIST
    ]
    assert str(made) == entries["dpo_2"]["outputs"]["checkpoint"]
    assert made.parent.parent == Path("run/dpo_2")  # two of one kind: folders by name
    for name, source in (("judge", "base"), ("dpo", "base"), ("dpo_2", "dpo")):
        took = entries[name]["lineage"]["inputs"]["start"]
        assert took == entries[source]["lineage"]["outputs"]["checkpoint"]
        assert entries[name]["inputs"]["start"] == took["path"]
    assert entries["base"]["goals"]["step_accuracy"]["met"] is True
    assert json.loads(Path("run/run.json").read_text())["resumed"] == []
    told = capsys.readouterr().out
    assert "[4/4] dpo_2: starts (dpo.yaml; start from dpo.checkpoint)" in told


@pytest.mark.slow
def test_a_current_run_is_left_unchanged(finished, calls, capsys):
    before = {p: p.stat().st_mtime_ns for p in Path("run").rglob("*") if p.name != "run.json"}
    go()
    assert names(calls) == [] and capsys.readouterr().out.count("is up to date, from") == 4
    after = {p: p.stat().st_mtime_ns for p in Path("run").rglob("*") if p.name != "run.json"}
    for path in before:
        if path.is_file():
            assert after[path] == before[path]
    assert before.keys() == after.keys() and not Path("run/aside").exists()


@pytest.mark.slow
def test_another_spelling_of_the_folder_is_the_same_run(finished, calls, here):
    r1.run(listed(), here / "run", resume=True)
    assert names(calls) == []


@pytest.mark.slow
def test_a_run_stopped_at_a_stage_boundary_continues_with_the_next(calls, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(reward_model, "run", stopped)
        with pytest.raises(KeyboardInterrupt):
            go()
    assert names(calls) == ["base"]
    go()
    assert names(calls) == ["judge", "dpo", "dpo_2"]


@pytest.mark.slow
def test_a_run_stopped_inside_a_stage_continues_there_to_the_same_bits(finished, calls, stopping):
    whole = {name: weights(name) for name in ("judge", "dpo", "dpo_2")}
    Path("run").rename("whole")
    for progress in ("step 1 of 3", "step 2 of 3", "step 1, in round"):
        with stopping(), pytest.raises(Stopped, match=f"stopped after {progress}"):
            go()
    go()
    assert names(calls) == ["base", "judge", "judge", "judge", "dpo", "dpo", "dpo_2"]
    assert {name: weights(name) for name in whole} == whole
    assert not Path("run/aside").exists()


@pytest.mark.slow
def test_a_changed_recipe_does_again_what_follows_and_keeps_what_was(finished, calls, capsys):
    old = weights("dpo")
    go(listed(dpo={"set": {"optimizer.learning_rate": 2e-3}}))
    assert names(calls) == ["dpo", "dpo_2"] and weights("dpo") != old
    told = capsys.readouterr().out
    assert "its recipe changed (optimizer.learning_rate: 0.001 -> 0.002)" in told
    assert "its inputs changed (start)" in told
    assert aside() == ["dpo-1", "dpo_2-1"]
    kept = Path("run/aside/dpo-1")
    assert (kept / "checkpoints/step_000002/model.safetensors").read_bytes() == old
    assert json.loads((kept / "stage.json").read_text())["name"] == "dpo"
    go(listed())  # and back again
    assert names(calls) == ["dpo", "dpo_2"] and weights("dpo") == old
    assert aside() == ["dpo-1", "dpo-2", "dpo_2-1", "dpo_2-2"]


@pytest.mark.slow
def test_settings_that_touch_no_outcome_change_nothing(finished, calls):
    go(listed(dpo={"set": {"tensorboard": False, "trainer.threads": 1}}))
    assert names(calls) == []


@pytest.mark.slow
def test_a_stage_done_again_to_the_same_bytes_leaves_what_follows(finished, calls):
    go(listed(base={"set": {"step_accuracy": 0.0, "name": "test/other"}}))
    assert names(calls) == ["base"] and aside() == ["base-1"]


@pytest.mark.slow
def test_another_base_does_everything_again(finished, calls):
    go(listed(base={"set": {"seed": 1}}))
    assert names(calls) == ["base", "judge", "dpo", "dpo_2"]


def tampered(folder):
    path = Path(folder) / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    about = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


@pytest.mark.slow
def test_a_tampered_checkpoint_is_noticed_and_made_again(finished, calls, capsys):
    made = finished
    good = weights("dpo_2")
    tampered(made)
    go()
    assert names(calls) == ["dpo_2"] and weights("dpo_2") == good
    assert f"its outputs changed (checkpoint changed: {made})" in (capsys.readouterr().out)


@pytest.mark.slow
def test_a_tampered_base_in_the_cache_is_put_aside_and_made_again(finished, calls, capsys):
    good = weights("base")
    made = Path(recorded(Path("run/run.json"))["base"]["outputs"]["checkpoint"])
    tampered(made)
    go()
    assert names(calls) == ["base"] and weights("base") == good  # and so the rest stands
    assert f"{made} changed since it was cached; moved to {made}-damaged-1" in (
        capsys.readouterr().out
    )


@pytest.mark.slow
def test_a_lost_checkpoint_is_made_again(finished, calls):
    made = finished
    shutil.rmtree(made)
    go()
    assert names(calls) == ["dpo_2"]


@pytest.mark.slow
def test_other_verifiers_do_the_stage_again(finished, calls, monkeypatch, capsys):
    told = json.loads(Path("run/run.json").read_text())
    told["stages"][1]["lineage"]["verifiers"] = {"number": "1+abc"}
    Path("run/run.json").write_text(json.dumps(told))
    monkeypatch.setattr(staleness, "fingerprint", lambda asked: dict.fromkeys(asked, "1+abc"))
    go()
    assert names(calls) == []
    monkeypatch.setattr(staleness, "fingerprint", lambda asked: dict.fromkeys(asked, "1+def"))
    go()
    assert names(calls) == ["judge"]
    assert "its verifiers changed (number: 1+abc -> 1+def)" in capsys.readouterr().out


@pytest.mark.slow
def test_a_setting_that_changes_verdicts_is_a_change_of_verifiers(tmp_path):
    entry = {"lineage": {"verifiers": staleness.fingerprint(["math_answer"])}}
    usual = SimpleNamespace(verifier_facts={})
    always = SimpleNamespace(verifier_facts={"computer_algebra": "always"})
    assert staleness._verifier_changes(entry, usual, tmp_path) == ""
    changes = staleness._verifier_changes(entry, always, tmp_path)
    assert "its verifiers changed" in changes and ",computer_algebra=always" in changes


@pytest.mark.slow
def test_a_stage_from_before_there_was_a_lineage_is_done_again(finished, calls, capsys):
    told = json.loads(Path("run/run.json").read_text())
    del told["stages"][3]["lineage"]
    Path("run/run.json").write_text(json.dumps(told))
    go()
    assert names(calls) == ["dpo_2"]
    assert "run.json has no lineage for it" in capsys.readouterr().out


@pytest.mark.slow
def test_a_missed_goal_ends_the_run_and_says_what_fell_short(calls):
    goals = {"accuracy": 1.5, "margin": {"at_most": 1e9}}
    with pytest.raises(MissedGoalError) as missed:
        go(listed(judge={"goals": goals}))
    assert isinstance(missed.value, StageError)
    assert names(calls) == ["base", "judge"]
    entry = recorded(Path("run/run.json"))["judge"]
    got = entry["after"]
    short = f"accuracy is {got['accuracy']:.4g}, the goal is at least 1.5: short by "
    assert f"stage judge misses its goals: {short}{1.5 - got['accuracy']:.3g}" in str(missed.value)
    assert "Look at run/judge (metrics.jsonl" in str(missed.value)
    assert "margin is" not in str(missed.value)
    assert entry["status"] == "done" and entry["goals"]["margin"] == {
        "at_most": 1e9,
        "value": got["margin"],
        "met": True,
    }
    assert entry["goals"]["accuracy"]["met"] is False
    card = Path(entry["outputs"]["checkpoint"], "README.md")
    assert re.search(r"\| accuracy \| ≥ 1.5 \| [0-9.]+ \| missed \|", card.read_text())
    with pytest.raises(MissedGoalError):
        go(listed(judge={"goals": goals}))
    assert names(calls) == []  # judged anew, not trained anew
    go(listed(judge={"goals": {"accuracy": 0.0}}))
    assert re.search(r"\| accuracy \| ≥ 0 \| [0-9.]+ \| met \|", card.read_text())
    assert names(calls) == ["dpo", "dpo_2"]


@pytest.fixture
def judged_stage(tmp_path):
    """Function: check the goals of a stage that ended with these numbers; returns their record."""

    def check(goals, before, after, gains=MappingProxyType({})):
        manifest = run_json.RunManifest(tmp_path / "run.json")
        manifest.begin_stage("one", {"recipe": {}}, {})
        manifest.end_stage("one", 1.0, None, before, after, {}, gains=gains)
        stage = R1Stage(name="one", recipe="r", goals=goals)
        step = Step(stage=stage, recipe=read("tiny/base"), values={})
        r1._check_goals(step, tmp_path)
        return recorded(tmp_path / "run.json")["one"]["goals"]

    return check


def test_a_gain_that_cannot_be_paired_is_counted_between_nearest_ends(judged_stage):
    before = {"general": 0.5, "general 95%": [0.4, 0.6], "reward": 1.0}
    after = {"general": 0.8, "general 95%": [0.72, 0.88], "reward": 1.5}
    goals = {"general": {"gain": 0.12}, "reward": {"gain": 0.5}}
    told = judged_stage(goals, before, after)
    assert told["general"] == {"gain": 0.12, "value": 0.8, "met": True} and told["reward"]["met"]
    said = (
        r"general is 0.8, from 0.5 before \(a gain of 0.12 to 0.48\), the goal is a gain of 0.2: "
        "short by 0.08"
    )
    with pytest.raises(MissedGoalError, match=said):
        judged_stage({"general": {"gain": 0.2}}, before, after)


def test_a_gain_that_is_paired_by_problem_counts_from_its_lower_end(judged_stage):
    before = {"general": 0.5, "general 95%": [0.4, 0.6]}
    after = {"general": 0.56, "general 95%": [0.46, 0.66]}
    gains = {"general": 0.06, "general 95%": [0.02, 0.1]}
    assert judged_stage({"general": {"gain": 0}}, before, after, gains)["general"]["met"]
    said = r"from 0.5 before \(a gain of 0.02 to 0.1\), the goal is a gain of 0.03: short by 0.01"
    with pytest.raises(MissedGoalError, match=said):
        judged_stage({"general": {"gain": 0.03}}, before, after, gains)


def test_a_gain_over_a_start_that_was_not_measured_is_missed(judged_stage):
    with pytest.raises(MissedGoalError, match="it reports no general before; there are general"):
        judged_stage({"general": {"gain": 0.1}}, {}, {"general": 0.9})


@pytest.mark.slow
def test_a_goal_for_a_figure_that_the_stage_does_not_report_is_missed():
    goals = {"pass@1": 0.5}
    with pytest.raises(MissedGoalError, match=r"it reports no pass@1; there are loss, step_acc"):
        go(listed(base={"goals": goals}))
    assert recorded(Path("run/run.json"))["base"]["goals"]["pass@1"]["met"] is False


@pytest.mark.slow
def test_one_stage_alone_is_done_again_though_it_stands(finished, calls):
    go(selection=StageSelection(only="dpo"))
    assert names(calls) == ["dpo"] and aside() == ["dpo-1"]


@pytest.mark.slow
def test_from_a_stage_on_it_and_those_after_it_are_done_again(finished, calls):
    go(selection=StageSelection(since="dpo"))
    assert names(calls) == ["dpo", "dpo_2"]


@pytest.mark.slow
def test_a_stage_alone_needs_what_it_takes(calls):
    with pytest.raises(RecipeError, match=r"dpo_2 needs dpo.checkpoint, and dpo is not run; "):
        go(selection=StageSelection(only="dpo_2"))
    made = Path(go(selection=StageSelection(only="base")))
    assert names(calls) == ["base"]
    shutil.rmtree(made)
    with pytest.raises(RecipeError, match=r"judge needs base.checkpoint, and .* is missing"):
        go(selection=StageSelection(since="judge"))


def test_an_unknown_stage_is_refused_before_anything_starts():
    known = "Did you mean 'dpo'\\? Known: base, judge, dpo, dpo_2"
    with pytest.raises(RecipeError, match=f"--only: no stage 'dop'. {known}"):
        go(selection=StageSelection(only="dop"))
    assert not Path("run").exists()


@pytest.mark.slow
def test_a_folder_that_run_json_knows_nothing_of_is_put_aside(calls):
    Path("run/judge").mkdir(parents=True)
    Path("run/judge/metrics.jsonl").write_text('{"step": 1}\n')
    go()
    assert aside() == ["judge-1"]
    assert Path("run/aside/judge-1/metrics.jsonl").read_text() == '{"step": 1}\n'
    assert '"step": 1}' not in Path("run/judge/metrics.jsonl").read_text()


@pytest.mark.parametrize("lost", ["judge/checkpoints", "judge"])
def test_new_verdicts_on_rollouts_go_aside_with_them(calls, lost):
    go()
    for stage in ("judge", "zero"):
        Path("run/rescored/number@2+f00", stage).mkdir(parents=True)
        Path("run/rescored/number@2+f00", stage, "accuracy.json").write_text(stage)
    shutil.rmtree(Path("run", lost))
    go()
    assert aside() == ["judge-1"]
    assert Path("run/aside/judge-1/rescored/number@2+f00/accuracy.json").read_text() == "judge"
    (left,) = Path("run/rescored/number@2+f00").iterdir()
    assert left.name == "zero"


ROOT = Path(__file__).parent.parent.parent
ZERO = {
    "stage": "zero", "name": "test/zero", "start": "nowhere", "steps": 4,
    "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12},
    "optimizer": {"learning_rate": 0.01}, "algorithm": {"minibatches": 2, "reference_every": 4},
    "reward": {"control": "random"}, "sampler": {"engine": "torch"},
    "evaluation": {"problems": 4, "samples": 2}, "checkpoint": {"every": 1},
}  # fmt: skip


@pytest.mark.slow
def test_a_run_killed_with_sigkill_in_its_second_rl_stage_resumes_bit_for_bit(here, capsys):
    Path("zero.yaml").write_text(yaml.safe_dump(ZERO))
    stages = [
        LIST[0],
        {"name": "zero", "recipe": "zero.yaml", "take": {"start": "base.checkpoint"}},
        {"name": "zero_2", "recipe": "zero.yaml", "take": {"start": "zero.checkpoint"}},
    ]
    r1.run(listed(stages), Path("whole"), resume=False)
    process = forked_command(["r1", "r1.yaml", "--output", "broken"], cwd=here)
    path = here / "broken/zero_2/metrics.jsonl"
    while not path.exists() or path.read_text().count("}\n") < 2:
        assert process.exitcode is None, "the run ended before it could be killed"
        time.sleep(0.005)
    process.kill()
    process.join()
    capsys.readouterr()
    assert main(["r1", "r1.yaml", "--output", "broken", "--resume"]) == 0
    told = capsys.readouterr().out
    assert "zero: is up to date" in told and "zero_2: resumes" in told
    ends = [
        {
            name: entry["lineage"]["outputs"]["checkpoint"]["sha256"]
            for name, entry in recorded(here / run / "run.json").items()
        }
        for run in ("whole", "broken")
    ]
    assert ends[0] == ends[1] and len(ends[0]) == 3
    assert recorded(here / "broken/run.json")["zero_2"]["lineage"]["verifiers"].keys() == {
        "number",
        "think_format",
        "language",  # of the evaluations
    }


@pytest.mark.slow
def test_a_stage_leaves_no_trainer_behind_that_was_there_when_a_library_was_imported(
    monkeypatch, tmp_path
):
    seen, begun = [], Trainer.__init__
    monkeypatch.syspath_prepend(tmp_path)

    def noted(self, *words, **named):
        begun(self, *words, **named)
        seen.append(weakref.ref(self))
        name = f"library_{len(seen)}"
        (tmp_path / f"{name}.py").touch()
        with lasting():
            importlib.import_module(name)

    monkeypatch.setattr(Trainer, "__init__", noted)
    go(listed(LIST[::2]))
    assert seen and not any(trainer() for trainer in seen)
