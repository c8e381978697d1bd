"""The positions of models, with RoPE scaling, and recipes that need more of them."""

import json

import pytest
import yaml
from transformers import LlamaConfig

from veriloop.pipeline.config.checkpoints import positions_of
from veriloop.pipeline.config.load import FOLDER, read, validate
from veriloop.pipeline.config.r1_stages import steps
from veriloop.pipeline.dry_run.positions import (
    BASE_POSITIONS,
    position_refusals,
    require_positions,
)
from veriloop.pipeline.errors import RecipeError
from veriloop.stages.cli import main

YARN = {"factor": 4.0, "original_max_position_embeddings": 32_768}


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"n_positions": 1024}, 1024),
        ({"text_config": {"max_position_embeddings": 99}, "max_position_embeddings": 7}, 99),
        ({"max_position_embeddings": 32_768, "rope_scaling": {"type": "yarn", **YARN}}, 131_072),
        ({"max_position_embeddings": 131_072, "rope_parameters": {"rope_type": "yarn", **YARN}},
         131_072),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 2}}, 8192),
        ({"max_position_embeddings": 131_072, "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}},
         131_072),
        ({"max_position_embeddings": 131_072, "original_max_position_embeddings": 4096,
          "rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [2]}}, 4096),
        ({"max_position_embeddings": 131_072, "rope_parameters": {
            "rope_type": "longrope", "original_max_position_embeddings": 8192}}, 8192),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "dynamic", "factor": 2}}, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": None}, 4096),
        ({"max_position_embeddings": 8192, "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 2.0},
            "sliding_attention": {"rope_type": "default"}}}, 16_384),
        ({"model_type": "bloom"}, None),
    ],
)  # fmt: skip
def test_positions_are_those_of_the_config_with_its_rope_scaling(config, positions):
    assert positions_of(config) == positions


def test_positions_are_the_same_in_a_config_that_transformers_has_read():
    config = {"max_position_embeddings": 32_768, "rope_scaling": {"rope_type": "yarn", **YARN}}
    assert positions_of(LlamaConfig(**config).to_dict()) == positions_of(config) == 131_072


def test_the_base_recipes_model_has_the_positions_that_are_planned(tiny_checkpoint):
    config = json.loads((tiny_checkpoint() / "config.json").read_text())  # by base.untrained
    assert positions_of(config) == BASE_POSITIONS


@pytest.mark.parametrize("dry", [True, False])
def test_a_rollout_that_the_model_has_no_positions_for_is_refused(
    dry, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    words = ["zero", "tiny/zero", "--rollout.max-tokens", "4000", *["--dry-run"] * dry]
    assert main(words) == 2 and list(tmp_path.iterdir()) == []
    assert (
        "rollout.max_prompt=256 + rollout.max_tokens=4,000 = 4,256 tokens, and start: "
        "recipes/tiny/base.yaml has 1,024 positions; lower one of them" in capsys.readouterr().err
    )


def recipe_of(name, **changes):
    values = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return validate(values | changes, "mine")


@pytest.mark.parametrize(
    ("name", "key"), [("tiny/rejection_sft", "teacher"), ("tiny/distill_on_policy", "teacher"),
                      ("tiny/collect_preferences", "start")]
)  # fmt: skip
def test_a_model_in_a_folder_has_the_positions_of_its_config(name, key, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 367}))
    recipe = recipe_of(name, **{key: str(tmp_path)})
    with pytest.raises(RecipeError, match=f"= 368 tokens, and {key}: .* has 367 positions"):
        require_positions(recipe)
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 368}))
    require_positions(recipe)


@pytest.mark.parametrize("longest", [1024, 1025])
def test_rows_longer_than_the_model_are_refused(longest, tmp_path):
    recipe = read("tiny/sft")
    start = tmp_path / "model"
    start.mkdir()
    (start / "config.json").write_text(json.dumps({"n_positions": 1024}))
    data = recipe.data.model_copy(update={"max_tokens": longest})
    asked = recipe.model_copy(update={"start": str(start), "data": data})
    if longest <= 1024:
        require_positions(asked)
        return
    with pytest.raises(RecipeError, match=r"data.max_tokens=1,025 = 1,025 tokens, and start: "):
        require_positions(asked)


def test_on_policy_distillation_reads_no_rows(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 400}))
    require_positions(recipe_of("tiny/distill_on_policy", start=str(tmp_path)))
    logits = recipe_of("tiny/distill_logits", teacher=str(tmp_path))
    logits = logits.model_copy(update={"data": logits.data.model_copy(update={"max_tokens": 401})})
    with pytest.raises(RecipeError, match=r"tokens, and teacher: .* has 400 positions"):
        require_positions(logits)


@pytest.mark.parametrize(
    "name", ["tiny/dpo", "tiny/reward_model", "tiny/iterative_dpo", "tiny/online_dpo"]
)
def test_pairs_longer_than_the_model_are_refused(name, tmp_path):
    lengths = {"max_prompt": 300, "max_completion": 500}
    recipe = recipe_of(name, start=str(tmp_path))
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update=lengths)})
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 799}))
    needed = r"data.max_prompt=300 \+ data.max_completion=500 = 800 tokens, and start: .* has 799"
    with pytest.raises(RecipeError, match=needed):
        require_positions(recipe)
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 800}))
    require_positions(recipe)


def test_a_critic_of_its_own_has_positions_for_the_rollouts(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 367}))
    recipe = recipe_of("tiny/zero", algorithm={"preset": "ppo", "critic_start": str(tmp_path)})
    with pytest.raises(RecipeError, match=r"= 368 tokens, and algorithm.critic_start: .* has 367 "):
        require_positions(recipe)


def test_an_offline_stage_samples_nothing(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 512}))
    offline = recipe_of("tiny/dpo", start=str(tmp_path), problems={})
    rollout = offline.rollout.model_copy(update={"max_tokens": 4000})
    require_positions(offline.model_copy(update={"rollout": rollout}))
    require_positions(recipe_of("tiny/zero", start=str(tmp_path / "nowhere")))


def test_a_stage_of_a_run_is_measured_against_the_base_that_it_descends_from():
    recipe = read("tiny/r1")
    assert position_refusals(steps(recipe), steps(recipe)) == []
    last = recipe.stages[-1].name
    longer = steps(recipe, {"reasoning_rl": {"rollout.max_tokens": 4000}})
    refused = position_refusals(longer, longer)
    assert len(refused) == 1 and last != "reasoning_rl"
    assert refused[0].startswith("stage reasoning_rl: ") and "cold_start.checkpoint" in refused[0]
