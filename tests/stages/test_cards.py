"""Every stage that trains leaves a model card in its last checkpoint, true to its record."""

import json
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.load import validate
from veriloop.pipeline.config.preference import PreferenceRecipe, RewardModelRecipe
from veriloop.pipeline.config.pretraining import BaseRecipe
from veriloop.pipeline.config.sft import ColdStartRecipe, SFTRecipe
from veriloop.pipeline.report import model_card
from veriloop.pipeline.report.markdown import table
from veriloop.pipeline.runs.checkpoint import load_state
from veriloop.pipeline.runs.lineage import checkpoint_hash
from veriloop.pipeline.runs.record import read_metrics
from veriloop.stages import base, cold_start, distill, preference, reward_model, sft, zero
from veriloop.verifiers.registry import fingerprint


@pytest.fixture
def values(tiny_checkpoint):
    """What every recipe here has."""
    return {
        "name": "test/one",
        "start": str(tiny_checkpoint()),
        "seed": 7,
        "optimizer": {"learning_rate": 3e-3},
        "checkpoint": {"every": 0},
        "tensorboard": False,
    }


@pytest.fixture
def learned(values):
    """A recipe of fine-tuning."""
    data = {"source": "arithmetic", "rows": 20, "held_out": 4}
    return SFTRecipe.model_validate(values | {"data": data, "batch": 8, "epochs": 1})


def read(made):
    """The card of a checkpoint, as huggingface_hub reads it."""
    return ModelCard.load(made / "README.md")


@pytest.mark.slow
def test_fine_tuning_tells_its_recipe_its_rows_and_how_to_make_it_again(learned, tmp_path, stage):
    made = sft.run(learned, tmp_path / "mine", resume=False)
    card, told = read(made), stage(tmp_path / "mine")
    assert card.data.to_dict() == {
        "library_name": "transformers",
        "model_name": "test/one",
        "pipeline_tag": "text-generation",
        "tags": ["veriloop", "sft"],
    }
    text = card.text
    assert text.strip().startswith("# test/one\n\nSupervised fine-tuning on a file. ")
    assert "Made by the stage sft of the run mine, after 2 steps." in text
    after = f"{told['after']['eval_loss']:.4g}"
    assert f"| eval\\_loss | {told['before']['eval_loss']:.4g} | {after} |" in text
    assert f"sha256 {told['lineage']['recipe']}." in text and "| batch | 32 | 8 |" in text
    assert "| optimizer.learning\\_rate | – | 0.003 |" in text and "| seed | 0 | 7 |" in text
    assert "epochs" in text and "checkpoint.keep" not in text  # by default it stays untold
    assert "Of 20 rows 16 are learned from; left out: 4 held out." in text
    assert "- seeds: seed 7, data.seed 0" in text and "- versions: python 3." in text
    assert told["lineage"]["inputs"]["start"]["sha256"][:10] in text
    assert "One run from one seed" not in text  # no interval is there


@pytest.mark.slow
def test_a_card_is_no_part_of_what_a_checkpoint_is_known_by(learned, tmp_path, stage):
    made = sft.run(learned, tmp_path, resume=False)
    hashed = checkpoint_hash(made)
    assert hashed in (made / "README.md").read_text()
    assert hashed == stage(tmp_path)["lineage"]["outputs"]["checkpoint"]["sha256"]
    (made / "README.md").unlink()
    assert checkpoint_hash(made) == hashed and load_state(made)["done"] == 2


@pytest.mark.slow
def test_a_card_that_cannot_be_written_is_reported_and_written_on_resume(
    learned, tmp_path, monkeypatch, capsys, stage
):
    def broken(*_):
        raise KeyError("a bug")

    monkeypatch.setattr(model_card, "card", broken)
    made = sft.run(learned, tmp_path, resume=False)
    assert "no model card of sft: KeyError: 'a bug'" in capsys.readouterr().err
    assert stage(tmp_path)["status"] == "done" and not (made / "README.md").exists()
    monkeypatch.undo()
    assert sft.run(learned, tmp_path, resume=True) == made
    assert checkpoint_hash(made) in (made / "README.md").read_text()


@pytest.mark.slow
def test_reinforcement_learning_tells_intervals_verifiers_and_what_was_asked(
    values, tmp_path, stage, one_pool
):
    more = {
        "stage": "zero",
        "steps": 2,
        "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12},
        "algorithm": {"preset": "dapo", "minibatches": 2},
        "reward": {"control": "random"},
        "sampler": {"engine": "torch"},
        "evaluation": {"problems": 4, "samples": 2},
    }
    made = zero.run(validate(values | more, "here"), tmp_path, resume=False)
    card, told = read(made), stage(tmp_path)
    assert card.data.tags == ["veriloop", "zero", "dapo"]
    low, high = told["after"]["format 95%"]
    assert f"{told['after']['format']:.3f} ({low:.3f} to {high:.3f}) |" in card.text
    assert "4 problems, 2 samples each, temperature 1," in card.text
    judged = told["lineage"]["verifiers"]
    assert len(judged) == 3
    assert all(
        table((name, version), []).split("\n")[0] in card.text for name, version in judged.items()
    )
    asked = sum(row["questions"] for row in read_metrics(tmp_path / "zero/metrics.jsonl"))
    assert f"{asked:.0f} questions were asked; 0 answers could not be judged" in card.text
    assert "- sampler: torch" in card.text and "| algorithm.preset" in card.text
    assert "trained on random rewards: it is meant to learn nothing" in card.text
    assert "held-out questions of arithmetic alone" in card.text and "One run from one" in card.text


@pytest.mark.slow
def test_a_reward_model_is_a_classifier(values, tmp_path):
    recipe = RewardModelRecipe.model_validate(values | {"data": {"rows": 24, "held_out": 8}})
    card = read(reward_model.run(recipe, tmp_path, resume=False))
    assert card.data.pipeline_tag == "text-classification"
    assert "Of 32 rows 24 are learned from; left out: 8 held out." in card.text
    assert "| accuracy | " in card.text


@pytest.mark.slow
def test_preferences_and_distillation_name_their_loss_and_method(values, tmp_path, stage):
    asked = PreferenceRecipe.model_validate(
        values | {"loss": {"name": "simpo"}, "data": {"rows": 8, "held_out": 4}, "batch": 4}
    )
    card = read(preference.run(asked, tmp_path / "one", resume=False))
    assert card.data.tags == ["veriloop", "preference", "simpo"]
    assert "Of 12 rows 8 are learned from" in card.text
    data = {"source": "arithmetic", "rows": 20, "held_out": 4}
    asked = DistillRecipe.model_validate(
        values | {"method": "sft", "data": data, "examine": False, "epochs": 1}
    )
    card = read(distill.run(asked, tmp_path / "two", resume=False))
    assert card.data.tags == ["veriloop", "distill", "sft"]


@pytest.mark.slow
def test_rows_that_a_teacher_wrote_come_with_their_reasons_sources_and_judges(
    collected_values, tmp_path, stage
):
    recipe = ColdStartRecipe.model_validate(collected_values)
    card = read(cold_start.run(recipe, tmp_path, resume=False))
    assert "Of 24 rows 12 are learned from; left out: 12 wrong." in card.text
    assert "sources: arithmetic 12" in card.text
    assert f"| number | {fingerprint(['number'])['number']} |" in card.text
    assert "| cold\\_start | cold\\_start | teacher | " in card.text


def test_a_base_model_is_carded_where_it_is_cached(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "CACHE", tmp_path)
    monkeypatch.setattr(base, "step_accuracy", lambda _: 0.875)
    shape = {"hidden": 32, "layers": 1, "heads": 1, "feed_forward": 48, "vocabulary": 400}
    small = {"steps": 3, "tokens_per_step": 256, "model": shape, "tokenizer_documents": 300}
    rest = {"name": "test/base", "optimizer": {"learning_rate": 4e-3}}
    recipe = BaseRecipe.model_validate(small | rest)
    made = base.ensure(recipe)
    card, facts = read(made), json.loads((made / "base.json").read_text())
    assert card.data.tags == ["veriloop", "base"]
    assert "Pre-training of the tiny base model." in card.text
    assert "| step\\_accuracy | – | 0.875 |" in card.text and facts["sha256"] in card.text
    assert f"    {facts['command']}" in card.text and "| model.hidden | 96 | 32 |" in card.text


@pytest.mark.slow
def test_a_chain_of_stages_is_described_from_its_first_start(learned, tmp_path, values):
    first = sft.run(learned, tmp_path, resume=False, name="first")
    again = learned.model_copy(update={"start": str(first), "name": "test/two"})
    text = read(sft.run(again, tmp_path, resume=False, name="second")).text
    assert "| first | sft | start | " in text
    assert "| second | sft | start | first.checkpoint | " in text


@pytest.mark.slow
def test_a_start_in_the_cache_of_the_hub_is_named_as_the_hub_has_it(learned, tmp_path):
    home = tmp_path / "hub/models--Some-Org--Tiny-1.5/snapshots/0a1b"
    home.parent.mkdir(parents=True)
    home.symlink_to(Path(learned.start))
    first = sft.run(
        learned.model_copy(update={"start": str(home)}), tmp_path, resume=False, name="first"
    )
    assert read(first).data.base_model == "Some-Org/Tiny-1.5"
    again = learned.model_copy(update={"start": str(first)})
    later = sft.run(again, tmp_path, resume=False, name="later")
    assert read(later).data.base_model == "Some-Org/Tiny-1.5"
