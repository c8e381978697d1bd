"""Recipes and examples for two tiny models that read the same ids."""

from random import Random

import pytest

from veriloop.data.sft_ids import EncodedExample
from veriloop.pipeline.config.distill import DistillRecipe


@pytest.fixture
def on_policy():
    """Factory of on-policy recipes."""

    def build(**changes):
        values = {
            "name": "test",
            "method": "on_policy",
            "start": "student",
            "teacher": "teacher",
            "steps": 4,
            "rollout": {"prompts": 2, "per_prompt": 4, "max_tokens": 9},
            "optimizer": {"learning_rate": 1e-2},
            "trainer": {"row": 32, "rows": 2, "logits_chunk": 5},
        }
        return DistillRecipe.model_validate(values | changes)

    return build


@pytest.fixture
def some_examples():
    """Function: as many examples of a few ids, learned from some token on, two of them the same."""

    def build(count, seed=0):
        random, made = Random(seed), []
        for _ in range(count - 1):
            prompt, answer = random.randint(1, 4), random.randint(1, 6)
            ids = tuple(random.randrange(1, 40) for _ in range(prompt + answer))
            made.append(EncodedExample(ids=ids, learned=(False,) * prompt + (True,) * answer))
        return [*made, made[0]]

    return build
