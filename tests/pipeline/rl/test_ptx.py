"""Text beside the rewards: the right loss, the same text for the same step, files that are read."""

import json

import pytest
import torch

from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.rl.ptx import pretraining


def recipe(text="corpus", coefficient=0.5, tokens=40):
    return ZeroRecipe.model_validate(
        {
            "name": "t",
            "start": "given",
            "steps": 1,
            "rollout": {"prompts": 1, "per_prompt": 2, "max_tokens": 8},
            "algorithm": {
                "preset": "ppo_ptx",
                "minibatches": 1,
                "ptx_coefficient": coefficient,
                "ptx_text": text,
                "ptx_tokens": tokens,
            },
            "optimizer": {"learning_rate": 0.1},
            "trainer": {"row": 24},
        }
    )


@pytest.fixture
def model(tiny_checkpoint):
    from veriloop.pipeline.model.policy import load_policy, load_tokenizer

    folder = tiny_checkpoint()
    return load_policy(folder), load_tokenizer(folder)


def lines(tmp_path, *rows):
    path = tmp_path / "text.jsonl"
    path.write_text("".join(f"{row}\n" for row in rows))
    return str(path)


def test_the_loss_is_the_mean_over_the_texts_own_tokens(model, tmp_path):
    policy, tokenizer = model
    text = "So the answer is 12. Then 12 - 4 = 8."
    path = lines(tmp_path, json.dumps({"text": text}))
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][:9]
    found = pretraining(recipe(path, coefficient=0.5, tokens=8), policy, tokenizer)(0)
    logits = policy(input_ids=torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    wanted = -logits[range(8), ids[1:]].mean()
    assert found.item() == pytest.approx(0.5 * wanted.item(), rel=1e-4)


def test_the_same_step_reads_the_same_text_and_another_one_other_text(model):
    loss = pretraining(recipe(), *model)
    with torch.no_grad():
        assert loss(3) == loss(3) != loss(4)


def test_it_pulls_on_the_policy(model):
    policy, _ = model
    pretraining(recipe(), *model)(0).backward()
    assert all(p.grad is not None for p in policy.parameters())
    policy.zero_grad()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (("{}",), "line 1: no JSON object with a `text`"),
        (('{"text": "a b c"}', "nonsense"), "line 2: not JSON"),
        ((), "holds no line of text"),
    ],
)
def test_a_file_that_holds_no_text_is_refused_by_its_line(model, tmp_path, rows, said):
    with pytest.raises(RecipeError, match=said):
        pretraining(recipe(lines(tmp_path, *rows)), *model)


def test_a_file_that_is_not_there_is_refused(model, tmp_path):
    with pytest.raises(RecipeError, match=r"no file .*gone"):
        pretraining(recipe(str(tmp_path / "gone")), *model)


def test_a_file_of_empty_texts_is_refused_and_not_read_for_ever(model, tmp_path):
    path = lines(tmp_path, json.dumps({"text": ""}), json.dumps({"text": ""}))
    with pytest.raises(RecipeError, match=f"no text in {path} has two tokens or more"):
        pretraining(recipe(path), *model)
