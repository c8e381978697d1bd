"""Reward terms of a recipe: verifiers, batch functions, weights, conditions."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from veriloop.data.problem import Problem
from veriloop.pipeline.config.reward_terms import RewardTerm
from veriloop.pipeline.config.rl import RewardConfig, ZeroRecipe
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.rollouts.grade import grade, verifier_names
from veriloop.pipeline.rollouts.reward_terms import (
    FunctionJudge,
    term_functions,
    term_verifiers,
    with_terms,
)
from veriloop.pipeline.types import Rollout
from veriloop.verifiers.pool import VerifierPool

FUNCTIONS = """
async def length(prompts, completions, **columns):
    return [float(len(text)) for text in completions]

def parts(prompts, completions, value, language, completion_ids, **columns):
    assert prompts == ["What is 6 + 6?"] * len(completions) and language == ["en"] * len(prompts)
    return {"short": [len(text) < 40 for text in completions], "value": [float(v) for v in value]}

def unnamed(prompts, completions, **columns):
    return {"short": [2.0] * len(prompts), "long": [3.0] * len(prompts)}

def unsure(prompts, completions, **columns):
    return [None, 2.5][: len(completions)]

def one_for_all(prompts, completions, **columns):
    return [1.0]

def array(prompts, completions, **columns):
    import numpy
    return numpy.full(len(completions), 0.25, dtype=numpy.float32)

def tensor(prompts, completions, **columns):
    import torch
    return {"value": torch.full((len(completions),), 0.25), "other": [1] * len(completions)}

def of_trl(completions, trainer_state, log_metric=None, log_extra=None, **columns):
    assert not {"trainer_state", "log_metric", "log_extra"} & columns.keys()
    log_metric("mean_length", 7)
    log_extra("texts", completions)
    return [0.5 * trainer_state.global_step] * len(completions)

built_in = max  # without a signature

def endless(prompts, completions, **columns):
    return [float("inf"), float("nan"), -2.0][: len(completions)]

def broken(prompts, completions, **columns):
    raise KeyError("tests")
"""
RIGHT, WRONG = "<think>a</think><answer>12</answer>", "<think>a</think><answer>13</answer>"


@pytest.fixture(scope="module")
def pool():
    with VerifierPool(limit_s=20.0) as opened:
        yield opened


@pytest.fixture
def functions(tmp_path):
    path = tmp_path / "rewards.py"
    path.write_text(FUNCTIONS)
    return path


def rollout(response, source="arithmetic", group="g"):
    facts = {"language": "en", "source": source}
    problem = Problem(
        id=f"{source}/rl/0", prompt="What is 6 + 6?", verifier="number",
        reference={"value": "12"}, facts=facts,
    )  # fmt: skip
    ids = tuple(range(len(response)))
    return Rollout(
        group=group, problem=problem, prompt_ids=(1,), response_ids=ids, logp=(0.0,) * len(ids),
        response=response, finish="stop", temperature=1.0, policy_version=0,
    )  # fmt: skip


def rewards(pool, terms, *rollouts):
    terms = {name: RewardTerm(**term) for name, term in terms.items()}
    reward = with_terms(lambda _, verdicts: verdicts["accuracy"].score or 0.0, terms)
    verifiers = {"accuracy": None, **term_verifiers(terms)}
    return [g.reward for g in grade(rollouts, verifiers, pool, reward, term_functions(terms))]


@pytest.mark.slow
def test_a_verifier_with_its_own_reference_and_a_negative_weight(pool):
    terms = {"short": {"verifier": "length", "weight": -0.5,
                       "reference": {"length": {"at_least": 0, "at_most": 3}}}}  # fmt: skip
    longer = RIGHT.replace("a</think>", "a b c d e f</think>")
    assert rewards(pool, terms, rollout(RIGHT), rollout(longer)) == [0.5, 1.0]


def test_a_term_may_count_for_right_or_wrong_answers_only(pool):
    layout = {"verifier": "think_format", "weight": 0.25}
    for when, expected in (
        ("always", [1.25, 0.25]),
        ("right", [1.25, 0.0]),
        ("wrong", [1.0, 0.25]),
    ):
        terms = {"layout": {**layout, "when": when}}
        assert rewards(pool, terms, rollout(RIGHT), rollout(WRONG)) == expected


def test_a_term_of_some_sources_neither_judges_nor_pays_the_others(pool):
    terms = {"layout": {"verifier": "think_format", "sources": ("arithmetic",)}}
    one, other = rollout(RIGHT), rollout(RIGHT, source="gsm8k", group="h")
    assert rewards(pool, terms, one, other) == [2.0, 1.0]


def test_a_function_of_some_sources_is_given_the_answers_of_these_alone(functions):
    term = RewardTerm(function=f"{functions}:length", sources=("gsm8k",))
    rollouts = [rollout("four"), rollout("seven", source="gsm8k"), rollout("", source="math")]
    other, own, third = FunctionJudge("mine", term)(rollouts)
    assert other is None and third is None and own.components["value"] == 5.0
    assert FunctionJudge("mine", term)(rollouts[:1]) == [None]


def test_scores_of_an_async_function_are_unbounded(pool, functions):
    terms = {"length": {"function": f"{functions}:length", "weight": -0.01}}
    assert rewards(pool, terms, rollout(RIGHT)) == [pytest.approx(1.0 - 0.01 * len(RIGHT))]


def test_a_function_gets_columns_and_returns_parts_with_weights(pool, functions):
    terms = {"mine": {"function": f"{functions}:parts", "weight": 0.5, "parts": {"short": 0.1}}}
    assert rewards(pool, terms, rollout(RIGHT)) == [pytest.approx(1.0 + 0.5 * 12 + 0.1)]


@pytest.mark.parametrize("name", ["array", "tensor"])
def test_a_function_may_return_an_array_or_a_tensor(pool, functions, name):
    terms = {"mine": {"function": f"{functions}:{name}", "parts": {"other": 0.0} if name == "tensor"
                      else {}}}  # fmt: skip
    assert rewards(pool, terms, rollout(RIGHT), rollout(WRONG)) == [1.25, 0.25]


def test_a_function_gets_what_trl_offers_where_it_names_it(pool, functions):
    term = RewardTerm(function=f"{functions}:of_trl")
    one, other = (replace(rollout(RIGHT), policy_version=version) for version in (4, 6))
    verdicts = FunctionJudge("mine", term)([one, other])
    assert [v.components for v in verdicts] == [{"mean_length": 7.0, "value": 3.0}] * 2
    assert [v.score for v in verdicts] == [1.0, 1.0]


@pytest.mark.parametrize(("name", "score"), [("array", 0.25), ("parts", 1.0)])
def test_a_score_is_shown_within_0_and_1_and_counts_as_it_is(functions, name, score):
    (verdict,) = FunctionJudge("mine", RewardTerm(function=f"{functions}:{name}"))([rollout(RIGHT)])
    assert verdict.score == score
    assert verdict.components["value"] == {"array": 0.25, "parts": 12.0}[name]


def test_a_number_that_is_none_is_an_error_and_a_negative_one_is_shown_as_0(functions):
    judge = FunctionJudge("mine", RewardTerm(function=f"{functions}:endless"))
    *lost, negative = judge([rollout(RIGHT)] * 3)
    assert [(v.score, v.status) for v in lost] == [(None, "error")] * 2
    assert [v.detail.partition(" returned ")[2] for v in lost] == [
        "{'value': inf}",
        "{'value': nan}",
    ]
    assert (negative.score, negative.components["value"]) == (0.0, -2.0)


@pytest.mark.parametrize(
    ("name", "parts", "main"),
    [("parts", {}, 12.0), ("unnamed", {}, 5.0), ("unnamed", {"short": 0.1}, 0.0)],
)
def test_the_score_of_a_mapping_is_its_value_else_the_sum_if_no_parts_are_weighted(
    pool, functions, name, parts, main
):
    terms = {"mine": {"function": f"{functions}:{name}", "weight": 0.5, "parts": parts}}
    more = parts.get("short", 0.0) * 2.0
    assert rewards(pool, terms, rollout(RIGHT)) == [pytest.approx(1.0 + 0.5 * main + more)]


def test_the_penalty_for_repetition_cannot_be_avoided_by_ending_early(pool):
    terms = {"repeats": {"verifier": "repetition", "weight": 0.0, "parts": {"penalty": 0.5}}}
    responses = (RIGHT, "<think>on and on", "", "on " * 99)
    rollouts = [rollout(text, group=str(n)) for n, text in enumerate(responses)]
    plain, unclosed, empty, repeated = rewards(pool, terms, *rollouts)
    assert (plain, unclosed, empty) == (1.0, -0.5, -0.5) and -0.5 < repeated < -0.49


def test_what_a_function_cannot_judge_has_no_reward(pool, functions):
    terms = {"mine": {"function": f"{functions}:unsure"}}
    assert rewards(pool, terms, rollout(RIGHT), rollout(RIGHT, group="h")) == [None, 3.5]
    unsure, sure = FunctionJudge("mine", RewardTerm(**terms["mine"]))([rollout(RIGHT)] * 2)
    assert (unsure.score, unsure.status) == (None, "error") and sure.status == "graded"
    assert unsure.detail.endswith(":unsure: None")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", r"reward.terms.mine: .*:broken failed: KeyError: 'tests'"),
        ("built_in", r"reward.terms.mine: .*:built_in failed: ValueError: no signature"),
        ("one_for_all", r"must return one number per completion, 2, got \[1.0\]"),
    ],
)
def test_a_function_that_fails_ends_the_run_by_name(pool, functions, name, message):
    terms = {"mine": {"function": f"{functions}:{name}"}}
    with pytest.raises(StageError, match=message):
        rewards(pool, terms, rollout(RIGHT), rollout(WRONG))


def test_verifiers_of_terms_are_opened():
    terms = {"a": RewardTerm(verifier="length"), "b": RewardTerm(function="math:sqrt")}
    verifiers = {"accuracy": None, **term_verifiers(terms)}
    assert verifier_names(verifiers, [rollout(RIGHT).problem]) == ["length", "number"]


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ({}, "set exactly one"),
        ({"verifier": "length", "function": "math:sqrt"}, "set exactly one"),
        ({"verifier": "lenght"}, "Did you mean 'length'"),
        (
            {"verifier": "unit_chain", "parts": {"step": 1}},
            "no component 'step'. Did you",
        ),
        ({"verifier": "unit_chain"}, "none but its own; set reference, as {value: ...}"),
        ({"function": "math:sqrtt"}, "has no function 'sqrtt'. Did you mean 'sqrt'"),
        ({"function": "sqrt"}, "must be path/to/file.py:name"),
        ({"function": "math:sqrt", "reference": {"a": 1}}, "read by verifiers, not by functions"),
    ],
)
def test_a_bad_term_is_refused_by_name(term, message):
    with pytest.raises(ValidationError, match=message.replace("?", r"\?")):
        RewardTerm(**term)


def test_names_of_the_stages_own_components_are_taken():
    with pytest.raises(ValidationError, match="cannot be called 'accuracy'"):
        RewardConfig(terms={"accuracy": {"verifier": "length"}})


def test_sources_of_a_term_are_among_the_problems():
    values = {
        "name": "t", "start": "x", "steps": 1, "optimizer": {"learning_rate": 0.1},
        "rollout": {"prompts": 2, "per_prompt": 2, "max_tokens": 4},
        "reward": {"terms": {"a": {"verifier": "length", "sources": ["arithmetics"]}}},
    }  # fmt: skip
    with pytest.raises(ValidationError, match=r"'arithmetics' is none of .* Did you mean 'arith"):
        ZeroRecipe(**values)
