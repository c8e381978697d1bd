"""Compositions: presets and what replaces their parts, and mixes that are refused with a reason."""

import pytest
from pydantic import ValidationError

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.presets import PRESETS

NATURAL = {"preset": "trpo"}


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_a_sound_composition_that_says_where_it_is_from(preset):
    made = AlgorithmConfig(preset=preset)
    for part, value in PRESETS[preset].parts.items():
        assert getattr(made, part) == value
    assert PRESETS[preset].paper and PRESETS[preset].idea
    assert AlgorithmConfig.model_validate(made.model_dump()) == made


def test_no_two_presets_are_the_same():
    made = [AlgorithmConfig(preset=name).model_dump_json(exclude={"preset"}) for name in PRESETS]
    assert len(set(made)) == len(PRESETS)


def test_what_is_given_replaces_the_presets_part():
    made = AlgorithmConfig(preset="dapo", clip_high=0.5)
    assert (made.clip_high, made.aggregation) == (0.5, "token_mean")


def test_a_preset_that_is_none_is_refused_with_the_nearest():
    with pytest.raises(ValidationError, match=r"no preset 'grop'. Did you mean 'grpo'\? Known"):
        AlgorithmConfig(preset="grop")
    with pytest.raises(ValidationError, match=r"no preset \['grpo'\]\."):
        AlgorithmConfig.model_validate({"preset": ["grpo"]})


@pytest.mark.parametrize(
    ("preset", "held"),
    [
        ("grpo", ("policy", "reference")),
        ("dr_grpo", ("policy",)),
        ("ppo", ("policy", "critic")),
        ("ppo_shared", ("policy",)),
        ("ppo_ptx", ("policy", "reference", "critic")),
    ],
)
def test_the_models_that_have_to_be_in_memory(preset, held):
    assert AlgorithmConfig(preset=preset).models == held


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"advantage": "gae"}, "needs a critic; set critic to separate or shared"),
        ({"critic": "shared"}, "critic=shared is not used by advantage=group"),
        ({"objective": "policy_gradient"}, "no ratio to correct for 2 updates"),
        ({"preset": "rloo", "epochs": 3}, r"3 updates per rollout \(minibatches=1, epochs=3\)"),
        ({"objective": "gspo", "aggregation": "token_mean"}, "favours long answers"),
        ({"objective": "natural_gradient"}, "natural_gradient needs trust_region > 0"),
        (NATURAL | {"critic": "shared"}, "objective=natural_gradient with critic=shared"),
        (NATURAL | {"ptx_coefficient": 0.1}, "natural_gradient with ptx_coefficient=0.1"),
        ({"critic_start": "rm"}, "critic_start='rm' with critic=none: .*set critic: separate"),
        ({"preset": "ppo_shared", "critic_start": "rm"}, "critic_start='rm' with critic=shared"),
        ({"old_kl_coefficient": 0.1}, "objective=clip does not use it"),
        ({"objective": "kl_penalty"}, "needs old_kl_coefficient > 0"),
        ({"old_kl_target": 0.01}, "old_kl_target=0.01 with objective=clip: .*kl_penalty alone"),
        ({"critic_warmup": 3}, "critic_warmup=3 with critic=none: nothing would be trained"),
        ({"kl_estimator": "k1"}, "kl_placement=loss: .* 0: it adds only noise"),
        (
            {"kl_estimator": "k3", "kl_placement": "reward"},
            "kl_placement=reward: .*set allow_biased: true",
        ),
    ],
)
def test_a_mix_that_cannot_work_is_refused_with_the_reason(parts, said):
    with pytest.raises(ValidationError, match=said):
        AlgorithmConfig(**parts)


@pytest.mark.parametrize(
    ("estimator", "placement"),
    [("k1", "reward"), ("k2", "loss"), ("k3", "loss"), ("k3_corrected", "loss")],
)
def test_sound_placements_need_no_leave(estimator, placement):
    assert AlgorithmConfig(kl_estimator=estimator, kl_placement=placement)


def test_a_biased_placement_runs_by_name_only_and_without_a_kl_nothing_is_biased():
    assert AlgorithmConfig(kl_estimator="k1", allow_biased=True).allow_biased
    assert AlgorithmConfig(kl_estimator="k1", kl_coefficient=0).kl_estimator == "k1"
