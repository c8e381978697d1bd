"""Compositions: presets and what replaces their parts, and mixes that are refused with a reason."""

import pytest
from pydantic import ValidationError

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.presets import PRESETS
from veriloop.pipeline.config.reads import (
    ADVANTAGES,
    CRITICS,
    FORMER_DEFAULTS,
    MISMATCHES,
    OBJECTIVES,
    PLACEMENTS,
    PTX,
)

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
        (
            {"objective": "gspo", "advantage": "process", "aggregation": "sequence_mean"},
            "advantage=process: its ratio of a whole response gives all of its tokens",
        ),
        (
            {
                "objective": "gspo",
                "aggregation": "sequence_mean",
                "kl_placement": "reward",
                "kl_estimator": "k1",
                "credit": "to_go",
            },
            "credit=to_go and a KL in the reward",
        ),
        (
            {
                "objective": "gspo",
                "aggregation": "sequence_mean",
                "advantage": "global",
                "credit": "to_go",
                "discount": 0.5,
            },
            "gspo with credit=to_go and discount=0.5: its ratio",
        ),
        ({"objective": "natural_gradient"}, "natural_gradient needs trust_region > 0"),
        (NATURAL | {"critic": "shared"}, "objective=natural_gradient with critic=shared"),
        (NATURAL | {"ptx_coefficient": 0.1}, "natural_gradient with ptx_coefficient=0.1"),
        ({"objective": "kl_penalty"}, "needs old_kl_coefficient > 0"),
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


UNREAD = [
    ({"objective": "cispo", "clip_low": 0.3}, "clip_low=0.3", "objective: clip or gspo or"),
    ({"objective": "gspo", "dual_clip": 3.0}, "dual_clip=3.0", "objective: clip\\. "),
    ({"objective": "cispo", "dual_clip": 3.0}, "dual_clip=3.0", "objective: clip\\. "),
    ({"objective": "ratio", "dual_clip": 3.0}, "dual_clip=3.0", "objective: clip\\. "),
    (
        {"preset": "rloo", "clip_high": 0.3},
        "clip_high=0.3", "objective: clip or gspo or .* cispo\\. ",
    ),
    ({"objective": "ratio", "clip_low": 0.1}, "clip_low=0.1", "objective: clip or"),
    ({"old_kl_coefficient": 0.1}, "old_kl_coefficient=0.1", "objective: kl_penalty"),
    ({"old_kl_target": 0.01}, "old_kl_target=0.01", "objective: kl_penalty"),
    ({"discount": 0.9}, "discount=0.9", "advantage: global or gae, kl_placement: reward with"),
    ({"credit": "to_go"}, "credit='to_go'", "advantage: global, kl_placement: reward with"),
    ({"preset": "ppo", "credit": "to_go"}, "credit='to_go'", "advantage: global"),
    ({"preset": "ppo_ptx", "credit": "to_go"}, "credit='to_go'", "another advantage than gae"),
    ({"gae_lambda": 0.9}, "gae_lambda=0.9", "advantage: gae"),
    ({"value_clip": None}, "value_clip=None", "critic: separate or shared"),
    ({"critic_learning_rate": 1e-4}, "critic_learning_rate=0.0001", "critic: separate or shared"),
    ({"critic_warmup": 3}, "critic_warmup=3", "critic: separate or shared"),
    ({"critic_start": "rm"}, "critic_start='rm'", "critic: separate\\. "),
    ({"preset": "ppo_shared", "critic_start": "rm"}, "critic_start='rm'", "critic: separate\\. "),
    ({"preset": "ppo", "value_coefficient": 1.0}, "value_coefficient=1.0", "critic: shared"),
    *(
        ({"preset": preset, "advantage_scale": "batch"}, "advantage_scale='batch'",
         "advantage: group or leave_one_out or process")
        for preset in ("vpg", "reinforce_pp", "ppo")
    ),
    ({"advantage": "batch", "advantage_scale": "none"}, "advantage_scale='none'", "group or"),
    ({"mismatch": "mask_tokens"}, "mismatch='mask_tokens'", "old_logp: trainer"),
    ({"mismatch_cap": 3.0}, "mismatch_cap=3.0", "mismatch: truncate or .* with old_logp: trainer"),
    (
        {"old_logp": "trainer", "mismatch_floor": 0.2},
        "mismatch_floor=0.2", "mismatch: mask_tokens with old_logp: trainer",
    ),
    (
        {"old_logp": "trainer", "mismatch": "mask_sequences", "mismatch_floor": 0.99},
        "mismatch_floor=0.99", "mismatch: mask_tokens with",
    ),
    ({"mismatch_sequence": 0.1}, "mismatch_sequence=0.1", "mismatch: mask_sequences with"),
    ({"ptx_text": "a.jsonl"}, "ptx_text='a.jsonl'", "ptx_coefficient: above 0"),
    ({"ptx_tokens": 64}, "ptx_tokens=64", "ptx_coefficient: above 0"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "setting", "readers"), UNREAD)
def test_a_setting_that_nothing_reads_is_refused_with_what_would_read_it(parts, setting, readers):
    said = rf"{setting} is not read by this algorithm\. It is read with .*{readers}"
    with pytest.raises(ValidationError, match=said):
        AlgorithmConfig(**parts)


@pytest.mark.parametrize(
    "parts",
    [
        {"objective": "gspo", "clip_low": 3e-4},
        {"objective": "cispo", "clip_high": 4.0},
        {"advantage": "global", "credit": "to_go", "discount": 0.9},
        {"kl_placement": "reward", "kl_estimator": "k1", "credit": "to_go", "discount": 0.9},
        {"preset": "ppo", "discount": 0.9, "gae_lambda": 0.9, "critic_learning_rate": 1e-4},
        {"preset": "ppo_shared", "critic_warmup": 3, "value_clip": None},
        {"old_logp": "trainer", "mismatch": "mask_sequences", "mismatch_sequence": 0.1},
        {"old_logp": "trainer", "mismatch": "mask_tokens", "mismatch_floor": 0.2},
        {"ptx_coefficient": 0.1, "ptx_tokens": 64},
        {"advantage_scale": "sample"},
    ],
)
def test_what_is_read_may_be_set(parts):
    assert not parts.keys() & AlgorithmConfig(**parts).unread.keys()


def test_defaults_and_what_the_preset_sets_need_no_reader():
    assert AlgorithmConfig(preset="cispo", objective="ratio").clip_high == 4.0
    assert AlgorithmConfig(preset="vpg", clip_low=0.2, credit="to_go").unread.keys() >= {"credit"}
    assert AlgorithmConfig(critic_learning_rate=1e-3)  # as records of earlier versions have it


MINE = """
def free(inputs): ...
def declared(inputs): ...
declared.reads = ("clip_high",)
def wrong(inputs): ...
wrong.reads = ("clip_hihg",)
"""


def test_a_users_objective_may_read_all_settings_of_objectives_unless_it_declares_which(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    free, declared, wrong = (f"{tmp_path}/mine.py:{n}" for n in ("free", "declared", "wrong"))
    assert AlgorithmConfig(objective=free, clip_low=0.1, dual_clip=3.0)
    assert AlgorithmConfig(objective=declared, clip_high=0.1)
    with pytest.raises(ValidationError) as told:
        AlgorithmConfig(objective=declared, clip_low=0.1)
    assert (
        "clip_low=0.1 is not read by this algorithm. It is read with objective: clip or gspo or "
        f"gspo_token, or by {declared} if its `reads`, now clip_high, lists it. Leave it at 0.2"
    ) in str(told.value)
    with pytest.raises(ValidationError, match=r"'clip_hihg', .* Did you mean 'clip_high'\? Known"):
        AlgorithmConfig(objective=wrong)


def test_every_setting_of_the_tables_is_one_of_the_section():
    tables = (ADVANTAGES, OBJECTIVES, CRITICS, MISMATCHES, PLACEMENTS, PTX)
    named = {name for table in tables for reads in table.values() for name in reads}
    assert named | FORMER_DEFAULTS.keys() <= AlgorithmConfig.model_fields.keys()


@pytest.mark.parametrize(
    ("estimator", "placement"),
    [("k1", "reward"), ("k2", "loss"), ("k3", "loss"), ("k3_corrected", "loss")],
)
def test_sound_placements_need_no_leave(estimator, placement):
    assert AlgorithmConfig(kl_estimator=estimator, kl_placement=placement)


def test_a_biased_placement_runs_by_name_only_and_without_a_kl_nothing_is_biased():
    assert AlgorithmConfig(kl_estimator="k1", allow_biased=True).allow_biased
    assert AlgorithmConfig(kl_estimator="k1", kl_coefficient=0).kl_estimator == "k1"
