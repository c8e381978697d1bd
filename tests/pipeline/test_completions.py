"""Completions against the model itself: what it says, and how likely it finds a text."""

import pytest
import torch
from pydantic import ValidationError

from pipeline.completions import CompletionRequest, Completions
from pipeline.policy import load_policy, load_tokenizer

PROMPT = "What is 1+2?"


@pytest.fixture(scope="module")
def world(tiny_checkpoint):
    folder = tiny_checkpoint()
    return Completions(folder, 64), load_policy(folder).eval(), load_tokenizer(folder)


@pytest.fixture
def ask(world):
    """Function: the choices of a request."""

    def asked(prompt, **more):
        request = CompletionRequest(prompt=prompt, **({"temperature": 0.0} | more))
        answer = world[0].answer(request)
        assert [one["index"] for one in answer["choices"]] == list(range(len(answer["choices"])))
        return answer["choices"]

    return asked


@torch.no_grad()
def greedy(policy, ids, count):
    found = list(ids)
    for _ in range(count):
        found.append(int(policy(torch.tensor([found])).logits[0, -1].argmax()))
    return found[len(ids) :]


def test_a_text_is_continued_as_the_model_would(world, ask):
    _, policy, tokenizer = world
    ids = tokenizer(PROMPT).input_ids
    wanted = greedy(policy, ids, 8)
    assert tokenizer.eos_token_id not in wanted
    said = tokenizer.decode(wanted, skip_special_tokens=True)
    for prompt in (PROMPT, ids, [PROMPT], [ids]):
        (one,) = ask(prompt, max_tokens=8)
        assert (one["text"], one["finish_reason"]) == (said, "length")
    whole = tokenizer.decode(wanted, skip_special_tokens=False)
    assert ask(PROMPT, max_tokens=8, skip_special_tokens=False)[0]["text"] == whole


def test_several_prompts_are_answered_in_their_order(ask):
    prompts = ["What is 1+2?", "7", "A longer one: 5+6-7"]
    together = ask(prompts, max_tokens=6)
    assert [one["text"] for one in together] == [ask(p, max_tokens=6)[0]["text"] for p in prompts]
    drawn = ask(prompts[:2], n=3, temperature=1.0, max_tokens=6, seed=4)
    assert len(drawn) == 6 and len({one["text"] for one in drawn}) > 2
    assert ask(prompts[:2], n=3, temperature=1.0, max_tokens=6, seed=4) == drawn
    assert ask(prompts[:2], n=3, temperature=1.0, max_tokens=6, seed=5) != drawn


def test_a_stop_string_ends_the_text_and_is_no_part_of_it(ask):
    whole = ask(PROMPT, max_tokens=12)[0]["text"]
    stop = whole[4:6]
    (one,) = ask(PROMPT, max_tokens=12, stop=["never there", stop])
    assert one["text"] == whole[: whole.index(stop)] and one["finish_reason"] == "stop"
    assert ask(PROMPT, max_tokens=12, stop=stop)[0]["text"] == one["text"]


def test_a_prompt_is_scored_as_the_model_scores_it(world, ask):
    _, policy, tokenizer = world
    ids = tokenizer(PROMPT).input_ids
    (one,) = ask(ids, echo=True, logprobs=1, max_tokens=1)
    with torch.no_grad():
        logp = policy(torch.tensor([ids])).logits[0].log_softmax(-1)
    wanted = [logp[t, token].item() for t, token in enumerate(ids[1:])]
    told = one["logprobs"]
    assert told["token_logprobs"][0] is None and told["top_logprobs"][0] is None
    assert told["token_logprobs"][1:-1] == pytest.approx(wanted, abs=1e-4)
    best = [max(top.values()) for top in told["top_logprobs"][1:]]
    assert best == pytest.approx(logp.max(-1).values.tolist(), abs=1e-4)
    assert told["token_logprobs"][-1] == best[-1]  # of the one token after the prompt
    assert one["text"].startswith(tokenizer.decode(ids)) and len(told["tokens"]) == len(ids) + 1


def test_the_likeliest_tokens_are_known_by_their_log_prob(world, ask):
    _, policy, tokenizer = world
    ids = tokenizer(PROMPT).input_ids
    whole = [*ids, *greedy(policy, ids, 4)]
    told = ask(whole, echo=True, logprobs=1, max_tokens=0)[0]["logprobs"]
    likeliest = [
        own == max(top.values())
        for own, top in zip(told["token_logprobs"][1:], told["top_logprobs"][1:], strict=True)
    ]
    assert all(likeliest[len(ids) - 1 :]) and not all(likeliest)
    assert len(told["tokens"]) == len(whole)


def test_prompts_of_different_lengths_are_scored_as_if_alone(ask):
    prompts = [[1, 40, 41], [1, 50, 51, 52, 53, 54]]
    together = ask(prompts, echo=True, logprobs=1, max_tokens=1)
    assert together[0]["logprobs"] == ask(prompts[0], echo=True, max_tokens=1)[0]["logprobs"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"max_tokens": 0}, "max_tokens=0 must be at least 1"),
        ({"max_tokens": 4000}, "exceeds the model's 1024 positions"),
        ({"logprobs": 1}, "logprobs are given with echo only"),
        ({"echo": True, "max_tokens": 2}, "max_tokens is 0 or 1"),
        ({"echo": True, "max_tokens": 1, "n": 2}, "n is 1"),
        ({"top_p": 2.0}, "top_p=2.0"),
    ],
)
def test_what_cannot_be_answered_is_refused(ask, more, told):
    with pytest.raises(ValueError, match=told):
        ask(PROMPT, **more)


def test_empty_and_overlong_prompts_are_refused(ask):
    with pytest.raises(ValueError, match="at least one token"):
        ask([[]], max_tokens=1)
    with pytest.raises(ValueError, match="1025 tokens exceed the model's 1024"):
        ask([1] * 1024, echo=True, max_tokens=1)


def test_a_key_that_would_be_left_out_is_refused_by_name():
    with pytest.raises(ValidationError, match="top_k"):
        CompletionRequest(prompt="a", top_k=3)
