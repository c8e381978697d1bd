"""What the page about other trainers says of recipes and of TRL is what stands in their schemas."""

import dataclasses
import importlib.util
import re
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from veriloop.pipeline.config.load import validate
from veriloop.pipeline.config.rl import ZeroRecipe

TEXT = (Path(__file__).parents[2] / "docs/coming_from.md").read_text()
SETTING = re.compile(r"`([\w.]+)` \((?:`(.*?)`|(required))[):,]")
TABLES = re.findall(r"^\| veriloop \| TRL \|.*?(?=\n\n)", TEXT, re.MULTILINE | re.DOTALL)
ROWS = [line.strip("| ").split(" | ") for table in TABLES for line in table.splitlines()[2:]]
OURS = [setting for row in ROWS for setting in SETTING.findall(row[0])]
TRL = [setting for row in ROWS for setting in SETTING.findall(row[1])]

with_trl = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="no TRL")


def field(key):
    """The field of a recipe's schema. Raises KeyError for a key that it does not have."""
    *sections, name = key.split(".")
    kind = ZeroRecipe
    for section in sections:
        kind = kind.model_fields[section].annotation
    return kind.model_fields[name]


def default(key):
    found = field(key)
    return "required" if found.is_required() else str(found.get_default(call_default_factory=True))


def block(language):
    (text,) = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    return text


def test_every_row_is_read():
    assert len(ROWS) > 35 and all(len(row) == 5 for row in ROWS)
    assert all(SETTING.search(row[0]) for row in ROWS)
    assert len(OURS) == sum(len(re.findall(r"`[a-z_.]+\.?[a-z_]*` \(", row[0])) for row in ROWS)


@pytest.mark.parametrize(("key", "value", "required"), OURS)
def test_a_key_is_in_the_schema_with_that_default(key, value, required):
    assert default(key) == (required or value)


def test_every_key_that_the_prose_names_is_in_the_schema():
    prose = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    sections = "rollout|algorithm|optimizer|sampler|checkpoint"
    theirs = {key for row in ROWS for key in re.findall(r"`([\w.]+)`", " ".join(row[1:]))}
    for key in set(re.findall(rf"`((?:{sections})\.\w+)`", prose)) - theirs:
        assert field(key)


def test_a_key_that_no_recipe_has_is_noticed():
    with pytest.raises(KeyError):
        field("algorithm.beta")


@with_trl
@pytest.mark.slow
def test_every_setting_of_trl_has_that_default():
    from trl import GRPOConfig

    assert f"TRL {version('trl')}" in TEXT
    real = {f.name: f.default for f in dataclasses.fields(GRPOConfig)}
    assert len(TRL) > 25
    assert [(name, value) for name, value, _ in TRL if str(real[name]) != value] == []


@with_trl
@pytest.mark.slow
def test_the_example_is_the_same_run_in_both():
    from trl import GRPOConfig  # noqa: F401  the page's code imports it

    names = {}
    exec(block("python").replace("output_dir", "use_cpu=True, bf16=False, output_dir"), names)
    theirs, ours = names["config"], validate(yaml.safe_load(block("yaml")), "the page")
    rollouts, algorithm = ours.rollout, ours.algorithm
    assert theirs.generation_batch_size == rollouts.prompts * rollouts.per_prompt
    assert theirs.num_generations == rollouts.per_prompt
    assert theirs.max_completion_length == rollouts.max_tokens
    assert theirs.temperature == rollouts.temperature
    assert theirs.steps_per_generation == algorithm.minibatches
    assert theirs.max_steps == ours.steps * algorithm.minibatches
    assert theirs.save_steps == ours.checkpoint.every * algorithm.minibatches
    assert theirs.scale_rewards == algorithm.advantage_scale
    assert (theirs.epsilon, theirs.epsilon_high) == (algorithm.clip_low, algorithm.clip_high)
    assert theirs.beta == algorithm.kl_coefficient
    assert (theirs.use_bias_correction_kl, algorithm.kl_estimator) == (False, "k3")
    assert (theirs.loss_type, algorithm.aggregation) == ("grpo", "sequence_mean")
    optimizer = ours.optimizer
    assert theirs.learning_rate == optimizer.learning_rate
    assert theirs.lr_scheduler_type == optimizer.schedule
    assert (theirs.adam_beta1, theirs.adam_beta2) == optimizer.betas
    assert theirs.weight_decay == optimizer.weight_decay
    assert theirs.max_grad_norm == optimizer.max_grad_norm
