"""A checkpoint is served while a block lasts, by either engine, and ended with it."""

import json
import sys
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from pipeline import serving
from pipeline.config import SamplerConfig
from pipeline.failures import StageError

TORCH = SamplerConfig(engine="torch")
HEALTHY = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def post(url, body):
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(url, data=json.dumps(body).encode(), headers=headers), timeout=30) as said:
        return json.load(said)


@pytest.mark.slow
def test_the_torch_sampler_answers_over_http(tiny_checkpoint, tmp_path):
    with serving.served(tiny_checkpoint(), TORCH, 64, tmp_path / "log") as url:
        body = {"prompt": ["1+2=", "3"], "max_tokens": 4, "temperature": 0, "model": "mine"}
        answer = post(f"{url}/v1/completions", body)
        assert answer["model"] == "mine" and len(answer["choices"]) == 2
        for path, wrong in (("/v1/completions", {"prompt": "1", "top_k": 1}), ("/v1/other", body)):
            with pytest.raises(HTTPError) as refusal:
                post(f"{url}{path}", wrong)
            assert refusal.value.code == 400
            assert (
                "top_k" if "other" not in path else "no /v1/other"
            ) in refusal.value.read().decode()
            refusal.value.close()
    with pytest.raises(URLError):
        post(f"{url}/v1/completions", body)


@pytest.fixture
def vllm(monkeypatch, tmp_path):
    """Function: serve by this program instead of vLLM."""
    config = SamplerConfig(engine="vllm")

    def opened(program):
        words = lambda *_: [sys.executable, "-c", program, str(_[-1])]  # noqa: E731
        monkeypatch.setattr(serving, "vllm_words", words)
        return serving.served(tmp_path, config, 64, tmp_path / "vllm.log")

    return opened


def test_the_process_is_waited_for_and_ended(vllm):
    with vllm(HEALTHY) as url, urlopen(f"{url}/health", timeout=5) as said:
        assert said.status == 200
    with pytest.raises(URLError):
        urlopen(f"{url}/health", timeout=5)


@pytest.mark.slow
def test_a_process_that_will_not_end_is_killed(vllm, monkeypatch):
    monkeypatch.setattr(serving, "END_S", 0.3)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + HEALTHY
    with vllm(deaf) as url:
        pass
    with pytest.raises(URLError):
        urlopen(f"{url}/health", timeout=5)


def test_a_process_that_ends_early_is_told_with_its_last_words(vllm):
    failing = vllm("raise SystemExit('no room for the model')")
    with pytest.raises(StageError, match=r"vllm\.log ends with: no room for the model"), failing:
        pass


@pytest.mark.slow
def test_a_process_that_never_answers_is_given_up(vllm, monkeypatch):
    monkeypatch.setattr(serving, "START_S", 0.3)
    with pytest.raises(StageError, match="does not answer"), vllm("import time; time.sleep(60)"):
        pass


@pytest.mark.slow
@pytest.mark.vllm
def test_vllm_answers_as_the_torch_sampler_does(tiny_checkpoint, tmp_path):
    pytest.importorskip("vllm")
    continued = {"prompt": ["1+2=", "What is 3+4?"], "max_tokens": 8, "temperature": 0}
    scored = {"prompt": [[1, 40, 41, 42]], "max_tokens": 1, "temperature": 0, "echo": True}
    said = {}
    for engine in ("torch", "vllm"):
        config = SamplerConfig(engine=engine, cache_gib=0.1, max_batch=8)
        with serving.served(tiny_checkpoint(), config, 64, tmp_path / "log") as url:
            named = {"model": str(tiny_checkpoint()), "seed": 1}
            texts = post(f"{url}/v1/completions", continued | named)["choices"]
            (one,) = post(f"{url}/v1/completions", scored | named | {"logprobs": 1})["choices"]
        said[engine] = [choice["text"] for choice in texts], one["logprobs"]
    assert said["torch"][0] == said["vllm"][0]
    for ours, theirs in zip(
        said["torch"][1]["token_logprobs"][1:], said["vllm"][1]["token_logprobs"][1:], strict=True
    ):
        assert ours == pytest.approx(theirs, abs=1e-3)
    tops = [
        [max(top.values()) for top in logprobs["top_logprobs"][1:]] for _, logprobs in said.values()
    ]
    assert tops[0] == pytest.approx(tops[1], abs=1e-3)


def test_vllm_is_told_what_the_recipe_says(tmp_path):
    config = SamplerConfig(engine="vllm", dtype="bfloat16", cache_gib=0.5, max_batch=7)
    words = serving.vllm_words(tmp_path, config, 96, 8123)
    said = dict(zip(words[3:-1:2], words[4::2], strict=False))
    assert said["--model"] == str(tmp_path) and said["--port"] == "8123"
    assert (said["--dtype"], said["--max-model-len"], said["--max-num-seqs"]) == (
        "bfloat16",
        "96",
        "7",
    )
    assert said["--kv-cache-memory-bytes"] == str(2**29)
    assert said["--generation-config"] == "vllm"
