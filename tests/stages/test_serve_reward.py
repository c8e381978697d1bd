"""A reward model over HTTP: what the verifier reads is what the model says."""

import json
import threading
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import torch

from data.preference_ids import encode
from pipeline.config import TrainerConfig
from pipeline.policy import load_tokenizer
from pipeline.preference.scalar_head import ZERO_POINT, load_classifier
from stages.serve_reward import RewardServer
from verifiers.registry import get, judge
from verifiers.reward_model import squashed

ASKED, SAID = {"role": "user", "content": "Greet."}, {"role": "assistant", "content": "Hello!"}


@pytest.fixture(scope="module")
def server(tiny_checkpoint, tmp_path_factory):
    start, folder = tiny_checkpoint(), tmp_path_factory.mktemp("head")
    spelling = load_tokenizer(start)
    torch.manual_seed(0)
    model = load_classifier(start, spelling)
    setattr(model.config, ZERO_POINT, 0.5)
    model.save_pretrained(folder)
    spelling.save_pretrained(folder)
    with RewardServer(("127.0.0.1", 0), folder) as opened:
        threading.Thread(target=opened.serve_forever, daemon=True).start()
        yield opened
        opened.shutdown()


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
        ("/pooling", b"{}", "KeyError"),
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
