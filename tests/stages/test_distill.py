"""Distillation as a stage: each method nears the teacher, and is resumed to the same bits."""

import json
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM

from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.errors import RecipeError, Stopped
from veriloop.pipeline.model.policy import load_policy, load_tokenizer, save_policy
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.probe import compute_dtype, supports_shared_prompts
from veriloop.pipeline.rl.metrics import reproducible
from veriloop.pipeline.runs.record import read_metrics
from veriloop.stages import distill

pytestmark = pytest.mark.usefixtures("one_pool")
OFFLINE = {"data": {"source": "arithmetic", "rows": 24, "held_out": 4}, "batch": 8}
METHODS = {
    "sft": {"method": "sft", **OFFLINE},
    "logits": {"method": "logits", "top_k": 40, **OFFLINE},
    "sampled": {"method": "on_policy", "steps": 3},
    "reverse_kl": {"method": "on_policy", "steps": 3, "divergence": "reverse_kl"},
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(distill, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def teacher(tiny_checkpoint, tmp_path):
    """Another model with the student's tokenizer."""
    folder, start = tmp_path / "teacher", tiny_checkpoint()
    model = load_policy(start)
    noise = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(parameter.std() * torch.randn(parameter.shape, generator=noise))
    save_policy(model, load_tokenizer(start), folder)
    return folder


@pytest.fixture
def recipe(tiny_checkpoint, teacher):
    """Factory of small recipes of a method."""

    def build(name, **changes):
        values = {
            "name": "test",
            "start": str(tiny_checkpoint()),
            "teacher": str(teacher),
            "optimizer": {"learning_rate": 3e-3},
            "sampler": {"engine": "torch"},
            "evaluation": {"problems": 2, "samples": 1},
            "checkpoint": {"every": 1, "keep": 99},
            "tensorboard": False,
            **METHODS[name],
        }
        if values["method"] == "on_policy":
            values["rollout"] = {"prompts": 4, "per_prompt": 2, "max_tokens": 10}
        else:
            values["max_tokens"] = 8
        return DistillRecipe.model_validate(values | changes)

    return build


def weights(folder):
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def same(one, other):
    return all(torch.equal(value, other[name]) for name, value in one.items())


def rows(output):
    found = read_metrics(output / "distill" / "metrics.jsonl")
    return [reproducible(row) for row in found]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logits", pytest.param("sft", marks=pytest.mark.slow)])
def test_written_answers_bring_the_student_nearer(recipe, tmp_path, cache, name, stage):
    told = recipe(name, epochs=4)
    made = distill.run(told, tmp_path / "run", resume=False)
    noted = stage(tmp_path / "run")
    assert (noted["name"], noted["status"]) == ("distill", "done")
    outputs = noted["outputs"]
    assert outputs["checkpoint"] == str(made) and outputs["method"] == told.method
    before, after = noted["before"], noted["after"]
    assert {"kl_to_teacher", "eval_loss", "pass@1", "mean_length"} <= after.keys()
    better = "kl_to_teacher" if name == "logits" else "eval_loss"
    assert after[better] < 0.9 * before[better]
    curve = rows(tmp_path / "run")
    assert len(curve) == 12 and curve[-1]["loss"] < curve[0]["loss"]
    assert [row["step"] for row in curve if "kl_to_teacher" in row] == [3, 6, 9, 12]
    (kept,) = cache.iterdir()  # one pass: of logits every row, of sft only those held out
    assert sum(len(torch.load(part)) for part in kept.glob("*.pt")) >= (
        20 if name == "logits" else 4
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sampled", "reverse_kl"])
def test_own_answers_bring_the_student_nearer(recipe, tmp_path, name, stage):
    told = recipe(name, steps=10, checkpoint={"every": 0})
    distill.run(told, tmp_path / "run", resume=False)
    curve, noted = rows(tmp_path / "run"), stage(tmp_path / "run")
    first, last = ([row["kl_to_teacher"] for row in part] for part in (curve[:3], curve[-3:]))
    assert sum(last) < sum(first)
    assert all(row["sync/max"] <= 1e-4 for row in curve)
    assert curve[1]["sync/moved"] > 1e-4  # a lost sync would have been noticed
    assert {"pass@1", "format", "mean_length"} <= noted["after"].keys()
    assert (tmp_path / "run/distill/rollouts/step_000010.parquet").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_run_that_stops_after_each_step_goes_the_same_way(
    recipe, tmp_path, stopping, name, stage
):
    told = recipe(name, **({"epochs": 1} if name in ("sft", "logits") else {}))
    whole = distill.run(told, tmp_path / "whole", resume=False)
    steps = len(rows(tmp_path / "whole"))
    assert steps == 3
    with stopping():
        for at in range(1, steps):
            with pytest.raises(Stopped, match=f"stopped after step {at} of 3"):
                distill.run(told, tmp_path / "broken", resume=at > 1)
    broken = distill.run(told, tmp_path / "broken", resume=True)
    assert rows(tmp_path / "broken") == rows(tmp_path / "whole")
    assert same(weights(broken), weights(whole))
    assert stage(tmp_path / "broken")["after"] == stage(tmp_path / "whole")["after"]
    assert distill.run(told, tmp_path / "broken", resume=True) == broken  # nothing again


@pytest.mark.parametrize("name", ["logits", "sampled"])
def test_a_teacher_that_is_not_there_is_refused(recipe, tmp_path, name):
    told = recipe(name, teacher=str(tmp_path / "nowhere"))
    with pytest.raises(RecipeError, match="nowhere holds no Hugging Face checkpoint"):
        distill.run(told, tmp_path / "run", resume=False)


def test_a_top_k_as_large_as_the_vocabulary_is_refused(recipe, tmp_path):
    with pytest.raises(RecipeError, match="top_k=400: the student has 400 ids; at most 399"):
        distill.run(recipe("logits", top_k=400), tmp_path / "run", resume=False)


@pytest.mark.slow
def test_verified_samples_need_no_teacher(recipe, tmp_path, cache, stage):
    distill.run(recipe("sft", teacher="", epochs=1), tmp_path / "run", resume=False)
    noted = stage(tmp_path / "run")
    assert "kl_to_teacher" not in noted["after"] and "eval_loss" in noted["after"]
    assert not cache.exists()


def test_a_teacher_is_frozen(tiny_checkpoint):
    folder = tiny_checkpoint()
    teacher = distill.load_teacher(str(folder), folder, load_tokenizer(folder), TrainerConfig())
    assert not teacher.training and not any(p.requires_grad for p in teacher.parameters())


def test_a_teacher_computes_as_the_student_but_without_adapters(tiny_checkpoint):
    folder = tiny_checkpoint()
    trainer = TrainerConfig.model_validate(
        {"compute": "bfloat16", "gradient_checkpointing": True, "lora": {"rank": 2}}
    )
    teacher = distill.load_teacher(str(folder), folder, load_tokenizer(folder), trainer)
    student = prepare(load_policy(folder), trainer)
    assert compute_dtype(teacher.base_model) == compute_dtype(student.base_model) == torch.bfloat16
    assert supports_shared_prompts(student.base_model, teacher.base_model)
    assert not any("lora" in name for name, _ in teacher.named_parameters())


def test_a_folder_without_a_checkpoint_is_refused(tiny_checkpoint, tmp_path):
    folder = tiny_checkpoint()
    with pytest.raises(RecipeError, match=rf"teacher: {tmp_path} holds no Hugging Face checkpoint"):
        distill.load_teacher(str(tmp_path), folder, load_tokenizer(folder), TrainerConfig())


def test_another_tokenizer_is_refused_with_both_named(tiny_checkpoint, tmp_path):
    folder, other = tiny_checkpoint(), tmp_path / "other"
    shutil.copytree(folder, other)
    values = json.loads((other / "tokenizer.json").read_text())
    vocabulary = values["model"]["vocab"]
    one, two = list(vocabulary)[-2:]
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    (other / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(RecipeError) as told:
        distill.load_teacher(str(other), folder, load_tokenizer(folder), TrainerConfig())
    said = str(told.value)
    assert f"teacher {other} and student {folder} have different tokenizers" in said
    assert "400 and 400 tokens" in said and "is id " in said and "method: sft" in said
