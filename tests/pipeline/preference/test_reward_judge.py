"""The reward model as a judge: what it reads, in which form, and what its failures mean."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from veriloop.data.preference_ids import encode
from veriloop.data.problem import Problem
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.pipeline.model.scalar_head import ScalarHead
from veriloop.pipeline.preference.reward_judge import (
    PreferenceJudge,
    judged_text,
    response_of,
    summary_ids,
    summary_of,
    to_messages,
)

GOOD = "<think>Be kind.</think><answer>Hello Tom!</answer>"


def problem(kind="greet", source="general"):
    facts = {"source": source, "language": "en", "kind": kind}
    return Problem(id="x", prompt="Greet Tom.", verifier="number", reference={}, facts=facts)


@pytest.fixture(scope="module")
def head(tiny_classifier):
    return ScalarHead(tiny_classifier)


@pytest.fixture
def rollouts(graded):
    """Function: a rollout for each (problem, response)."""
    return lambda *asked: [
        replace(graded(problem=one).rollout, response=text) for one, text in asked
    ]


@pytest.mark.parametrize(
    ("kind", "response", "text"),
    [
        ("greet", GOOD, "Hello Tom!"),
        ("greet", "<think>Hm.</think> Hello Tom! ", "Hello Tom!"),
        ("greet", "Hello Tom!", "Hello Tom!"),
        ("harm", GOOD, GOOD),
        ("greet", "<think>Hello Tom!", None),
        ("harm", "<think>Hello Tom!", None),
        ("greet", "", None),
        ("greet", "<think>Hello</think>", None),
        ("greet", "<think>Hello</think><answer> </answer>", None),
        ("greet", "<think>Hello</think><answer>Hello Tom!", None),
        ("greet", "<think></think>?!", None),
    ],
)
def test_helpfulness_is_scored_on_the_summary_and_harmlessness_on_the_response(
    kind, response, text
):
    assert judged_text(problem(kind), response) == text


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("Be kind.</think> Hello Tom!", "Hello Tom!"),
        ("Be kind.</think><answer>Hello Tom!</answer>", "Hello Tom!"),
        ("Hello Tom!", None),
    ],
)
def test_thinking_that_the_prompt_began_is_no_part_of_the_summary(response, text):
    asked = problem()
    asked = replace(asked, facts=asked.facts | {"prefilled_think": True})
    assert judged_text(asked, response) == text


def test_a_summary_that_is_none_is_read_as_an_empty_answer(head, rollouts):
    marked = f"Hello{head.tokenizer.eos_token}Tom"
    good, open_ended, special = rollouts(
        *((problem(), text) for text in (GOOD, "<think>Hello Tom!", marked))
    )
    assert [summary_of(one) for one in (good, open_ended, special)] == ["Hello Tom!", "", marked]
    assert response_of(good) == GOOD
    prompt = [{"role": "user", "content": "Greet Tom."}]
    for rollout, text in ((good, "Hello Tom!"), (open_ended, ""), (special, "")):
        answer = [{"role": "assistant", "content": text}]
        assert summary_ids(head, rollout) == encode(prompt, answer, head.tokenizer, head.ends)


def test_the_model_reads_what_it_was_trained_on(head, rollouts):
    judge = PreferenceJudge(head, TrainerConfig(), scale=2.0)
    asked = [(problem(), GOOD), (problem("harm"), GOOD), (problem(), "Go away.")]
    prompt = [{"role": "user", "content": "Greet Tom."}]
    ids = [
        encode(prompt, [{"role": "assistant", "content": text}], head.tokenizer, head.ends)
        for text in ("Hello Tom!", GOOD, "Go away.")
    ]
    raw = head.rewards(ids, TrainerConfig())
    found = judge(rollouts(*asked))
    assert [v.components["raw"] for v in found] == pytest.approx(raw, abs=1e-5)
    assert len({round(v.score, 6) for v in found}) == 3
    for verdict, value in zip(found, raw, strict=True):
        assert verdict.score == pytest.approx(1 / (1 + 2.718281828459045 ** (-value / 2)))
        assert verdict.components["squashed"] == verdict.score


def test_only_general_rollouts_are_judged_and_each_gets_its_own_verdict(head, rollouts):
    judge = PreferenceJudge(head, TrainerConfig(rows=1), scale=1.0)
    asked = [
        (problem(source="arithmetic"), GOOD), (problem(), GOOD), (problem(), ""),
        (problem(source="arithmetic"), ""), (problem(), "Go away."),
    ]  # fmt: skip
    found = judge(rollouts(*asked))
    alone = [judge(rollouts(one))[0] for one in asked]
    assert found[0] is None and found[3] is None
    assert (found[2].score, found[2].status) == (0.0, "no_answer")
    assert found[2].detail == "nothing after the thinking"
    for i in (1, 4):
        assert found[i].score == pytest.approx(alone[i].score, abs=1e-6)
    assert judge([]) == []


def broken(value):
    def rewards(answers, trainer):
        if isinstance(value, Exception):
            raise value
        return [value for _ in answers]

    return rewards


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "the reward model returned nan"),
        (math.inf, "the reward model returned inf"),
        (RuntimeError("out of memory"), "reward model: RuntimeError: out of memory"),
    ],
)
def test_a_failing_model_gives_errors_and_an_empty_answer_scores_0(value, said, head, rollouts):
    failing = SimpleNamespace(
        tokenizer=head.tokenizer, ends=head.ends, rewards=broken(value),
        beyond_positions=head.beyond_positions,
    )  # fmt: skip
    judge = PreferenceJudge(failing, TrainerConfig(), scale=1.0)
    lost, empty = judge(rollouts((problem(), GOOD), (problem(), "")))
    assert (lost.score, lost.status, lost.detail) == (None, "error", said)
    assert (empty.score, empty.status) == (0.0, "no_answer")


@pytest.mark.parametrize("scale", [1.0, None])
def test_what_is_longer_than_the_models_positions_has_no_score(scale, head, rollouts, monkeypatch):
    asked = [(problem(), GOOD), (problem("harm"), GOOD + " And all of your family." * 3)]
    judge = PreferenceJudge(head, TrainerConfig(), scale=scale)
    prompt = [{"role": "user", "content": "Greet Tom."}]
    ids = [
        encode(prompt, [{"role": "assistant", "content": text}], head.tokenizer, head.ends)
        for text in ("Hello Tom!", asked[1][1])
    ]
    fits, longer = (len(one.prompt) + len(one.completion) for one in ids)
    whole = judge(rollouts(*asked))
    monkeypatch.setattr(head, "positions", longer - 1)
    short, long = judge(rollouts(*asked))
    assert short.score == pytest.approx(whole[0].score, abs=1e-6) and whole[1].status == "graded"
    assert (long.score, long.status) == (None, "error")
    assert f"have {longer} tokens, and the reward model has {longer - 1} positions" in long.detail
    values = head.rewards(ids[::-1], TrainerConfig())
    assert math.isnan(values[0]) and values[1] == pytest.approx(short.components["raw"], abs=1e-5)
    monkeypatch.setattr(head, "positions", fits)
    assert not any(map(math.isnan, head.rewards(ids[:1], TrainerConfig())))


def test_special_tokens_inside_an_answer_score_0(head, rollouts):
    marked = f"Hello{head.tokenizer.eos_token}Tom"
    [verdict] = PreferenceJudge(head, TrainerConfig(), scale=1.0)(rollouts((problem(), marked)))
    assert (verdict.score, verdict.status) == (0.0, "no_answer")
    assert "end-of-sequence" in verdict.detail


def test_a_model_without_a_chat_template_is_given_plain_text(tiny_checkpoint):
    tokenizer = load_tokenizer(tiny_checkpoint())
    assert to_messages("Hi?", "Hello", tokenizer)[0] == ({"role": "user", "content": "Hi?"},)
    assert to_messages("Hi?", "Hello", SimpleNamespace(chat_template=None)) == ("Hi?", "Hello")


def test_where_the_raw_score_counts_an_empty_answer_is_judged_as_one(head, rollouts):
    judge = PreferenceJudge(head, TrainerConfig(), scale=None)
    prompt = [{"role": "user", "content": "Greet Tom."}]
    ids = [
        encode(prompt, [{"role": "assistant", "content": text}], head.tokenizer, head.ends)
        for text in ("Hello Tom!", "")
    ]
    good, nothing = head.rewards(ids, TrainerConfig())
    marked = f"Hello{head.tokenizer.eos_token}Tom"
    responses = (GOOD, "", "<think>Hello Tom!", marked)
    verdicts = judge(rollouts(*[(problem(), response) for response in responses]))
    assert [v.components["raw"] for v in verdicts] == pytest.approx(
        [good] + 3 * [nothing], abs=1e-5
    )
    assert {v.status for v in verdicts} == {"graded"}
    assert verdicts[0].score == pytest.approx(1 / (1 + 2.718281828459045**-good))
