"""Rewards packed into rows are those that transformers gives each answer by itself."""

from random import Random

import pytest
import torch
from torch.testing import assert_close

from veriloop.data.preference_ids import EncodedAnswer
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.pipeline.model.scalar_head import (
    ZERO_POINT,
    ScalarHead,
    answer_rewards,
    load_classifier,
)


@pytest.fixture
def start(tiny_checkpoint):
    return tiny_checkpoint(tied=False)


def answers(count=9, end=(2,)):
    random = Random(0)
    found = []
    for _ in range(count):
        prompt = tuple(random.randrange(3, 400) for _ in range(random.randint(1, 6)))
        text = tuple(random.randrange(3, 400) for _ in range(random.randint(1, 9)))
        ids = (*text, *end)
        found.append(EncodedAnswer(prompt=prompt, completion=ids, segments=(0,) * len(ids)))
    return found


def by_transformers(model, ids):
    with torch.no_grad():
        return torch.stack(
            [model(torch.tensor([[*a.prompt, *a.completion]])).logits[0, 0] for a in ids]
        )


@pytest.mark.parametrize("row", [16, 256])
def test_packed_rewards_are_those_of_transformers(start, row):
    model = load_classifier(start, load_tokenizer(start)).eval()
    ids = answers()
    with torch.no_grad():
        found = answer_rewards(model, ids, row=row)
    expected = by_transformers(model, ids)
    assert expected.std() > 1e-3
    assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_where_the_padding_id_ends_an_answer_both_read_the_token_before(start):
    model = load_classifier(start, load_tokenizer(start)).eval()
    model.config.pad_token_id = 2
    ids = answers()
    with torch.no_grad():
        found = answer_rewards(model, ids, row=64)
    assert_close(found, by_transformers(model, ids), atol=1e-5, rtol=1e-4)


def test_a_saved_head_is_loaded_with_its_zero_point(start, tmp_path):
    tokenizer = load_tokenizer(start)
    model = load_classifier(start, tokenizer)
    setattr(model.config, ZERO_POINT, 0.75)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    ids = answers(5)
    head = ScalarHead(tmp_path)
    assert head.zero_point == 0.75
    found = head.rewards(ids, TrainerConfig(row=32, rows=2))
    expected = (by_transformers(model.eval(), ids) - 0.75).tolist()
    assert found == pytest.approx(expected, abs=1e-4)
    head.require_tokenizer(tokenizer)
    tokenizer.add_tokens(["another"])
    with pytest.raises(RecipeError, match="has another tokenizer than the policy"):
        head.require_tokenizer(tokenizer)


def test_a_folder_without_a_model_is_refused(start, tmp_path):
    with pytest.raises(RecipeError, match=r"config\.json is missing"):
        load_classifier(tmp_path, load_tokenizer(start))
