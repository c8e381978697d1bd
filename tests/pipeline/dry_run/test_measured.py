"""The plan of memory against what torch's allocator hands out while a tiny model is trained."""

from functools import partial
from random import Random
from types import SimpleNamespace

import pytest
import torch

from tests.memory_peak import memory_peak
from tests.rollouts import graded
from veriloop.data.sft_ids import EncodedExample
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.pretraining import TinyModel
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.distill.logit_step import gradient
from veriloop.pipeline.distill.on_policy import OnPolicyDistiller
from veriloop.pipeline.distill.teacher_pass import TopKOptions, score_top_k
from veriloop.pipeline.dry_run.budget import parts_of, peak
from veriloop.pipeline.dry_run.memory import shape_of, tiny_shape
from veriloop.pipeline.dry_run.plan import tiny_parameters
from veriloop.pipeline.model.policy import without_dropout
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.rl import natural_step, update
from veriloop.pipeline.rl.learner import PolicyLearner
from veriloop.pipeline.training.optimizer import Optimizer

PROMPT, ANSWER, ROWS = 64, 192, 4
CONFIG = {
    "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 6, "vocab_size": 8000,
    "num_attention_heads": 4, "num_key_value_heads": 2, "model_type": "qwen2",
}  # fmt: skip


def recipe_of(**changes):
    trainer = {"device": "cpu", "row": PROMPT + ANSWER - 1, "rows": ROWS, "share_prompts": False}
    values = {
        "name": "n", "start": "here", "steps": 9, "optimizer": {"learning_rate": 1e-4},
        "rollout": {"prompts": 2, "per_prompt": 4, "max_prompt": PROMPT, "max_tokens": ANSWER},
        "algorithm": {"minibatches": 1, "kl_coefficient": 0.0},
    }  # fmt: skip
    return ZeroRecipe.model_validate(
        values | changes | {"trainer": trainer | changes.get("trainer", {})}
    )


def answers(recipe):
    random = Random(0)
    ids = lambda count: tuple(random.randrange(1, 8000) for _ in range(count))  # noqa: E731
    return [  # of an older policy: their log-probs are not compared
        graded(ids(PROMPT), ids(ANSWER), logp=(-9.0,) * ANSWER, group=f"1/{i // 4}",
               reward=float(i % 2), policy_version=-1)
        for i in range(8)
    ]  # fmt: skip


def measured(recipe, config):
    """Bytes that the allocator had given out at most, from the model on, over two updates."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    rollouts = answers(recipe)
    torch.manual_seed(0)

    def train():
        built = without_dropout(Qwen2ForCausalLM(Qwen2Config(**config))).train()
        policy = prepare(built, recipe.trainer)
        learner = PolicyLearner(recipe, policy, SimpleNamespace(tokenizer=None))
        for step in range(2):
            learner.learn(step, rollouts, Random(0))

    return memory_peak(train)


CASES = {
    "plain": {},
    "untied": {"config": {"tie_word_embeddings": False}},
    "checkpointing": {
        "trainer": {"gradient_checkpointing": True},
        "config": {"num_hidden_layers": 12},
    },
    "reference": {"algorithm": {"minibatches": 1, "kl_coefficient": 0.01}},
    "critic": {"algorithm": {"preset": "ppo", "minibatches": 1}},
    "natural gradient": {"algorithm": {"preset": "trpo"}},
    "adapters": {"trainer": {"lora": {"rank": 8}}},
    "muon": {"optimizer": {"learning_rate": 1e-4, "muon_learning_rate": 1e-3}},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_peak_of_an_update_is_within_15_percent_of_the_plan(case, monkeypatch):
    steps = partial(natural_step.natural_step, iterations=2)
    monkeypatch.setattr(update, "natural_step", steps)  # which hold all of it at once
    monkeypatch.setattr(natural_step, "TRIES", 2)
    monkeypatch.setattr(natural_step, "ATTEMPTS", 2)
    changes = dict(CASES[case])
    config = {**CONFIG, "tie_word_embeddings": True, **changes.pop("config", {})}
    recipe = recipe_of(**changes)
    parts, _ = parts_of(recipe, shape_of(config), lambda _: None)
    trained = [part for part in parts if not part.name.startswith(("sampler", "sync"))]
    planned, phase = peak(trained)
    assert phase == ("natural step" if case == "natural gradient" else "update")
    assert measured(recipe, config) == pytest.approx(planned, rel=0.15)


def distilling(**changes):
    """A recipe with the trainer and the lengths of `recipe_of`."""
    usual = recipe_of()
    values = {"name": "n", "start": "here", "teacher": "there", "trainer": usual.trainer,
              "optimizer": usual.optimizer}  # fmt: skip
    if changes["method"] == "on_policy":
        values |= {"steps": 9, "rollout": usual.rollout}
    else:
        values |= {"data": {"source": "r.jsonl", "max_tokens": PROMPT + ANSWER, "held_out": 1}}
    return DistillRecipe.model_validate(values | changes)


def model_of(recipe, config):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    built = without_dropout(Qwen2ForCausalLM(Qwen2Config(**config))).train()
    return prepare(built, recipe.trainer)


@pytest.mark.slow
@pytest.mark.parametrize("divergence", ["sampled", "jsd", "forward_kl", "reverse_kl"])
def test_the_peak_of_on_policy_distillation_is_within_15_percent_of_the_plan(divergence):
    config = {**CONFIG, "tie_word_embeddings": True}
    recipe = distilling(method="on_policy", divergence=divergence)
    rollouts = answers(recipe)

    def train():
        teacher = model_of(recipe, config).requires_grad_(requires_grad=False)
        learner = OnPolicyDistiller(recipe, model_of(recipe, config), teacher)
        for step in range(2):
            learner.learn(step, rollouts, Random(0))

    assert memory_peak(train) == pytest.approx(planned_peak(recipe, config), rel=0.15)


@pytest.mark.slow
def test_the_peak_of_distillation_from_kept_distributions_is_within_15_percent_of_the_plan():
    config = {**CONFIG, "tie_word_embeddings": True}
    recipe = distilling(method="logits")
    examples = [
        EncodedExample(ids=(*r.prompt_ids, *r.response_ids),
                       learned=(False,) * PROMPT + (True,) * ANSWER)
        for r in (one.rollout for one in answers(recipe))
    ]  # fmt: skip
    options = TopKOptions(k=32, ids=8000, temperature=1.0, trainer=recipe.trainer)
    kept = []

    def score():
        kept[:] = score_top_k(model_of(recipe, config), examples, options)

    def train():
        model = model_of(recipe, config)
        optimizer = Optimizer(model, recipe.optimizer)
        targets = dict(zip(examples, kept, strict=True))
        for step in range(2):
            gradient(model, examples, targets, recipe.trainer, 1.0)
            optimizer.step(0.0, step)

    assert memory_peak(score) < planned_peak(recipe, config)
    assert memory_peak(train) == pytest.approx(planned_peak(recipe, config), rel=0.15)


def planned_peak(recipe, config):
    """Of all but the sampler, in an update."""
    parts, _ = parts_of(recipe, shape_of(config), lambda _: shape_of(config))
    size, phase = peak(part for part in parts if not part.name.startswith(("sampler", "sync")))
    assert phase == "update"
    return size


def test_the_tiny_models_of_recipes_are_counted_as_llama_is():
    tiny = TinyModel(hidden=96, layers=3, heads=3, feed_forward=200, vocabulary=700, tied=True)
    config = {
        "model_type": "llama", "hidden_size": 96, "num_hidden_layers": 3, "vocab_size": 700,
        "num_attention_heads": 3, "intermediate_size": 200, "tie_word_embeddings": True,
    }  # fmt: skip
    assert shape_of(config) == tiny_shape(tiny, tiny_parameters(tiny))


def test_memory_that_was_given_out_before_does_not_count():
    kept = []
    memory_peak(lambda: kept.append(torch.zeros(10**6)))
    assert memory_peak(lambda: (kept.clear(), torch.zeros(3 * 10**6))) == 4 * 3 * 10**6
