"""Distillation recipes: what each method needs, reads and refuses."""

import pytest
from pydantic import ValidationError

from veriloop.pipeline.config.distill import DistillRecipe

PLAIN = {"name": "n", "start": "student", "optimizer": {"learning_rate": 1e-3}}
WHOLE = {
    "on_policy": {"method": "on_policy", "teacher": "t", "steps": 3},
    "logits": {"method": "logits", "teacher": "t", "data": {"source": "a.jsonl", "held_out": 4}},
    "sft": {"method": "sft", "data": {"source": "a.jsonl"}},
}


def recipe(method, **changes):
    return DistillRecipe.model_validate(PLAIN | WHOLE[method] | changes)


@pytest.mark.parametrize("method", WHOLE)
def test_a_recipe_of_each_method(method):
    assert recipe(method).method == method


@pytest.mark.parametrize(
    ("method", "changes", "said"),
    [
        ("on_policy", {"teacher": ""}, "method 'on_policy' needs a teacher"),
        ("logits", {"teacher": ""}, "method 'logits' needs a teacher"),
        ("on_policy", {"steps": 0}, "steps=0"),
        ("logits", {"data": {"held_out": 4}}, "method 'logits' needs data.source"),
        ("sft", {"data": {}}, "method 'sft' needs data.source"),
        ("logits", {"data": {"source": "a.jsonl"}}, "data.held_out=0"),
        ("sft", {"teacher": "t"}, "data.held_out=0"),
        ("on_policy", {"epochs": 3}, "epochs=3 is not read by method 'on_policy'"),
        ("on_policy", {"top_k": 8}, "top_k=8 is not read by method 'on_policy'"),
        ("sft", {"temperature": 2.0}, "temperature=2.0 is not read by method 'sft'"),
        ("logits", {"divergence": "jsd"}, "divergence='jsd' is not read by method 'logits'"),
        ("logits", {"steps": 5}, "steps=5 is not read by method 'logits', which reads data"),
        ("on_policy", {"beta": 0.2}, "beta=0.2 is read by divergence jsd, not sampled"),
        ("on_policy", {"minibatches": 7}, "128 rollouts do not divide into minibatches=7; "
                                          "nearest valid: 8"),
        ("on_policy", {"rollout": {"prompts": 2, "per_prompt": 2, "max_tokens": 8, "ahead": 2}},
         "rollout.ahead=2: distillation has no correction"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_the_reason(method, changes, said):
    with pytest.raises(ValidationError) as told:
        recipe(method, **changes)
    assert said in str(told.value)


@pytest.mark.parametrize("method", WHOLE)
def test_every_method_judges_the_answers_of_its_examinations(method):
    judging = {"verifier_workers": 3, "verifier_limit_s": 9.0, "sandbox": {"backend": "docker"}}
    asked = recipe(method, **judging)
    assert (asked.verifier_workers, asked.verifier_limit_s) == (3, 9.0)
    assert asked.sandbox.backend == "docker"


@pytest.mark.parametrize(
    ("divergence", "beta"),
    [("forward_kl", 0.0), ("reverse_kl", 1.0), ("jsd", 0.5), ("sampled", 0.5)],
)
def test_a_divergence_is_a_beta(divergence, beta):
    assert recipe("on_policy", divergence=divergence).jsd_beta == beta
    assert recipe("on_policy", divergence="jsd", beta=0.2).jsd_beta == 0.2


def test_on_policy_learning_in_the_words_of_reinforcement_learning():
    algorithm = recipe("on_policy", minibatches=2).algorithm
    assert (algorithm.objective, algorithm.aggregation) == ("ratio", "token_mean")
    assert algorithm.kl_coefficient == 0 and algorithm.minibatches == 2
