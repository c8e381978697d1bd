"""A reward model over HTTP: what the verifier reads is what the model says."""

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import torch
from schemathesis import GenerationMode

from tests.openapi import fuzz
from veriloop.data.preference_ids import encode
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.pipeline.model.scalar_head import ZERO_POINT, load_classifier
from veriloop.stages.commands import serve_reward
from veriloop.stages.commands.serve_reward import RewardServer
from veriloop.verifiers.registry import get, judge
from veriloop.verifiers.reward_model import squashed

ASKED, SAID = {"role": "user", "content": "Greet."}, {"role": "assistant", "content": "Hello!"}


@pytest.fixture(scope="module")
def server(tiny_checkpoint, tmp_path_factory):
    start, folder = tiny_checkpoint(), tmp_path_factory.mktemp("head")
    tokenizer = load_tokenizer(start)
    torch.manual_seed(0)
    model = load_classifier(start, tokenizer)
    setattr(model.config, ZERO_POINT, 0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with RewardServer(folder) as opened:
        yield opened


def asked(server, path, body):
    request = Request(server.url + path, data=body, headers={"Content-Type": "application/json"})
    with urlopen(request, timeout=10) as answer:
        return json.load(answer)["data"][0]


def expected(server, prompt, answer):
    ids = encode(prompt, answer, server.head.tokenizer, (2,))
    return server.head.rewards([ids], TrainerConfig())[0]


def test_messages_and_texts_are_scored_as_the_model_was_trained(server):
    body = json.dumps({"model": "x", "messages": [ASKED, SAID]}).encode()
    wanted = expected(server, (ASKED,), (SAID,))
    assert asked(server, "/pooling", body) == {"data": [pytest.approx(wanted, abs=1e-6)]}
    body = json.dumps({"text_1": "Greet.", "text_2": "Hello!"}).encode()
    plain = expected(server, "Greet.", "Hello!")
    assert asked(server, "/score", body)["score"] == pytest.approx(plain, abs=1e-6) != wanted


@pytest.mark.parametrize("bound", ["drain-s", "queue-bytes"])
def test_a_bound_that_nothing_reads_is_refused(bound, capsys):
    with pytest.raises(SystemExit) as ended:
        serve_reward.command(["serve-reward", "head", f"--bounds.{bound}", "9"])
    assert ended.value.code == 2 and f"--bounds.{bound}" in capsys.readouterr().err


def test_the_verifier_is_served(server, monkeypatch):
    monkeypatch.setenv("VERILOOP_REWARD_URL", server.url + "/pooling")
    monkeypatch.setenv("VERILOOP_REWARD_MODEL", "tiny")
    problem = get("reward_model").problem({"question": "Greet."})
    verdict = judge(problem, "<think>polite</think>Hello!")
    raw = expected(server, (ASKED,), (SAID,))
    assert verdict.components["raw"] == pytest.approx(raw, abs=1e-6)
    assert verdict.score == pytest.approx(squashed(raw), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/classify", b'{"input": "x"}', "no /classify; POST to /pooling or /score"),
        ("/pooling", b"{", "JSONDecodeError"),
        ("/pooling", b"{}", "/pooling takes an object with messages; got {}"),
        ("/score", b'{"text_1": "x"}', "/score takes an object with text_1, text_2; got"),
        ("/score", b"[1]", "/score takes an object with text_1, text_2; got [1]"),
        ("/pooling", b'{"messages": [{"role": "user", "content": "x"}]}', "request 1"),
        ("/score", b'{"text_1": "x", "text_2": ""}', "completion: is empty"),
        ("/score", b"", "a request has 1 to"),
    ],
)
def test_what_cannot_be_scored_is_refused_with_a_reason(server, path, body, message):
    with pytest.raises(HTTPError) as failure:
        asked(server, path, body)
    with failure.value as answer:
        assert answer.code == 400 and message in json.load(answer)["error"]


def status(server, path, body=b"{}", **headers):
    told = {"Content-Type": "application/json"} | {
        key.replace("_", "-"): value for key, value in headers.items()
    }
    try:
        with urlopen(Request(server.url + path, data=body, headers=told), timeout=10) as answer:
            return answer.status
    except HTTPError as failure:
        with failure:
            return failure.code


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b'{"text_1": "x", "text_2": "\\ud800"}', {}, 400),  # no text that can be encoded
        (b'{"text_1": "x", "text_2": NaN}', {}, 400),
        (b"[" * 100_000, {}, 400),
        (b'{"\\ud800": 1}', {}, 400),
        (b" " * (2 << 20), {}, 413),
        (b"{}", {"Host": "rebound.example"}, 400),
        (b"{}", {"Content_Type": "text/plain"}, 415),
    ],
)
def test_hostile_requests_are_refused_as_by_the_reward_service(server, body, headers, code):
    assert status(server, "/score", body, **headers) == code


def test_beyond_loopback_a_token_is_needed(tmp_path):
    with pytest.raises(ValueError, match="is not loopback"):
        RewardServer(tmp_path, "0.0.0.0")


def test_a_full_queue_is_refused_and_metrics_count_it(server, monkeypatch):
    monkeypatch.setattr(server, "_room", 0)
    assert status(server, "/score") == 429
    assert status(server, "/metrics", None) == status(server, "/healthz", None) == 200
    with urlopen(server.url + "/metrics", timeout=10) as answer:
        assert b'code="429"' in answer.read()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/pooling"), ("POST", "/score"), ("GET", "/healthz"), ("GET", "/metrics")],
)
def test_the_openapi_document_is_true(server, method, path):
    fuzz(server.url, method, path, GenerationMode.POSITIVE)


def test_an_answer_beyond_the_positions_of_the_model_is_refused(server):
    with pytest.raises(
        ValueError, match=r"have 2\d,\d{3} tokens, and the reward model has 1,024 pos"
    ):
        server.score("2+2?", "4 " * 10_000)
