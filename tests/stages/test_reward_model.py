"""The reward model as a stage: it learns the order, is centred, saved, resumed and served."""

import json
from collections import Counter

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from veriloop.data import arithmetic_preferences
from veriloop.pipeline.config.preference import RewardModelRecipe
from veriloop.pipeline.errors import NonFiniteError, RecipeError, StageError, Stopped
from veriloop.pipeline.evaluation.statistics import estimate
from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.pipeline.model.scalar_head import ZERO_POINT, ScalarHead
from veriloop.pipeline.preference.datasets import load_rows
from veriloop.pipeline.report.write import write_report
from veriloop.pipeline.runs.record import read_metrics
from veriloop.stages import reward_model


@pytest.fixture
def recipe(tiny_checkpoint):
    def build(**changes):
        values = {
            "name": "test",
            "start": str(tiny_checkpoint()),
            "data": {"rows": 24, "held_out": 8},
            "batch": 8,
            "optimizer": {"learning_rate": 3e-3},
            "checkpoint": {"every": 1, "keep": 99},
            "tensorboard": False,
        }
        return RewardModelRecipe.model_validate(values | changes)

    return build


@pytest.mark.slow
@pytest.mark.parametrize("form", ["pairs", "plackett_luce"])
@pytest.mark.parametrize("kind", ["pairs", "ranked"])
def test_it_learns_the_order_of_answers_it_has_not_seen(recipe, tmp_path, kind, form, stage):
    asked = recipe(kind=kind, ranking=form, epochs=4, data={"rows": 48, "held_out": 16})
    made = reward_model.run(asked, tmp_path, resume=False)
    told = stage(tmp_path)
    assert (told["name"], told["status"]) == ("reward_model", "done")
    assert told["after"]["accuracy"] > max(0.65, told["before"]["accuracy"])
    assert told["outputs"]["checkpoint"] == str(made)
    numbers = read_metrics(tmp_path / "reward_model" / "metrics.jsonl")
    assert len(numbers) == 24 and numbers[-1]["loss"] < numbers[0]["loss"]
    assert {"accuracy", "mean_reward", "grad_norm"} <= numbers[0].keys()


@pytest.mark.slow
def test_a_reward_model_learns_on_from_another_one(recipe, tmp_path, stage):
    first = reward_model.run(recipe(epochs=4), tmp_path / "first", resume=False)
    second = reward_model.run(recipe(start=str(first)), tmp_path / "second", resume=False)
    learned, further = (stage(tmp_path / name) for name in ("first", "second"))
    assert further["before"]["accuracy"] == learned["after"]["accuracy"]  # with its head
    assert ScalarHead(second).ends == ScalarHead(first).ends


@pytest.mark.slow
def test_it_is_a_sequence_classifier_of_transformers_with_its_zero_point(recipe, tmp_path, stage):
    made = reward_model.run(recipe(), tmp_path, resume=False)
    model = AutoModelForSequenceClassification.from_pretrained(made).eval()
    assert model.config.num_labels == 1
    assert getattr(model.config, ZERO_POINT) == stage(tmp_path)["outputs"]["zero_point"]
    tokenizer = load_tokenizer(made)
    rows = list(arithmetic_preferences.rows("pairs", 0, 32))[24:]  # the held-out ones: the anchors
    rewards = []
    for row in rows:
        text = tokenizer.apply_chat_template(row["prompt"] + row["chosen"], tokenize=False)
        ids = torch.tensor([tokenizer(text, add_special_tokens=False).input_ids])
        with torch.no_grad():
            rewards.append(model(ids).logits.item())
    mean = sum(rewards) / len(rewards)
    assert mean == pytest.approx(getattr(model.config, ZERO_POINT), abs=1e-4)
    head = ScalarHead(made)
    assert head.zero_point == pytest.approx(mean, abs=1e-4) and head.ends == (2,)


@pytest.mark.slow
def test_anchors_can_be_a_file_of_their_own(recipe, tmp_path, stage):
    path = tmp_path / "anchors.jsonl"
    rows = [{"prompt": f"p{i}", "completion": "First", "label": i < 2} for i in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reward_model.run(recipe(anchors=str(path)), tmp_path / "run", resume=False)
    assert stage(tmp_path / "run")["outputs"]["anchors"] == 2  # the good ones
    path.write_text("".join(json.dumps(row | {"label": False}) + "\n" for row in rows))
    with pytest.raises(RecipeError, match=r"anchors: .*no row has label true"):
        reward_model.run(recipe(anchors=str(path)), tmp_path / "none", resume=False)
    path.write_text(json.dumps({"prompt": "p", "chosen": "a", "rejected": "b"}) + "\n")
    with pytest.raises(RecipeError, match=r"anchors: .*anchors are single answers"):
        reward_model.run(recipe(anchors=str(path)), tmp_path / "other", resume=False)


@pytest.mark.slow
def test_centring_keeps_rewards_near_zero(recipe, tmp_path):
    spread = {}
    for weight in (0.0, 1.0):
        output = tmp_path / str(weight)
        reward_model.run(recipe(centring=weight, epochs=4), output, resume=False)
        last = read_metrics(output / "reward_model" / "metrics.jsonl")[-1]
        spread[weight] = abs(last["mean_reward"])
    assert spread[1.0] < max(0.3, spread[0.0])


@pytest.mark.slow
def test_a_run_that_stops_continues_bit_for_bit(recipe, tmp_path, stopping, stage):
    whole = reward_model.run(recipe(), tmp_path / "whole", resume=False)
    with stopping():
        for at in (1, 2):
            with pytest.raises(Stopped, match=f"stopped after step {at} of 3"):
                reward_model.run(recipe(), tmp_path / "broken", resume=at > 1)
    with pytest.raises(RecipeError, match=r"centring: 0.0 -> 0.5"):
        reward_model.run(recipe(centring=0.5), tmp_path / "broken", resume=True)
    broken = reward_model.run(recipe(), tmp_path / "broken", resume=True)
    assert (broken / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    both = [stage(tmp_path / name) for name in ("whole", "broken")]
    assert both[0]["before"] == both[1]["before"] and both[0]["after"] == both[1]["after"]
    assert reward_model.run(recipe(), tmp_path / "broken", resume=True) == broken


def test_a_failure_is_on_record_with_its_reason(recipe, tmp_path, monkeypatch, stage):
    def measure(*_):
        raise StageError("not what was asked for")

    monkeypatch.setattr(reward_model, "measure", measure)
    with pytest.raises(StageError):
        reward_model.run(recipe(), tmp_path, resume=False)
    told = stage(tmp_path)
    assert (told["status"], told["outputs"]) == ("failed", {"failure": "not what was asked for"})


@pytest.mark.slow
def test_groups_are_measured_apart_and_are_parts_of_the_whole(recipe, tmp_path, stage):
    asked = recipe(data={"source": "general", "rows": 32, "held_out": 64, "adversarial": 0.25})
    made = reward_model.run(asked, tmp_path, resume=False)
    after = stage(tmp_path)["after"]
    _, rows = load_rows(asked.data)
    hard = sum(row.group == "adversarial" for row in rows) / len(rows)
    parts = hard * after["accuracy/adversarial"] + (1 - hard) * after["accuracy/easy"]
    assert 0 < hard < 1 and after["accuracy"] == pytest.approx(parts)
    rewards = {group: _leads(made, [r for r in rows if r.group == group]) for group in GROUPS}
    for group in GROUPS:
        share = sum(lead > 0 for lead in rewards[group]) / len(rewards[group])
        assert after[f"accuracy/{group}"] == pytest.approx(share)


GROUPS = ("easy", "adversarial")


def _leads(made, rows):
    """The chosen answer's reward less the rejected one's, each computed alone."""
    model = AutoModelForSequenceClassification.from_pretrained(made).eval()
    tokenizer = load_tokenizer(made)
    found = []
    for row in rows:
        rewards = []
        for answer in (row.chosen, row.rejected):
            messages = [dict(m) for m in (*row.prompt, *answer)]
            text = tokenizer.apply_chat_template(messages, tokenize=False)
            ids = torch.tensor([tokenizer(text, add_special_tokens=False).input_ids])
            with torch.no_grad():
                rewards.append(model(ids).logits.item())
        found.append(rewards[0] - rewards[1])
    return found


@pytest.mark.slow
def test_pairs_without_groups_have_one_accuracy(recipe, tmp_path, stage):
    reward_model.run(recipe(), tmp_path, resume=False)
    assert set(stage(tmp_path)["after"]) == {"accuracy", "accuracy 95%", "margin"}


@pytest.mark.slow
def test_an_accuracy_has_the_interval_of_its_held_out_rows(recipe, tmp_path, stage):
    """Of few rows it is so wide that the report calls no rise within it better."""
    asked = recipe(data={"source": "general", "rows": 32, "held_out": 16, "adversarial": 0.25})
    reward_model.run(asked, tmp_path, resume=False)
    told = stage(tmp_path)
    groups = Counter(row.group for row in load_rows(asked.data)[1])
    cases = [("before", "accuracy", 16), ("after", "accuracy", 16)]
    cases += [("after", f"accuracy/{group}", count) for group, count in groups.items()]
    assert len(cases) == 4 and groups.total() == 16
    for side, name, count in cases:
        expected = estimate([told[side][name]] * count)
        assert told[side][f"{name} 95%"] == [expected.low, expected.high]
    (check,) = (c for c in write_report(tmp_path).checks if c.question.id == "evaluation")
    better = told["after"]["accuracy"] > told["before"]["accuracy 95%"][1]
    assert (check.level == "good") is better


def test_a_reward_model_that_diverges_in_its_last_step_fails_with_what_is_not_finite(
    recipe, tmp_path, stage
):
    asked = recipe(data={"rows": 8, "held_out": 4}, batch=8, optimizer={"learning_rate": 1e30})
    with pytest.raises(NonFiniteError, match=r"finite numbers: stages\.0\..* is (nan|inf)"):
        reward_model.run(asked, tmp_path, resume=False)
    assert stage(tmp_path)["status"] == "failed"


@pytest.mark.parametrize(
    ("loss", "said"), [("pairwise", "8 of 8 rows"), ("pointwise", "16 of 16 answers")]
)
def test_rows_that_are_all_too_long_are_refused_and_answers_are_not_called_rows(
    recipe, tmp_path, capsys, loss, said
):
    data = {"rows": 8, "held_out": 4, "max_completion": 1}
    bounds = r"exceeds data\.max_prompt=256 or data\.max_completion=1 tokens"
    with pytest.raises(RecipeError, match=rf"every (row|answer) {bounds}"):
        reward_model.run(recipe(data=data, loss=loss), tmp_path, resume=False)
    assert f"data: {said} exceed data.max_prompt=256 or" in capsys.readouterr().out


def labelled_file(path, count):
    rows = [
        {"prompt": f"What is {n}+1?", "completion": word, "label": word == "safe"}
        for n in range(count)
        for word in ("safe", "danger")
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"source": str(path), "held_out": 8}


@pytest.mark.slow
def test_labelled_answers_train_a_model_whose_reward_is_a_log_odds(recipe, tmp_path, stage):
    data = labelled_file(tmp_path / "labelled.jsonl", 20)
    asked = recipe(loss="pointwise", data=data, epochs=3)
    made = reward_model.run(asked, tmp_path / "run", resume=False)
    told = stage(tmp_path / "run")
    assert told["outputs"]["rows"] == 32 and told["outputs"]["anchors"] == 0
    assert told["outputs"]["zero_point"] == 0.0 and ScalarHead(made).zero_point == 0.0
    assert told["after"]["accuracy"] == told["after"]["auc"] == 1.0
    assert told["after"]["loss"] < told["before"]["loss"]
    numbers = read_metrics(tmp_path / "run" / "reward_model" / "metrics.jsonl")
    assert len(numbers) == 12 and {"loss", "accuracy", "mean_reward"} <= numbers[0].keys()
    with pytest.raises(RecipeError, match="set loss: pointwise"):
        reward_model.run(recipe(data=data), tmp_path / "other", resume=False)


@pytest.mark.slow
def test_a_pointwise_run_that_stops_continues_bit_for_bit(recipe, tmp_path, stopping):
    asked = recipe(loss="pointwise")
    whole = reward_model.run(asked, tmp_path / "whole", resume=False)
    with stopping(), pytest.raises(Stopped):
        reward_model.run(asked, tmp_path / "broken", resume=False)
    broken = reward_model.run(asked, tmp_path / "broken", resume=True)
    assert (broken / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
