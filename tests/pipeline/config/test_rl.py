"""Recipes of reinforcement learning refuse questions and rewards that do not fit."""

import pytest
from pydantic import ValidationError

from veriloop.data.sources import SOURCES
from veriloop.data.template import INSTRUCTION
from veriloop.pipeline.config.rl import PreferenceRLRecipe, ReasoningRecipe, RLRecipe, ZeroRecipe
from veriloop.pipeline.config.sections import EvaluationConfig
from veriloop.pipeline.config.sft import ColdStartRecipe, SFTRecipe

FIXED = {
    "name": "n",
    "start": "s",
    "steps": 10,
    "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 8},
    "optimizer": {"learning_rate": 1e-3},
}
JUDGED = {"reward_model": "models/reward"}
MIXED = {"arithmetic": 0.6, "general": 0.4}


@pytest.fixture(autouse=True)
def general(monkeypatch):
    """Another source, whether or not the real one is there."""
    monkeypatch.setitem(SOURCES, "general", SOURCES["arithmetic"])


def preference(**changes):
    values = {"problems": MIXED, "reward": JUDGED}
    return PreferenceRLRecipe.model_validate(FIXED | values | changes)


def test_each_stage_is_told_in_one_shape_and_rewards_in_its_own():
    zero, reasoning = ZeroRecipe.model_validate(FIXED), ReasoningRecipe.model_validate(FIXED)
    assert all(isinstance(r, RLRecipe) for r in (zero, reasoning, preference()))
    assert zero.problems == reasoning.problems == {"arithmetic": 1.0}
    assert not hasattr(zero.reward, "language") and reasoning.reward.language == 1.0
    assert (zero.stage, reasoning.stage, preference().stage) == (
        "zero", "reasoning_rl", "preference_rl",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "reward"), [(ZeroRecipe, {"language": 1}), (ReasoningRecipe, JUDGED)]
)
def test_a_reward_that_the_stage_does_not_have_is_refused(kind, reward):
    with pytest.raises(ValidationError, match="Extra inputs"):
        kind.model_validate(FIXED | {"reward": reward})


@pytest.mark.parametrize("kind", [ZeroRecipe, ReasoningRecipe])
def test_rules_alone_cannot_reward_general_prompts(kind):
    with pytest.raises(ValidationError, match=r"no rule scores .* stage: preference_rl"):
        kind.model_validate(FIXED | {"problems": MIXED})


@pytest.mark.parametrize(
    ("problems", "said"),
    [
        ({"arithmetik": 1}, r"no source 'arithmetik'\. Did you mean 'arithmetic'\? Known: arith"),
        ({}, "at least one source"),
        ({"arithmetic": 0}, "greater than 0"),
        ("arithmetic", "valid dictionary"),
    ],
)
def test_questions_come_from_known_sources_by_weights_above_zero(problems, said):
    with pytest.raises(ValidationError, match=said):
        ZeroRecipe.model_validate(FIXED | {"problems": problems})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"problems": {"arithmetic": 1}}, "nothing to score"),
        ({"algorithm": {"dynamic_sampling": 2}}, "do not have; set 0"),
        ({"reward": {"reward_model": ""}}, "reward_model"),
        ({"reward": JUDGED | {"preference_from": 1.1}}, "preference_from"),
        ({"reward": JUDGED | {"preference_scale": 0}}, "preference_scale"),
        ({"reward": JUDGED | {"preference_scale": "raw"}}, "preference_scale"),
    ],
)
def test_a_reward_model_needs_its_folder_and_something_to_judge(changes, said):
    with pytest.raises(ValidationError, match=said):
        preference(**changes)


def test_a_critic_from_a_reward_model_has_no_adapters():
    algorithm = {"preset": "ppo", "critic_start": "models/reward"}
    assert preference(algorithm=algorithm).algorithm.critic_start == "models/reward"
    with pytest.raises(ValidationError, match=r"critic_start='models/reward' with trainer\.lora\."):
        preference(algorithm=algorithm, trainer={"lora": {"rank": 4}})


def test_without_a_reward_model_there_is_no_secondary_stage():
    with pytest.raises(ValidationError, match="reward\n  Field required"):
        PreferenceRLRecipe.model_validate(FIXED | {"problems": MIXED})


@pytest.mark.parametrize(
    ("steps", "share", "turn"), [(1700, 0.7647, 1300), (10, 0.75, 8), (30, 0.0, 0), (30, 1.0, 30)]
)
def test_the_preference_reward_counts_from_a_share_of_the_training_on(steps, share, turn):
    told = preference(steps=steps, reward=JUDGED | {"preference_from": share})
    assert told.preference_turn == turn


@pytest.mark.parametrize("sources", [("generel",), (), ("arithmetic", "arithmetic")])
def test_an_evaluation_names_each_known_source_once(sources):
    assert EvaluationConfig(sources=("general", "arithmetic")).sources == ("general", "arithmetic")
    with pytest.raises(ValidationError, match=r"Did you mean 'general'|and each once"):
        ZeroRecipe.model_validate(FIXED | {"evaluation": {"sources": sources}})


@pytest.mark.parametrize(
    ("algorithm", "reward", "expected"),
    [
        ({"preset": "dapo"}, {}, 8),
        ({"preset": "dapo"}, {"accuracy": 2}, 8),
        ({"preset": "dapo"}, {"overlong": 0}, 0),
        ({"preset": "dapo"}, {"overlong": 3}, 3),
        ({"preset": "grpo"}, {}, 0),
        ({}, {}, 0),
    ],
)
def test_dapo_has_its_soft_length_limit_unless_the_recipe_has_its_own(algorithm, reward, expected):
    rollout = FIXED["rollout"] | {"max_tokens": 40}
    values = FIXED | {"rollout": rollout, "algorithm": algorithm, "reward": reward}
    recipe = ZeroRecipe.model_validate(values)
    assert recipe.reward.overlong == expected
    assert recipe.algorithm.truncated == ("mask" if algorithm.get("preset") == "dapo" else "train")
    assert ZeroRecipe.model_validate(recipe.model_dump()) == recipe


def test_the_natural_gradient_needs_the_digits_of_float32():
    algorithm = {"objective": "natural_gradient", "trust_region": 0.01}
    values = FIXED | {"algorithm": algorithm, "trainer": {"compute": "bfloat16"}}
    with pytest.raises(ValidationError, match=r"natural_gradient with trainer.compute=bfloat16"):
        ZeroRecipe.model_validate(values)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("arithmetic",)),
        ({"problems": {"programs": 1.0}}, ("programs",)),
        ({"problems": {"programs": 1.0}, "evaluation": {"problems": 3}}, ("programs",)),
        (
            {"problems": {"programs": 1.0}, "evaluation": {"sources": ["arithmetic"]}},
            ("arithmetic",),
        ),
    ],
)
def test_a_recipe_is_measured_on_its_own_problems_unless_it_names_others(given, expected):
    assert ZeroRecipe.model_validate(FIXED | given).evaluation.sources == expected


def test_a_stage_that_collects_is_measured_on_what_it_collects():
    collect = {"problems": {"programs": 2, "arithmetic": 1}, "questions": 4}
    rest = {name: FIXED[name] for name in ("name", "start", "optimizer")} | {"teacher": "t"}
    recipe = ColdStartRecipe.model_validate(rest | {"collect": collect})
    assert recipe.evaluation.sources == ("programs", "arithmetic")
    worked = {key: rest[key] for key in ("name", "start", "optimizer")}
    worked |= {"data": {"problems": {"programs": 1.0}, "rows": 4}}
    assert SFTRecipe.model_validate(worked).evaluation.sources == ("programs",)


@pytest.mark.parametrize(
    ("rollout", "reward", "expected"),
    [
        ({"template": "chat"}, {}, INSTRUCTION),
        ({"template": "chat"}, {"format": 0.5}, INSTRUCTION),
        ({"template": "chat"}, {"format": 0.0}, ""),
        ({"template": "chat", "system": ""}, {}, ""),
        ({"template": "chat", "system": "Be brief."}, {}, "Be brief."),
        ({}, {}, ""),
    ],
)
def test_a_chat_is_told_of_the_rewarded_tags_unless_the_recipe_says_otherwise(
    rollout, reward, expected
):
    values = FIXED | {"rollout": FIXED["rollout"] | rollout, "reward": reward}
    recipe = ZeroRecipe.model_validate(values)
    assert recipe.rollout.system == expected
    assert ZeroRecipe.model_validate(recipe.model_dump()) == recipe


PROCESS = {"algorithm": {"preset": "grpo_process"}}


def test_steps_of_sums_have_a_verifier_and_other_sources_need_one():
    assert ZeroRecipe.model_validate(FIXED | PROCESS).reward.steps == {"arithmetic": "unit_chain"}
    dumped = FIXED | PROCESS | {"reward": {"steps": {}}}
    assert ZeroRecipe.model_validate(dumped).reward.steps == {"arithmetic": "unit_chain"}
    both = {"problems": {"arithmetic": 1.0, "programs": 1.0}}
    more = {"reward": {"steps": {"programs": "process_reward"}}}
    found = ZeroRecipe.model_validate(FIXED | PROCESS | both | more).reward.steps
    assert found == {"arithmetic": "unit_chain", "programs": "process_reward"}
    assert ZeroRecipe.model_validate(FIXED).reward.steps == {}
    problems = {"problems": {"programs": 1.0}}
    own = {"reward": {"steps": {"programs": "process_reward"}}}
    recipe = ZeroRecipe.model_validate(FIXED | PROCESS | problems | own)
    assert recipe.reward.steps == {"programs": "process_reward"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"problems": {"arithmetic": 1, "programs": 1}} | PROCESS,
            "single steps of answers to 'programs'; set reward.steps.programs to one of process_re",
        ),
        (
            {"reward": {"steps": {"arithmetic": "unit_chian"}}} | PROCESS,
            r"arithmetic='unit_chian' scores no single steps\. Did you mean 'unit_chain'",
        ),
        ({"reward": {"steps": {"arithmetic": "number"}}} | PROCESS, "'number' scores no single st"),
        (
            {"reward": {"steps": {"arithmetic": "unit_chain"}}},
            "is read only by algorithm.advantage=process, not by group",
        ),
    ],
)
def test_scores_of_steps_that_nobody_gives_or_reads_are_refused(changes, said):
    with pytest.raises(ValidationError, match=said):
        ZeroRecipe.model_validate(FIXED | changes)


def ahead(by, **changes):
    rollout = FIXED["rollout"] | {"ahead": by} | changes.pop("rollout", {})
    return ZeroRecipe.model_validate(FIXED | {"rollout": rollout} | changes)


@pytest.mark.parametrize(
    ("by", "changes", "said"),
    [
        (2, {}, r"rollout.ahead=2 with algorithm.old_logp=sampler: .*set algorithm.old_logp: tra"),
        (4, {"algorithm": {"old_logp": "trainer", "dynamic_sampling": 2}},
         r"rollout.ahead=4 with algorithm.dynamic_sampling=2"),
        (9, {}, r"rollout.ahead=9 exceeds rollout.max_tokens=8: .*nearest valid: 8"),
        (-1, {}, "greater than or equal to 0"),
        (2, {"rollout": {"stop": ["</answer>"]}},
         r"rollout.ahead=2 with rollout.stop=\('</answer>',\)"),
        (1, {"algorithm": {"preset": "rloo"}},
         r"rollout.ahead=1 with algorithm.objective=policy_gradient: .*old_logp: trainer, or a"),
        (1, {"algorithm": {"preset": "line_search"}},
         r"rollout.ahead=1 with algorithm.trust_region=0.01: .*old_logp: trainer, or ahead: 0"),
    ],
)  # fmt: skip
def test_sampling_far_ahead_is_refused_where_it_could_not_be_corrected(by, changes, said):
    with pytest.raises(ValidationError, match=said):
        ahead(by, **changes)


def test_sampling_far_ahead_is_corrected_or_biased_by_name():
    corrected = {"old_logp": "trainer"}
    assert ahead(4, algorithm=corrected).rollout.ahead == 4
    assert ahead(4, algorithm={"allow_biased": True}).rollout.ahead == 4
    assert ahead(1, algorithm={"dynamic_sampling": 2}, rollout={"stop": ["x"]}).rollout.ahead == 1
    for mended in (corrected, {"allow_biased": True}):
        assert ahead(1, algorithm={"preset": "rloo"} | mended).rollout.ahead == 1


def test_shuffled_groups_are_refused_where_a_single_group_may_be_sampled_again():
    refilled = {"algorithm": {"dynamic_sampling": 2}}
    with pytest.raises(ValidationError, match="shuffled_groups with algorithm"):
        ZeroRecipe.model_validate(FIXED | refilled | {"reward": {"control": "shuffled_groups"}})
    ZeroRecipe.model_validate(FIXED | refilled | {"reward": {"control": "random"}})


def test_shuffled_groups_are_refused_where_a_step_has_a_single_group():
    one = {"rollout": {**FIXED["rollout"], "prompts": 1}}
    with pytest.raises(ValidationError, match=r"shuffled_groups with rollout\.prompts=1: a single"):
        ZeroRecipe.model_validate(FIXED | one | {"reward": {"control": "shuffled_groups"}})
    ZeroRecipe.model_validate(FIXED | one | {"reward": {"control": "random"}})


def test_a_set_that_holds_nothing_out_cannot_be_evaluated():
    asked = {"problems": {"dapo_math": 1.0}}
    with pytest.raises(ValidationError, match=r"no question of 'dapo_math' is held out; set sets"):
        ZeroRecipe.model_validate(FIXED | asked)
    for more in (
        {"sets": {"dapo_math": {"held_out": 0.1}}},
        {"sets": {"dapo_math": {"test": "test.jsonl"}}},
        {"evaluation": {"sources": ["aime24"]}},
    ):
        ZeroRecipe.model_validate(FIXED | asked | more)
    with pytest.raises(ValidationError, match="no question of 'gsm8k' is held out"):
        ZeroRecipe.model_validate(
            FIXED | {"problems": {"gsm8k": 1.0}, "sets": {"gsm8k": {"path": "train.jsonl"}}}
        )


@pytest.mark.parametrize("control", ["random", "shuffled_groups"])
def test_a_control_of_whole_responses_is_none_of_their_steps(control):
    reward = {"control": control, "steps": {"arithmetic": "unit_chain"}}
    ZeroRecipe.model_validate(FIXED | {"reward": {"control": control}})
    with pytest.raises(
        ValidationError, match=f"control={control} with algorithm.advantage=process"
    ):
        ZeroRecipe.model_validate(FIXED | {"algorithm": {"advantage": "process"}, "reward": reward})


def test_a_group_of_one_is_never_mixed():
    one = {"rollout": {**FIXED["rollout"], "per_prompt": 1}}
    ZeroRecipe.model_validate(FIXED | one | {"algorithm": {"advantage": "running"}})
    resampled = FIXED | one | {"algorithm": {"advantage": "running", "dynamic_sampling": 2}}
    with pytest.raises(ValidationError, match=r"per_prompt=1 with .*dynamic_sampling=2: in a gro"):
        ZeroRecipe.model_validate(resampled)


@pytest.mark.parametrize(("warmup", "steps", "most"), [(5, 2, 1), (3, 3, 2)])
def test_a_warm_up_of_the_critic_leaves_steps_for_the_policy(warmup, steps, most):
    algorithm = {"preset": "ppo", "critic_warmup": warmup}
    with pytest.raises(ValidationError, match=f"critic_warmup={warmup} .* to {most} at most"):
        ZeroRecipe.model_validate(FIXED | {"steps": steps, "algorithm": algorithm})
    ZeroRecipe.model_validate(FIXED | {"steps": warmup + 1, "algorithm": algorithm})
