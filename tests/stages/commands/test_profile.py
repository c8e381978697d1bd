"""profile: a few real steps, their parts, and the floor; nothing is left of them."""

import json

import pytest
import yaml

from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.stages.cli import main
from veriloop.stages.commands import profile

RECIPE = {
    "stage": "zero",
    "name": "test/profile",
    "steps": 50,
    "rollout": {"prompts": 2, "per_prompt": 4, "max_tokens": 8},
    "optimizer": {"learning_rate": 1e-3},
    "sampler": {"engine": "torch"},
    "evaluation": {"problems": 2},
}


@pytest.fixture
def recipe(tmp_path, tiny_checkpoint):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(RECIPE | {"start": str(tiny_checkpoint())}))
    return str(path)


@pytest.mark.slow
def test_a_step_is_shown_by_parts_with_the_floor_of_its_update(
    recipe, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    told = tmp_path / "told.json"
    assert main(["profile", recipe, "--turns", "2", "--json", str(told)]) == 0
    said = capsys.readouterr().out
    for part in ("sample", "verify", "update", "  forward", "  backward", "  optimizer", "sync"):
        assert f"\n{part} " in said, part
    found = json.loads(told.read_text())
    assert [row["step"] for row in found["steps"]] == [2, 3]  # the first one is not counted
    floor = found["floor"]
    steps = found["steps"]
    computed = sum(r["frac_tokens_scored"] * r["num_tokens"] for r in steps) / 2
    assert 0 < floor["positions"] < computed  # prompts are shared
    passes = 6 + 2  # both ways, and the reference forward
    assert 0 < floor["operations"] < passes * floor["positions"] * floor["parameters"]
    update = sum(row["time/update"] for row in found["steps"]) / 2
    assert f"{update / floor['seconds']:.1f} times the products of its linear layers" in said
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("missing", "asked", "told"),
    [(0.0, 4.0, 4), (3.0, 13.0, 1), (4.0, 16.0, 16)],  # of four groups; without any: of all asked
)
def test_tokens_are_those_of_the_answers_that_were_learned_from(missing, asked, told):
    recipe = ZeroRecipe.model_validate(
        RECIPE | {"start": "here", "rollout": {**RECIPE["rollout"], "prompts": 4}}
    )
    row = {"completions/mean_length": 10.0, "groups_missing": missing, "questions": asked}
    written = 10.0 * told * 4
    assert profile._written(recipe, row) == written
    scored = profile._scored_positions(
        recipe, [row | {"frac_tokens_scored": 0.5, "num_tokens": written + told * 4 * 6}]
    )
    assert (scored.answers, scored.prompts) == (written / 2, told * 6 / 2)  # shared prompts


@pytest.mark.slow
def test_a_profile_of_steps_that_learn_nothing_has_no_floor(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = ["--algorithm.preset", "dapo", "--rollout.max-tokens", "1", "--reward.overlong", "0"]
    assert main(["profile", recipe, "--turns", "1", *flags]) == 0
    last = capsys.readouterr().out.rstrip().splitlines()[-1]
    assert last.startswith("its update: ") and last.endswith(" s, no answer was trained on")


def test_what_is_no_reinforcement_learning_is_refused_and_so_is_no_step(recipe, capsys):
    assert main(["profile", "tiny/dpo"]) == 2
    assert "'preference'; profile needs a recipe of reinforcement learning" in " ".join(
        capsys.readouterr().err.split()
    )
    assert main(["profile", recipe, "--turns", "0"]) == 2
    assert "--turns 0: must be at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--dry-run", "--resume", "--output=mine"])
def test_flags_of_a_run_that_is_kept_are_refused(recipe, flag, capsys):
    assert main(["profile", recipe, flag]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{flag.partition('=')[0]}: profile keeps no run" in said


@pytest.mark.parametrize(("world", "ranks"), [("2", 1), ("1", 2), ("2", 2)])
def test_several_processes_are_refused(recipe, world, ranks, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", world)
    assert main(["profile", recipe, "--cluster.trainer.ranks", str(ranks)]) == 2
    assert "profile times the step of one process" in capsys.readouterr().err
