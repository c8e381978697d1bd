"""Recipes of preferences: what does not fit together is refused with a reason."""

import pytest
from pydantic import ValidationError

from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.preference import (
    READS,
    PreferenceDataConfig,
    PreferenceLossConfig,
    PreferenceRecipe,
    RewardModelRecipe,
)
from veriloop.pipeline.dry_run.plan import plan
from veriloop.pipeline.preference.datasets import kind_of, load_rows

OPTIMIZER = {"learning_rate": 1e-3}


def recipe(**parts):
    values = {"name": "n", "start": "nowhere", "optimizer": OPTIMIZER}
    return PreferenceRecipe.model_validate(values | parts)


def refused(**parts):
    with pytest.raises(ValidationError) as failure:
        recipe(**parts)
    return str(failure.value)


def test_only_general_pairs_have_an_adversarial_share():
    PreferenceDataConfig(source="general", rows=8, adversarial=0.2)
    for source in ("arithmetic", "mine.jsonl"):
        with pytest.raises(ValueError, match=r"adversarial=0.2 is read only by source 'general'"):
            PreferenceDataConfig(source=source, rows=8, adversarial=0.2)
    with pytest.raises(ValueError, match=r"rows=0: generated data has no end"):
        PreferenceDataConfig(source="general")


def test_a_reward_model_is_not_trained_through_adapters():
    values = {"name": "n", "start": "nowhere", "optimizer": OPTIMIZER}
    RewardModelRecipe.model_validate(values)
    with pytest.raises(ValidationError, match=r"trainer.lora.rank=4: adapters would leave the hea"):
        RewardModelRecipe.model_validate(values | {"trainer": {"lora": {"rank": 4}}})


def test_losses_and_schedules_get_generated_data_that_they_can_learn_from():
    def asked(source, loss, schedule):
        data = {"source": source, "rows": 8}
        return {"data": data, "loss": {"name": loss}, "schedule": {"name": schedule}}

    ordered = refused(**asked("general", "dpo", "curriculum"))
    assert "schedule.name=curriculum with data.source=general" in ordered
    for source, schedule in (("general", "offline"), ("arithmetic", "curriculum")):
        said = refused(**asked(source, "two_d_dpo", schedule))
        assert f"two_d_dpo with data.source={source} and schedule.name={schedule}" in said
    for source, loss, schedule in (
        ("general", "kto", "offline"),
        ("arithmetic", "kto", "curriculum"),
        ("arithmetic", "two_d_dpo", "offline"),
        ("mine.jsonl", "two_d_dpo", "curriculum"),
    ):
        config = recipe(**asked(source, loss, schedule))
        if source != "mine.jsonl":
            rows = load_rows(config.data, kind_of(config.schedule))[0]
            assert loss != "two_d_dpo" or all(row.chosen_segments for row in rows)


@pytest.mark.parametrize("name", ["rows", "held_out"])
def test_kto_has_answers_to_another_prompt_in_all_that_it_reads(name):
    data = {"source": "arithmetic", "rows": 8, "held_out": 8, name: 1}
    assert f"data.{name}=1: KTO's reference point needs" in refused(data=data, loss={"name": "kto"})
    recipe(data=data, loss={"name": "dpo"})
    sampled = {"schedule": {"name": "online", "rounds": 2}, "problems": {"arithmetic": 1.0}}
    if name == "rows":  # of which none is trained on
        recipe(data=data, loss={"name": "kto"}, **sampled)


def test_generated_general_preferences_are_no_rankings():
    values = {"name": "n", "start": "nowhere", "optimizer": OPTIMIZER, "kind": "ranked"}
    RewardModelRecipe.model_validate(values | {"data": {"source": "arithmetic", "rows": 8}})
    with pytest.raises(ValidationError, match=r"kind=ranked with data\.source=general"):
        RewardModelRecipe.model_validate(values | {"data": {"source": "general", "rows": 8}})


def test_every_loss_reads_settings_that_exist():
    assert set(READS) == set(PreferenceLossConfig.model_fields["name"].annotation.__args__)
    for settings in READS.values():
        assert set(settings) <= set(PreferenceLossConfig.model_fields)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ({"name": "dpo", "tau": 0.5}, "tau=0.5 is not read by dpo, which reads beta"),
        ({"name": "ipo", "beta": 0.5}, "beta=0.5 is not read by ipo, which reads tau, length"),
        ({"name": "dpo", "label_smoothing": 0.5}, "less than 0.5"),
        ({"name": "kto", "desirable_weight": 2}, "both or neither"),
        ({"name": "two_d_dpo", "aspects": [0.5, 0.4]}, "must add up to 1, not 0.9"),
    ],
)
def test_a_number_that_the_loss_does_not_read_is_refused(loss, message):
    assert message in refused(loss=loss)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"schedule": {"name": "online"}}, "schedule 'online' samples answers: set problems"),
        ({"schedule": {"rounds": 2}}, "offline has 1 round; set epochs"),
        (
            {"schedule": {"name": "online", "epochs": 2}, "problems": {"arithmetic": 1.0}},
            "online trains on a sample once",
        ),
        (
            {"schedule": {"name": "iterative"}, "problems": {"arithmetic": 1.0},
             "loss": {"name": "two_d_dpo"}},
            "two_d_dpo needs scored segments",
        ),
        (
            {"schedule": {"name": "online"}, "problems": {"arithmetic": 1.0},
             "rollout": {"prompts": 4, "per_prompt": 1, "max_tokens": 8}},
            "leaves nothing to compare",
        ),
        ({"loss": {"name": "kto"}, "batch": 1}, "KTO's reference point needs an answer to another"),
        ({"data": {"rows": 0}}, "generated data has no end"),
        ({"label": {"by": "reward_model"}}, "set reward_model exactly"),
        ({"label": {"reward_model": "x"}}, "set reward_model exactly"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(parts, message):
    assert message in refused(**parts)


def test_only_three_losses_have_no_reference():
    free = [name for name in READS if not PreferenceLossConfig(name=name).has_reference]
    assert free == ["cpo", "simpo", "orpo"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dpo", "dpo, the start is the reference, scored once and stored"),
        ("orpo", "orpo, without a reference"),
        ("curry_dpo", "curriculum: 3 rounds x 1 epoch"),
        ("iterative_dpo", "128 prompts x 8 answers a round, at most 256 pairs, judged by the"),
        ("online_dpo", "- reference"),
        ("kto", "of 64 answers each"),
        ("reward_model", "mean reward of the best held-out answers"),
    ],
)
def test_the_plan_says_what_a_shipped_recipe_will_do(name, said):
    assert said in plan(read(f"tiny/{name}"))


def test_a_start_that_is_not_here_is_told():
    assert "unknown: no config.json of a known layout for nowhere" in plan(recipe())
