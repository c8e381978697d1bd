"""Recipes refuse what cannot work, and say what would."""

import pytest
from pydantic import ValidationError

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.pretraining import BaseRecipe, TinyModel
from veriloop.pipeline.config.registry import STAGES
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.config.sections import OptimizerConfig, RolloutConfig, SamplerConfig

OPTIMIZER = {"learning_rate": 1e-3}


def zero(prompts=4, per_prompt=4, max_tokens=8, **parts):
    rollout = {"prompts": prompts, "per_prompt": per_prompt, "max_tokens": max_tokens}
    fixed = {"name": "n", "start": "s", "steps": 1, "rollout": rollout, "optimizer": OPTIMIZER}
    return ZeroRecipe.model_validate(fixed | parts)


def base(**parts):
    return BaseRecipe.model_validate({"name": "n", "steps": 1, "optimizer": OPTIMIZER} | parts)


@pytest.mark.parametrize("written", ["2e-6", "2E-6", "2.0e-6", 2e-6])
def test_a_learning_rate_may_be_written_as_yaml_reads_it(written):
    assert OptimizerConfig(learning_rate=written).learning_rate == 2e-6


@pytest.mark.parametrize("value", ["nan", "inf", float("nan"), float("inf"), 0, -1e-3, "fast"])
def test_a_learning_rate_is_a_finite_number_above_zero(value):
    with pytest.raises(ValidationError, match="learning_rate"):
        OptimizerConfig(learning_rate=value)


def test_nothing_changes_after_reading():
    recipe = zero()
    with pytest.raises(ValidationError, match="frozen"):
        recipe.steps = 2
    with pytest.raises(ValidationError, match="frozen"):
        recipe.rollout.prompts = 2


@pytest.mark.parametrize("kind", STAGES.values())
def test_unknown_keys_are_refused(kind):
    with pytest.raises(ValidationError, match=r"speed\n  Extra inputs are not permitted"):
        kind.model_validate({"speed": 1})


@pytest.mark.parametrize(("stage", "kind"), STAGES.items())
def test_each_stage_has_its_recipe_under_its_name(stage, kind):
    assert kind.model_fields["stage"].default == stage
    with pytest.raises(ValidationError, match="stage"):
        kind.model_validate({"stage": "other"})


@pytest.mark.parametrize(
    ("prompts", "per_prompt", "parts", "nearest"),
    [
        (4, 4, 3, 2),  # of 1, 2, 4, 8, 16: 2 and 4 are as near, and the smaller is first
        (4, 4, 7, 8),
        (4, 4, 13, 16),
        (4, 4, 99, 16),
        (3, 5, 4, 3),  # of 1, 3, 5, 15
        (32, 16, 7, 8),
        (7, 3, 20, 21),
    ],
)
def test_minibatches_must_divide_the_rollouts(prompts, per_prompt, parts, nearest):
    said = (
        rf"{prompts} \* {per_prompt} = {prompts * per_prompt} rollouts do not divide into "
        rf"algorithm.minibatches={parts}; nearest valid: {nearest}\b"
    )
    with pytest.raises(ValidationError, match=said):
        zero(prompts, per_prompt, algorithm={"minibatches": parts})
    zero(prompts, per_prompt, algorithm={"minibatches": nearest})


def test_a_group_of_one_teaches_nothing():
    with pytest.raises(ValidationError, match=r"per_prompt=1 .* at least 2"):
        zero(per_prompt=1)
    assert zero(per_prompt=2).rollout.per_prompt == 2


def test_the_soft_penalty_fits_into_the_response():
    assert zero(max_tokens=8, reward={"overlong": 8}).reward.overlong == 8
    with pytest.raises(ValidationError, match=r"overlong=9 .*max_tokens=8.*nearest valid: 8"):
        zero(max_tokens=8, reward={"overlong": 9})


@pytest.mark.parametrize(("hidden", "heads", "nearest"), [(96, 5, 4), (96, 50, 48), (7, 3, 1)])
def test_heads_must_divide_the_width(hidden, heads, nearest):
    with pytest.raises(
        ValidationError, match=rf"heads={heads} .* hidden={hidden}; nearest: {nearest}\b"
    ):
        TinyModel(hidden=hidden, heads=heads)
    assert TinyModel(hidden=hidden, heads=nearest).heads == nearest


def test_leaving_one_out_needs_an_unscaled_advantage():
    assert AlgorithmConfig(advantage="leave_one_out", advantage_scale="none")
    with pytest.raises(ValidationError, match=r"scale=group.*set advantage_scale: none"):
        AlgorithmConfig(advantage="leave_one_out")


def test_a_reference_that_no_term_uses_cannot_be_replaced():
    assert AlgorithmConfig(kl_coefficient=0, reference_every=0).kl_coefficient == 0
    with pytest.raises(ValidationError, match="kl_coefficient is 0: no reference is used"):
        AlgorithmConfig(kl_coefficient=0, reference_every=5)


@pytest.mark.parametrize(
    ("field", "allowed", "refused"),
    [
        ("dual_clip", [None, 1.5, 3], [1.0, 0.5, "inf"]),
        ("mismatch_cap", [1.0, 2], [0.99, 0, -1]),
        ("clip_low", [0.2, 10], [0, -0.1]),
        ("kl_coefficient", [0, 0.1], [-0.1]),
        ("minibatches", [1, 16], [0, 1.5, "two"]),
    ],
)
def test_bounds_are_those_of_the_losses(field, allowed, refused):
    for value in allowed:
        made = AlgorithmConfig(old_logp="trainer", **{field: value})
        assert getattr(made, field) == value
    for value in refused:
        with pytest.raises(ValidationError, match=field):
            AlgorithmConfig(old_logp="trainer", **{field: value})


@pytest.mark.parametrize(
    ("name", "value", "supported"), [("dtype", "bfloat16", "'float32'"), ("sleep", True, "False")]
)
def test_the_torch_sampler_on_the_cpu_cannot_be_asked_for_what_a_card_does(name, value, supported):
    for others in (
        {"engine": "vllm"},
        {"engine": "torch"},
        {"engine": "torch", "device": "cuda:1"},
    ):
        assert getattr(SamplerConfig(**others, **{name: value}), name) == value
    said = f"{name}={value!r}: the torch sampler on the CPU supports {supported} only"
    with pytest.raises(ValidationError, match=said):
        SamplerConfig(engine="torch", device="cpu", **{name: value})


def test_the_device_of_the_sampler_is_known_and_not_vllm_s():
    with pytest.raises(ValidationError, match=r"device='gpu' is unknown.*Known: auto, cpu, cuda"):
        SamplerConfig(device="gpu")
    with pytest.raises(ValidationError, match=r"device='cuda': vLLM runs on the device that it"):
        SamplerConfig(engine="vllm", device="cuda")


def test_a_sampler_that_works_ahead_cannot_sleep_meanwhile():
    values = {
        "name": "n", "start": "s", "steps": 1, "optimizer": {"learning_rate": 1.0},
        "rollout": {"prompts": 1, "per_prompt": 16, "max_tokens": 4, "ahead": 1},
    }  # fmt: skip
    assert ZeroRecipe.model_validate(values).rollout.ahead
    with pytest.raises(ValidationError, match=r"sampler.sleep=True with rollout.ahead=1"):
        ZeroRecipe.model_validate(values | {"sampler": {"engine": "vllm", "sleep": True}})


@pytest.mark.parametrize(
    "corpus",
    [{"conversations": 1.1}, {"guess_errors": -0.1}, {"habits": (0.5, 0.5, 2)},
     {"step_errors": (-1, 0)}, {"worked": float("nan")}],
)  # fmt: skip
def test_shares_of_the_corpus_lie_between_zero_and_one(corpus):
    [name] = corpus
    with pytest.raises(ValidationError, match=rf"corpus.{name}=.* must be in \[0, 1\]"):
        base(corpus=corpus)


@pytest.mark.parametrize(
    ("corpus", "said"),
    [({"own_language": 0.9, "other_language": 0.9}, "own_language=0.9 .* exceed 1"),
     ({"programs": 0.6, "general": 0.5}, "programs=0.6 .* exceed 1"),
     ({"fact_lists": 0.5, "bare_sums": 0.5, "worked": 0.1}, "fact_lists=0.5 .* exceed 1"),
     ({"habits": (0, 0, 0)}, "habits: one of its shares must be above 0")],
)  # fmt: skip
def test_shares_of_one_whole_add_up_to_one_at_most(corpus, said):
    with pytest.raises(ValidationError, match=rf"corpus\.{said}"):
        base(corpus=corpus)
    assert base(corpus={"fact_lists": 0.18, "bare_sums": 0.08, "worked": 0.74})


def test_the_corpus_can_be_at_its_bounds():
    corpus = base(corpus={"conversations": 1, "worked": 0, "step_errors": (0, 1)}).corpus
    assert (corpus.conversations, corpus.worked, corpus.step_errors) == (1, 0, (0, 1))


@pytest.mark.parametrize("name", ["sft", "rejection_sft", "dpo", "online_dpo", "distill"])
def test_a_stage_without_a_sampler_between_its_steps_cannot_evaluate_there(name):
    recipe = read(f"tiny/{name}").model_dump()
    evaluation = recipe["evaluation"] | {"every": 5}
    refused = rf"evaluation\.every=5: {recipe['stage']} .*evaluates at its start and its end alone"
    with pytest.raises(ValidationError, match=refused):
        STAGES[recipe["stage"]].model_validate(recipe | {"evaluation": evaluation})


@pytest.mark.parametrize("name", ["zero", "preference_rl", "distill_on_policy"])
def test_a_stage_that_samples_each_step_evaluates_between_them(name):
    recipe = read(f"tiny/{name}").model_dump()
    evaluation = recipe["evaluation"] | {"every": 5}
    read_so = STAGES[recipe["stage"]].model_validate(recipe | {"evaluation": evaluation})
    assert read_so.evaluation.every == 5


def test_rollouts_need_room():
    with pytest.raises(ValidationError, match="max_tokens"):
        RolloutConfig(prompts=1, per_prompt=2, max_tokens=0)
    with pytest.raises(ValidationError, match="temperature"):
        RolloutConfig(prompts=1, per_prompt=2, max_tokens=1, temperature=0)


def test_a_recipe_survives_being_written_as_json():
    recipe = zero(algorithm={"dual_clip": 3, "minibatches": 8}, tensorboard=False)
    assert ZeroRecipe.model_validate_json(recipe.model_dump_json()) == recipe
    assert ZeroRecipe.model_validate(recipe.model_dump(mode="json")) == recipe
