"""Recipes for real models, cut down in their sizes alone: planned offline, and trained."""

import json
import re
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file

from veriloop.pipeline.config.load import read, validate
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.rollouts.sources import gym_task, sources_of
from veriloop.stages.cli import main
from veriloop.verifiers.registry import judge

FOLDER = Path(__file__).parents[2] / "recipes"
NAMES = sorted(
    p.relative_to(FOLDER).with_suffix("").as_posix() for p in (FOLDER / "real").rglob("*.yaml")
)
WHOLE = [name for name in NAMES if read(name).stage == "r1"]
STAGES = [name for name in NAMES if name not in WHOLE]
ALONE = [name for name in STAGES if name not in {s.recipe for w in WHOLE for s in read(w).stages}]
QUICK = ("real/zero_gsm8k_qwen2.5_0.5b", "real/dpo_ultrafeedback")  # all together take a while


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
def test_it_is_planned_as_it_is_where_its_model_is_and_nothing_can_be_fetched(name, place, capsys):
    assert main([read(name).stage.replace("_", "-"), name, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "- optimizer moments" in told and "unknown" not in told and "not found" not in told


@pytest.mark.slow
@pytest.mark.parametrize("name", [one for one in STAGES if isinstance(read(one), RLRecipe)])
def test_its_sets_are_read_by_their_own_columns(name, miniature, capsys):
    assert main([*miniature(name), "--dry-run"]) == 0
    counts = re.findall(
        r"set +\w+: (\d+) questions to learn from, (\d+) held out", capsys.readouterr().out
    )
    recipe = read(name)
    assert len(counts) >= sum(gym_task(one, recipe.sets) is None for one in recipe.problems)
    assert all(int(learned) + int(held_out) >= 30 for learned, held_out in counts)


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_every_stage_of_a_whole_run_is_planned(name, place, capsys):
    assert main(["r1", name, "--dry-run"]) == 0
    told = capsys.readouterr().out
    stages = read(name).stages
    assert all(f"{n}/{len(stages)} {stage.name}: " in told for n, stage in enumerate(stages, 1))
    assert all(f"takes {key} from {v}" in told for one in stages for key, v in one.take.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in ALONE]
)
def test_a_stage_that_no_whole_run_has_trains(name, miniature, place):
    assert main(miniature(name)) == 0
    (told,) = json.loads((place / "run/run.json").read_text())["stages"]
    assert told["status"] == "done"
    require_trained(place / read(name).start, Path(told["outputs"]["checkpoint"]))


def require_trained(start, checkpoint):
    before, after = (load_file(folder / "model.safetensors") for folder in (start, checkpoint))
    shared = before.keys() & after.keys()
    assert len(shared) > 10 and any(not before[k].equal(after[k]) for k in shared)


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_run_trains_every_stage_and_hands_on(name, miniature, place):
    assert main(miniature(name)) == 0
    told = json.loads((place / "run/run.json").read_text())["stages"]
    assert [one["name"] for one in told] == [one.name for one in read(name).stages]
    assert {one["status"] for one in told} == {"done"}
    by_name = {one["name"]: one for one in told}
    for stage in read(name).stages:
        own = by_name[stage.name]
        start = own["inputs"]["recipe"].get("student") or own["inputs"]["recipe"]["start"]
        require_trained(place / start, place / own["outputs"]["checkpoint"])
        for key, (source, output) in stage.taken.items():
            taken = by_name[stage.name]["inputs"]["recipe"]
            for part in key.split("."):
                taken = taken[part]
            assert taken == by_name[source]["outputs"][output]


def recipe_of(miniature):
    miniature("real/code_rl_7b")
    return validate(yaml.safe_load(Path("recipe.yaml").read_text()), "recipe.yaml")


def test_programs_are_judged_by_the_tests_of_their_set(miniature):
    recipe = recipe_of(miniature)
    (source,) = sources_of(["deepcoder_taco"], recipe.sets)[0].values()
    problem = source.distinct("rl", 0, 1)[0]
    number = int(re.search(r"\d+", problem.prompt)[0])
    for added, score in ((number, 1.0), (number + 1, 0.0)):
        said = f"<answer>\n```python\nprint(int(input()) + {added})\n```\n</answer>"
        assert judge(problem, f"<think>so</think>{said}").score == score


def test_only_hard_questions_of_math_are_asked(miniature):
    miniature("real/zero_math_qwen2.5_1.5b")
    recipe = validate(yaml.safe_load(Path("recipe.yaml").read_text()), "recipe.yaml")
    sources, facts = sources_of(["math"], recipe.sets)
    levels = {one.facts["difficulty"] for one in sources["math"].distinct("rl", 0, 99)}
    assert levels == {"Level 3", "Level 4", "Level 5"}
    assert facts["math"]["dropped"] == {"level is not Level 3 or Level 4 or Level 5": 24}
