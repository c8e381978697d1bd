"""A scalar from an endpoint: the forms it is asked in and answers in."""

import pytest

from veriloop.verifiers.registry import get, judge
from veriloop.verifiers.reward_model import squashed


def verdict(response="Hello!", **reference):
    return judge(get("reward_model").problem({"question": "Greet."} | reference), response)


@pytest.mark.parametrize(
    ("path", "sent", "answer"),
    [
        ("/classify", {"input": "Greet.\n\nHello!"}, {"data": [{"probs": [2.0]}]}),
        ("/score", {"text_1": "Greet.", "text_2": "Hello!"}, {"data": [{"score": 2.0}]}),
        (
            "/pooling",
            {
                "messages": [
                    {"role": "user", "content": "Greet."},
                    {"role": "assistant", "content": "Hello!"},
                ]
            },
            {"data": [{"data": [[2]]}]},
        ),
    ],
)
def test_the_request_follows_the_path(endpoint, monkeypatch, path, sent, answer):
    monkeypatch.setenv("VERILOOP_REWARD_URL", endpoint.url + path)
    endpoint.answers[path] = answer
    found = verdict("<think>t</think> Hello!")
    assert found.components == {"raw": 2.0, "squashed": squashed(2.0)} and found.score < 1.0
    assert endpoint.asked[0][2] == {"model": "liking"} | sent


def test_the_scalar_is_squashed_around_its_middle(endpoint):
    endpoint.answers["/classify"] = {"data": [{"probs": [3.0]}]}
    assert verdict(middle=3.0).score == 0.5
    assert verdict(middle=1.0, scale=2.0).score == pytest.approx(0.7310585786)
    assert verdict(scale=0).status == "error"
    assert [squashed(x) for x in (-1e9, 1e9)] == [0.0, 1.0]


def test_the_whole_response_is_read_only_when_asked_for(endpoint):
    verdict("<think>t</think>Hi", read="response")
    assert endpoint.asked[0][2]["input"] == "Greet.\n\n<think>t</think>Hi"
    assert "read must be" in verdict(read="thinking").detail


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"data": []},
        {"data": [{"probs": [1.0, 2.0]}]},
        {"data": [{"probs": ["x"]}]},
        {"data": [{"probs": [1.0]}] * 2},
        {"data": [{"probs": [True]}]},
        '{"data": [{"probs": [NaN]}]}',
        [],
        {"data": [{"label": "good"}]},
    ],
)
def test_an_answer_without_one_number_is_an_error_and_no_zero(endpoint, answer):
    endpoint.answers["/classify"] = answer
    found = verdict()
    assert (found.score, found.status) == (None, "error")


def test_nothing_said_earns_nothing_unasked(endpoint):
    for response in ("", ":", "<think>Hello!</think>", "<think>Hello!"):
        assert verdict(response).score == 0.0
    assert not endpoint.asked
