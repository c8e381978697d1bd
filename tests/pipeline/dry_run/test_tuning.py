"""Plans of distillation and SFT: sizes and memory, by hand."""

import pytest

from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import steps
from veriloop.pipeline.config.sections import LoraConfig
from veriloop.pipeline.dry_run.plan import model_refusals, plan
from veriloop.pipeline.dry_run.tuning import distill_rows
from veriloop.stages.cli import main

PLAIN = {"name": "n", "start": "student", "teacher": "large", "optimizer": {"learning_rate": 1e-3}}


def rows(**changes):
    return dict(distill_rows(DistillRecipe.model_validate(PLAIN | changes)))


def test_on_policy_by_hand():
    told = rows(
        method="on_policy",
        steps=10,
        rollout={"prompts": 6, "per_prompt": 4, "max_tokens": 50},
        minibatches=3,
    )
    assert told["teacher"] == "large"
    assert told["loss"] == "reverse KL, estimated from the sampled token"
    assert told["rollouts a step"] == "6 prompts x 4 responses = 24"
    assert told["optimizer steps"] == "3 a step, of 8 responses each"
    assert told["whole run"] == "10 steps = 240 rollouts"


def test_a_divergence_is_named_with_its_beta():
    told = rows(method="on_policy", steps=1, divergence="jsd", beta=0.25)
    assert told["loss"] == "generalised JSD, beta 0.25, over the vocabulary"
    assert rows(method="on_policy", steps=1, divergence="reverse_kl")["loss"].startswith("reverse_")


def test_logits_tell_what_is_kept_on_disk(tmp_path):
    data = tmp_path / "a.jsonl"
    data.write_text("")
    told = rows(method="logits", top_k=10, data={"source": str(data), "held_out": 4, "rows": 1500})
    assert told["data"] == f"1,500 rows of {data}"
    assert told["teacher's scores"].endswith("84 bytes on disk")


@pytest.mark.parametrize("dry", [True, False])
def test_more_ids_of_the_teacher_than_the_student_has_are_refused_before_the_run(
    dry, tiny_checkpoint, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text("")
    folder = str(tiny_checkpoint())
    words = ["distill", "tiny/distill_logits", "--data.source", "a.jsonl", "--top-k", "400"]
    words += ["--start", folder, "--teacher", folder, *["--dry-run"] * dry]
    assert main(words) == 2
    assert "top_k=400: the student has 400 ids; at most 399" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_student_that_an_earlier_stage_makes_has_the_ids_of_its_start(tmp_path):
    base = {"name": "base", "recipe": "tiny/student"}
    scored = {
        "name": "logits",
        "recipe": "tiny/distill_logits",
        "take": {"start": "base.checkpoint"},
        "set": {"top_k": 5000, "teacher": "large", "data.source": "a.jsonl"},
    }
    run = R1Recipe.model_validate({"stage": "r1", "name": "n", "stages": [base, scored]})
    everything = steps(run)
    (refused,) = model_refusals(everything, everything)
    assert refused.startswith("stage logits: top_k=5000: the student has")


def test_a_file_that_is_not_here_is_said_to_be_missing():
    told = rows(method="logits", data={"source": "nowhere.jsonl", "held_out": 4})
    assert told["data"] == "every row of nowhere.jsonl (not found)"


def test_an_output_of_another_stage_is_not_said_to_be_missing():
    told = rows(method="logits", data={"source": "rejection_sft.data", "held_out": 4})
    assert told["data"] == "every row of rejection_sft.data"


def test_verified_samples_by_hand():
    told = rows(
        teacher="",
        method="sft",
        data={"source": "nowhere.jsonl", "held_out": 4},
        epochs=3,
        optimizer={"learning_rate": 1e-4, "schedule": "cosine", "floor": 0.1},
        **{"batch": 64},
    )
    assert told["learning rate"] == "0.0001, on a cosine to 1e-05"
    assert told["optimizer steps"] == "of 64 rows each, 3 epochs"
    assert "teacher's scores" not in told


def lines(recipe):
    found = [line.strip().split("  ", 1) for line in plan(recipe).splitlines() if line]
    return {name: rest.strip() for name, rest in found}


def test_a_file_its_steps_and_its_cosine():
    told = lines(read("tiny/sft"))
    assert told["data"] == "448 rows of arithmetic"
    assert told["optimizer steps"] == "of 32 rows each, 3 epochs"
    assert told["learning rate"] == "0.001, on a cosine to 0.0001"
    assert told["held out"] == "48 rows"
    assert told["evaluation"].startswith("256 held-out problems of arithmetic x (4 samples")
    assert told["parameters"] == "578,400"


def test_how_much_is_sampled_and_at_most_kept():
    told = lines(read("tiny/cold_start"))
    assert told["sampled"] == "640 questions x 8 answers = 5,120"
    assert told["kept"].startswith("at most 400:") and told["teacher"] == "models/zero"
    told = lines(read("tiny/rejection_sft"))
    assert told["kept"].startswith("at most 1,600:")
    assert told["general"].startswith("533 rows at most, one to 3 of reasoning")


def test_the_papers_numbers_are_the_papers():
    for name, epochs in (("paper/cold_start", 3), ("paper/rejection_sft", 2)):
        recipe = read(name)
        told = lines(recipe)
        assert told["learning rate"] == "5e-05, on a cosine to 5e-06"
        assert told["optimizer steps"] == f"of 128 rows each, {epochs} epochs"
        assert recipe.data.max_tokens == 32_768 and recipe.collect.temperature == 1.0
        assert told["memory"].endswith("for models/base")
    assert read("paper/rejection_sft").general.reasoning == 3


def test_adapters_leave_the_weights_alone_to_be_held():
    recipe = read("tiny/sft")
    trainer = recipe.trainer.model_copy(update={"lora": LoraConfig(rank=4)})
    told = lines(recipe.model_copy(update={"trainer": trainer}))
    assert told["- weights"].startswith("2.3 MiB") and told["- gradients"].startswith("0.1 MiB")


def test_what_distillation_asks_on_held_out_problems_is_told():
    asked = "30 held-out problems of arithmetic x (2 samples + 1 greedy) at both ends"
    evaluation = {"problems": 30, "samples": 2}
    offline = {"method": "logits", "data": {"source": "nowhere.jsonl", "held_out": 4}}
    assert rows(**offline, evaluation=evaluation)["evaluation"] == asked
    assert "evaluation" not in rows(**offline, examine=False)
    between = {"every": 5, "during": 10}
    planned = rows(method="on_policy", steps=20, evaluation=evaluation | between)
    assert planned["evaluation"] == f"{asked}, 10 of them x 1 sample every 5 steps between, 3 times"


def test_a_preference_stage_that_samples_problems_tells_what_it_asks():
    asked = "256 held-out problems of arithmetic x (4 samples + 1 greedy) at both ends"
    recipe = read("tiny/online_dpo")
    assert recipe.problems and lines(recipe)["evaluation"] == asked
    offline = recipe.model_copy(
        update={"problems": {}, "schedule": type(recipe.schedule)(name="offline")}
    )
    assert "evaluation" not in lines(offline)
