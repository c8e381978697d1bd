"""The plan of a distillation: what it will do, and how much memory for how many parameters."""

import pytest

from pipeline.distill_config import DistillRecipe
from pipeline.distill_plan import distill_rows

PLAIN = {"name": "n", "start": "student", "teacher": "large", "optimizer": {"learning_rate": 1e-3}}


def rows(student=1000, teacher=5000, **changes):
    return dict(distill_rows(DistillRecipe.model_validate(PLAIN | changes), student, teacher))


def test_on_policy_by_hand():
    told = rows(
        method="on_policy",
        steps=10,
        rollout={"prompts": 6, "per_prompt": 4, "max_tokens": 50},
        minibatches=3,
    )
    assert told["teacher"] == "large, 5,000 parameters"
    assert told["loss"] == "reverse KL, from the sampled token"
    assert told["rollouts a step"] == "6 prompts x 4 responses = 24"
    assert told["optimizer steps"] == "3 a rollout of 8 responses each"
    assert told["whole run"] == "10 steps = 240 rollouts"
    assert told["memory"].startswith("20 bytes a parameter")
    assert f"= {(20 * 1000 + 4 * 5000) / 2**20:,.1f} MiB" in told["memory"]


def test_adapters_leave_four_bytes_a_parameter():
    told = rows(method="on_policy", steps=1, trainer={"lora": {"rank": 2}})
    assert told["memory"].startswith("8 bytes a parameter (weights, adapters beside them: 4, ")


def test_a_divergence_is_named_with_its_beta():
    told = rows(method="on_policy", steps=1, divergence="jsd", beta=0.25)
    assert told["loss"] == "generalised JSD, beta 0.25, over the vocabulary"
    assert rows(method="on_policy", steps=1, divergence="reverse_kl")["loss"].startswith("reverse_")


def test_logits_tell_what_is_kept_on_disk(tmp_path):
    data = tmp_path / "a.jsonl"
    data.write_text("")
    told = rows(method="logits", top_k=10, data={"source": str(data), "held_out": 4, "rows": 1500})
    assert told["data"] == f"1,500 rows of {data}"
    assert told["kept of the teacher"].endswith("84 bytes on disk")
    assert told["memory"].startswith("16 bytes a parameter")


@pytest.mark.parametrize(
    ("student", "teacher", "missing"), [(None, 5, "student"), (5, None, "large")]
)
def test_a_model_that_is_not_here_is_said_to_be_missing(student, teacher, missing):
    data = {"source": "nowhere.jsonl", "held_out": 4}
    told = rows(student, teacher, method="logits", data=data)
    assert told["memory"] == f"unknown: {missing} is not here to be measured"
    assert told["data"] == "every row of nowhere.jsonl (not here)"


def test_verified_samples_by_hand():
    told = rows(
        teacher=None,
        method="sft",
        data={"source": "nowhere.jsonl", "held_out": 4},
        epochs=3,
        optimizer={"learning_rate": 1e-4, "schedule": "cosine", "floor": 0.1},
        **{"batch": 64},
    )
    assert told["learning rate"] == "0.0001, on a cosine to 1e-05"
    assert told["optimizer steps"] == "of 64 rows each, 3 epochs"
    assert "kept of the teacher" not in told
