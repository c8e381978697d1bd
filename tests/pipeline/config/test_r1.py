"""The list of a whole run: what cannot work is refused, with what would."""

import pytest
import yaml

from veriloop.pipeline.config.load import FOLDER, read, read_values
from veriloop.pipeline.config.r1 import Goal, R1Recipe
from veriloop.pipeline.config.r1_stages import longest, steps
from veriloop.pipeline.config.registry import MAKES, STAGES
from veriloop.pipeline.errors import RecipeError

BASE = {"name": "base", "recipe": "tiny/base"}
ZERO = {"name": "zero", "recipe": "tiny/zero", "take": {"start": "base.checkpoint"}}


def recipe(*stages):
    return R1Recipe.model_validate({"name": "test", "stages": stages})


@pytest.fixture
def refused(tmp_path):
    """What a list of stages is refused with when it is read and its stages are."""

    def reading(*stages, over=None):
        path = tmp_path / "r1.yaml"
        path.write_text(f"stage: r1\nname: test\nstages: {[*stages]}\n")
        with pytest.raises(RecipeError) as told:
            steps(read(str(path)), over)
        return str(told.value)

    return reading


def test_each_stage_has_the_recipe_of_its_file_with_settings_on_top():
    zero = ZERO | {"set": {"steps": 7, "rollout.prompts": 20, "optimizer.learning_rate": "1e-3"}}
    base, step = steps(recipe(BASE, zero))
    assert base.recipe == read("tiny/base") and step.name == "zero"
    assert (step.recipe.steps, step.recipe.rollout.prompts) == (7, 20)
    assert step.recipe.rollout.per_prompt == 16 and step.recipe.optimizer.learning_rate == 1e-3
    assert step.recipe.start == "base.checkpoint"


def test_what_is_laid_over_wins_over_the_list():
    zero = ZERO | {"set": {"steps": 7, "seed": 3}}
    _, step = steps(recipe(BASE, zero), {"zero": {"steps": 9}})
    assert (step.recipe.steps, step.recipe.seed) == (9, 3)


def test_what_is_laid_over_a_mapping_or_a_section_that_the_stage_leaves_out_keeps_the_rest():
    pairs = {"name": "dpo", "recipe": "tiny/dpo", "take": {"start": "base.checkpoint"}}
    listed = recipe(BASE, ZERO, pairs)
    over = {"zero": {"problems.programs": 0.25}, "dpo": {"rollout.max_tokens": 9}}
    _, zero, dpo = (step.recipe for step in steps(listed, over))
    assert zero.problems == {"arithmetic": 1.0, "programs": 0.25}
    assert zero.evaluation.sources == ("arithmetic", "programs")
    assert (dpo.rollout.prompts, dpo.rollout.max_tokens) == (32, 9)
    only = {"zero": {"problems.programs": 1, "problems.arithmetic": 0}}
    assert steps(listed, only)[1].recipe.problems == {"programs": 1.0}


def test_hyphens_of_fields_are_underscores_and_names_stay_as_they_are():
    over = {"zero": {"problems.my-set": 1, "optimizer.learning-rate": 0.5}, "*": {"seed": 1}}
    over["zero"] |= {"sets.my-set.path": "a.jsonl", "sets.my-set.held-out": 0.1}
    over["*"] |= {"optimizer.learning_rate": 0.1}
    _, step = steps(recipe(BASE | {"set": {"optimizer.learning_rate": 2}}, ZERO), over)
    assert step.recipe.problems["my-set"] == 1 and step.recipe.optimizer.learning_rate == 0.5
    assert step.recipe.sets["my-set"].held_out == 0.1


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_the_list_leaves_open_of_its_cluster_stays_the_stages_own(tmp_path, ranks):
    own = {"deadlines": {"sync_s": 90, "answer_s": 80}, "trainer": {"host_gib": 70}}
    path = tmp_path / "zero.yaml"
    path.write_text(yaml.safe_dump({**read_values("tiny/zero"), "cluster": own}))
    run = {"trainer": {"ranks": ranks}, "deadlines": {"sync_s": 60}}
    stages = [BASE, ZERO | {"recipe": str(path)}]
    _, step = steps(R1Recipe.model_validate({"name": "t", "stages": stages, "cluster": run}))
    found = step.recipe.cluster
    assert (found.deadlines.sync_s, found.deadlines.answer_s) == (60, 80)
    assert (found.trainer.host_gib, found.ranks) == (70, ranks)


def test_memory_in_the_list_is_that_of_stages_that_have_a_trainer():
    clustered = R1Recipe.model_validate(
        {"name": "t", "stages": [BASE, ZERO], "cluster": {"trainer": {"gpu_gib": 80}}}
    )
    _, step = steps(clustered)
    assert step.recipe.cluster.trainer.gpu_gib == 80
    _, step = steps(clustered, {"zero": {"cluster.trainer.gpu_gib": 40}})
    assert step.recipe.cluster.trainer.gpu_gib == 40


def test_what_is_laid_over_every_stage_gives_way_to_what_is_meant_for_one():
    zero = ZERO | {"set": {"seed": 3}}
    again = ZERO | {"name": "again"}
    found = steps(recipe(BASE, zero, again), {"again": {"seed": 5}, "*": {"seed": 4}})
    assert [step.recipe.seed for step in found] == [4, 4, 5]


def test_a_path_that_is_laid_over_replaces_the_repository_of_a_set(tmp_path):
    zero = ZERO | {"set": {"sets": {"mine": {"of": "gsm8k", "repo": "a/b"}}}}
    plain = ZERO | {"set": {"sets.mine.of": "gsm8k", "sets.mine.repo": "a/b"}}
    over = {"zero": {"sets.mine.path": "q.jsonl"}}
    for stage in (plain, ZERO | {"recipe": _with_set(tmp_path)}):
        _, step = steps(recipe(BASE, stage), over)
        assert (step.recipe.sets["mine"].path, step.recipe.sets["mine"].repo) == ("q.jsonl", "")
    _, step = steps(recipe(BASE, zero))
    assert step.recipe.sets["mine"].repo == "a/b"
    both = {"zero": over["zero"] | {"sets.mine.repo": "c/d"}}
    with pytest.raises(RecipeError, match="set only one"):
        steps(recipe(BASE, plain), both)


def _with_set(folder):
    path = folder / "zero.yaml"
    text = (FOLDER / "tiny/zero.yaml").read_text()
    path.write_text(f"{text}\nsets: {{mine: {{of: gsm8k, repo: a/b}}}}\n")
    return str(path)


def test_a_stage_takes_paths_of_earlier_outputs():
    label = {"label.by": "reward_model", "schedule.name": "online", "schedule.rounds": 2}
    dpo = {
        "name": "dpo",
        "recipe": "tiny/dpo",
        "set": label,
        "take": {"start": "zero.checkpoint", "label.reward_model": "judge.checkpoint"},
    }
    judge = {"name": "judge", "recipe": "tiny/reward_model", "take": ZERO["take"]}
    step = steps(recipe(BASE, ZERO, judge, dpo))[-1]
    made = {"zero": {"checkpoint": "z/1"}, "judge": {"checkpoint": "j/2"}}
    got = step.with_taken(made)
    assert (got.start, got.label.reward_model, got.label.by) == ("z/1", "j/2", "reward_model")
    assert got.schedule.rounds == 2 and step.recipe.label.reward_model == "judge.checkpoint"


def test_a_preset_set_in_the_list_survives_what_is_taken():
    zero = ZERO | {"set": {"algorithm.preset": "dapo"}}
    step = steps(recipe(BASE, zero))[-1]
    got = step.with_taken({"base": {"checkpoint": "b"}})
    assert got.algorithm == step.recipe.algorithm and got.algorithm.dynamic_sampling == 3


def test_two_stages_of_one_kind_go_by_their_names():
    again = {"name": "zero_again", "recipe": "tiny/zero", "take": {"start": "zero.checkpoint"}}
    assert [s.name for s in steps(recipe(BASE, ZERO, again))] == ["base", "zero", "zero_again"]


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([], "stages: at least one"),
        ([BASE, BASE], "two stages are called 'base'"),
        ([BASE | {"name": "aside"}], "no stage can be called 'aside'"),
        ([BASE | {"name": "evaluations"}], "no stage can be called 'evaluations'"),
        ([BASE | {"name": "A b"}], "stages.0.name: "),
        (
            [BASE | {"recepi": "x"}],
            "stages.0.recepi: unknown key. Did you mean 'recipe'? Allowed: goals, name, recipe, "
            "set, take",
        ),
        (
            [BASE, ZERO | {"take": {"start": "bsae.checkpoint"}}],
            "zero: take start: 'bsae.checkpoint': no stage 'bsae'. Did you mean 'base'? Stages: "
            "base, zero",
        ),
        (
            [ZERO, BASE],
            "take start: 'base.checkpoint': 'base' is not an earlier stage; earlier ones: none",
        ),
        ([BASE, ZERO | {"take": {"start": "zero.checkpoint"}}], "'zero' is not an earlier stage"),
        ([BASE, ZERO | {"take": {"start": "base"}}], "must be STAGE.OUTPUT, as in base.checkpoint"),
        (
            [BASE, ZERO | {"take": {"start": "base.chekpoint"}}],
            "stage zero: take start: base has no output 'chekpoint'. Did you mean 'checkpoint'?",
        ),
        (
            [BASE | {"recipe": "tiny/bsae"}],
            "stage base: no recipe 'tiny/bsae'. Did you mean 'tiny/base'?",
        ),
        ([BASE, ZERO | {"set": {"stepz": 1}}], "stepz: unknown key. Did you mean 'steps'?"),
        ([BASE, ZERO | {"set": {"steps": 0}}], "stage zero (tiny/zero):\n  steps: "),
        (
            [BASE, ZERO | {"take": {"begin": "base.checkpoint"}}],
            "begin: unknown key",
        ),
        ([BASE, ZERO | {"take": {"steps": "base.checkpoint"}}], "steps: Input should be"),
        ([BASE, ZERO | {"set": {"start": "x"}}], "stage zero: start is both set and taken"),
        (
            [BASE, ZERO | {"take": {}}],
            "start: recipes/tiny/base.yaml would train a base model outside the run",
        ),
        ([BASE | {"recipe": "tiny/r1"}], "is itself a list of stages"),
        ([BASE | {"goals": {"loss": {}}}], "needs at_least, at_most or gain"),
        (
            [BASE | {"goals": {"loss": {"at_least": 0.9, "at_most": 0.1}}}],
            "at_least=0.9 with at_most=0.1: no value meets both",
        ),
        (
            [BASE | {"goals": {"loss": {"at_leest": 1}}}],
            "at_leest: unknown key. Did you mean 'at_least'? Allowed: at_least, at_most",
        ),
    ],
)
def test_what_cannot_work_is_refused_by_name(refused, stages, said):
    assert said in refused(*stages)


def test_settings_for_no_stage_name_the_nearest(refused):
    said = refused(BASE, ZERO, over={"zreo": {"steps": 1}})
    assert "no stage 'zreo' in test. Did you mean 'zero'?" in said


def test_a_number_is_the_least_value_and_bounds_can_be_either():
    asked = {"pass@1": 0.9, "length": {"at_most": 60}, "kl": {"at_least": 1, "at_most": 2}}
    bounds = recipe(BASE | {"goals": asked}).stages[0].bounds
    assert bounds == {
        "pass@1": Goal(at_least=0.9),
        "length": Goal(at_most=60),
        "kl": Goal(at_least=1, at_most=2),
    }
    assert str(bounds["kl"]) == "at least 1 and at most 2" and str(bounds["length"]) == "at most 60"


@pytest.mark.parametrize(
    ("goal", "value", "short"),
    [
        (Goal(at_least=0.9), 0.9, 0),
        (Goal(at_least=0.9), 0.8, 0.1),
        (Goal(at_most=60), 60, 0),
        (Goal(at_most=60), 61.5, 1.5),
        (Goal(at_least=1, at_most=2), 0.5, 0.5),
        (Goal(at_least=1, at_most=2), 2.25, 0.25),
        (Goal(at_least=0), -1, 1),
    ],
)
def test_by_how_much_a_goal_is_missed(goal, value, short):
    assert goal.shortfall(value) == pytest.approx(short)


def test_a_gain_is_missed_by_what_the_rise_lacks():
    goal = Goal(gain=0.15, at_least=0.5)
    assert goal.shortfall(0.9, 0.15) == 0
    assert goal.shortfall(0.9, 0.1) == pytest.approx(0.05)
    assert goal.shortfall(0.3, 0.2) == pytest.approx(0.2)
    assert str(goal) == "at least 0.5 and a gain of 0.15"


def test_every_kind_of_stage_says_what_it_makes():
    assert MAKES.keys() == STAGES.keys() - {"r1"}


def test_the_longest_rollout_counts_prompt_and_response():
    longer = ZERO | {"name": "more", "set": {"rollout.max_tokens": 200, "rollout.max_prompt": 100}}
    assert longest(steps(recipe(BASE))) == 0
    assert longest(steps(recipe(BASE, ZERO))) == 256 + 112
    assert longest(steps(recipe(BASE, ZERO, longer))) == 256 + 112
    longer["set"]["rollout.max_prompt"] = 169
    assert longest(steps(recipe(BASE, ZERO, longer))) == 369


def test_the_papers_list_goes_from_the_base_to_the_base_and_on():
    found = {step.name: step.recipe for step in steps(read("paper/r1"))}
    assert list(found) == [
        *("zero", "cold_start", "reasoning_rl", "rejection_sft"),
        *("reward_model", "preference_rl", "distill"),
    ]
    from_base = ("zero", "cold_start", "rejection_sft")
    assert {found[name].start for name in from_base} == {"models/base"}
    assert found["cold_start"].teacher == "zero.checkpoint"
    assert found["preference_rl"].reward.reward_model == "reward_model.checkpoint"
    assert found["distill"].data.source == "rejection_sft.data"
    judge = found["reward_model"]
    assert (judge.data.rows, judge.batch, judge.optimizer.learning_rate) == (66_000, 256, 6e-6)


def test_the_pairs_of_iterated_rlhf_can_be_ranked_by_a_judge():
    plan = steps(read("tiny/rlhf_iterated"), {"pairs": {"label.by": "judge"}})
    assert next(step.recipe for step in plan if step.name == "pairs").label.by == "judge"
