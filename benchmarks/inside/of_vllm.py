"""Inside vLLM's server: a checkpoint of ours answers over HTTP as our own torch sampler does.

python benchmarks/inside/of_vllm.py CHECKPOINT EXPECTED

The server is started by its module: the `vllm` command of the CPU wheel fails, since it looks for
the metadata of a package named vllm.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from claims import Claims

START_S = 300
QUIET = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}


@contextmanager
def serving(checkpoint: str) -> Iterator[str]:
    """The address of a server in a separate process, once it is healthy."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", checkpoint]
    words += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
    words += ["--served-model-name", "ours"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as output:
            server = subprocess.Popen(words, stdout=output, stderr=output, env=os.environ | QUIET)
        try:
            until_well(url, server, log)
            yield url
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)


def until_well(url: str, server: subprocess.Popen[Any], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit(f"vLLM's server did not start:\n{log.read_text()[-3000:]}")


def ask(url: str, path: str, **body: Any) -> Any:
    """The choice of a greedy completion, with prompt and completion ids."""
    payload = {"model": "ours", "temperature": 0, "return_token_ids": True, **body}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(payload).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def main(checkpoint: str, expected: str) -> None:
    claims = Claims(
        "api_server, /v1/completions, /v1/chat/completions", ("vllm-cpu", "transformers", "torch")
    )
    rows = json.loads(Path(expected).read_text())
    wanted = [row["answer"] for row in rows]
    with serving(checkpoint) as url:
        plain = [
            ask(url, "/v1/completions", prompt=row["prompt"], max_tokens=row["max_tokens"])
            for row in rows
        ]
        talk = [
            ask(
                url, "/v1/chat/completions", messages=row["messages"],
                max_tokens=row["max_tokens"],
            )
            for row in rows
        ]  # fmt: skip
    came = [answer["choices"][0]["token_ids"] for answer in plain]
    claims.holds("greedy answers to our prompts are ours, ended alike", came, wanted)
    ends = [answer["choices"][0]["finish_reason"] for answer in plain]
    claims.holds("for the same reason", ends, [row["finish"] for row in rows])
    prompts = [answer["prompt_token_ids"] for answer in talk]
    claims.holds("its chat gives our prompts", prompts, [row["prompt"] for row in rows])
    came = [answer["choices"][0]["token_ids"] for answer in talk]
    claims.holds("and our answers", came, wanted)
    claims.tell()


if __name__ == "__main__":
    main(*sys.argv[1:])
