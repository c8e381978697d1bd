"""Chains written anew: laid out by rule, or by another model, whose failures leave nothing."""

import json
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from pydantic import ValidationError

from veriloop.data.filters import Sample
from veriloop.pipeline.config.sft import RewriteConfig
from veriloop.pipeline.sft.rewrite import KEY, Chain, format_chain, rewrite_all, split_response

RESPONSE = "<think>First 15-5. Then 10. </think>\n <answer> 10 </answer>"
SAMPLE = Sample(
    question="What is 8+7-5?",
    response=RESPONSE,
    thinking="First 15-5. Then 10. ",
    tokens=12,
    cut_off=False,
    right=True,
    readable=True,
    words=2,
    consistency=1.0,
    distinct=0.9,
)


@pytest.fixture
def model():
    """A server that answers with the contents it is given, in turn, and keeps what it was asked."""
    said, asked = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, self.headers.get("Authorization"), body))
            content = said.pop(0)
            self.send_response(200 if isinstance(content, str) else content)
            self.end_headers()
            answer = {"choices": [{"message": {"content": content}}]}
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1", said, asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_response_is_thinking_and_a_summary():
    assert split_response(RESPONSE) == Chain(thinking="First 15-5. Then 10. ", answer="10")
    boxed = "Well. <think>a\nb</think>\nIt is \\boxed{4}."
    assert split_response(boxed) == Chain(thinking="a\nb", answer="It is \\boxed{4}.")


def test_by_rule_the_summary_follows_the_reasoning():
    tagged = "<think>First 15-5. Then 10. </think><answer>10</answer>"
    assert rewrite_all([SAMPLE, SAMPLE], RewriteConfig()) == [tagged, tagged]
    braces = Chain(thinking="{answer} {x}", answer="\\boxed{4}")
    assert format_chain(braces, "<think>{thinking}</think>\n\n**Answer**: {answer}") == (
        "<think>{answer} {x}</think>\n\n**Answer**: \\boxed{4}"
    )


def test_another_model_rewrites_in_order_and_its_failures_are_none(model, monkeypatch):
    url, said, asked = model
    monkeypatch.setenv(KEY, "secret")
    good = json.dumps({"thinking": "8+7 is 15, less 5 is 10.", "answer": "10"})
    said += [
        good,
        f"<think>hm</think>```json\n{good}\n```",
        "I will not do that.",
        json.dumps({"thinking": "", "answer": "10"}),
        json.dumps({"thinking": "x"}),
        json.dumps(["thinking", "answer"]),
        400,
    ]
    config = RewriteConfig(rewriter=url, model="mine", workers=1)
    made = rewrite_all([SAMPLE] * 7, config)
    line = "<think>8+7 is 15, less 5 is 10.</think><answer>10</answer>"
    assert made == [line, line, None, None, None, None, None]
    path, key, body = asked[0]
    assert path == "/v1/chat/completions" and key == "Bearer secret" and body["model"] == "mine"
    assert body["temperature"] == 0
    told = body["messages"][1]["content"]
    assert "What is 8+7-5?" in told and "First 15-5. Then 10." in told and "10" in told
    mark = told.partition("[begin ")[2][:16]
    assert f"[end {mark}]" in told and mark in body["messages"][0]["content"]


def test_several_at_once_keep_their_order(model):
    url, said, _ = model
    said += [json.dumps({"thinking": "same", "answer": "1"})] * 6
    config = RewriteConfig(rewriter=url, model="mine", workers=3)
    samples = [replace(SAMPLE, question=str(n)) for n in range(6)]
    assert rewrite_all(samples, config) == ["<think>same</think><answer>1</answer>"] * 6


def test_an_unreachable_rewriter_gives_none():
    config = RewriteConfig(rewriter="http://127.0.0.1:9/v1", model="mine", seconds=0.1)
    assert rewrite_all([SAMPLE], config) == [None]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        *(
            ({"layout": layout}, "must contain <think>{thinking}</think> and, after it, {answer}")
            for layout in (
                "{answer} <think>{thinking}</think>",
                "<think>{thinking}</think>",
                "|special|{thinking}|special|{answer}",
                "<think>{thinking}{answer}</think>",
            )
        ),
        ({"rewriter": "http://x/v1"}, "rewriter and model: set both or neither"),
    ],
)
def test_settings_that_do_not_fit_are_refused(values, told):
    with pytest.raises(ValidationError, match=told):
        RewriteConfig(**values)
