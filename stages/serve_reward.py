"""A trained reward model behind HTTP, in the forms that the verifier `reward_model` asks in.

POST /pooling takes {"messages": [user, assistant]}, POST /score {"text_1": prompt, "text_2":
answer}; both answer with one scalar, less the zero point. /classify is refused: it is sent prompt
and answer as one text, and the model was trained on ids that keep them apart.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

import tyro

from data.preference_ids import encode
from data.preferences import Labelled, checked
from pipeline.config import TrainerConfig
from pipeline.preference.scalar_head import ScalarHead

LARGEST = 1 << 20  # bytes of a request


@dataclass(frozen=True, kw_only=True)
class Options:
    """Serve a reward model that `veriloop reward-model` has trained."""

    folder: tyro.conf.Positional[str]
    host: str = "127.0.0.1"
    port: int = 8090  # 0: a free one


class RewardServer(ThreadingHTTPServer):
    """Scores one answer at a time, whoever asks."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], folder: Path) -> None:
        self.head, self._one = ScalarHead(folder), Lock()
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def score(self, prompt: Any, answer: Any) -> float:
        """The centred reward. Raises ValueError for what is no prompt with an answer."""
        (row,) = checked([{"prompt": prompt, "completion": answer, "label": True}], "request")
        assert isinstance(row, Labelled)
        ids = encode(row.prompt, row.completion, self.head.tokenizer, self.head.ends)
        with self._one:
            return self.head.rewards([ids], TrainerConfig())[0]


class _Handler(BaseHTTPRequestHandler):
    server: RewardServer  # type: ignore[assignment]

    def do_POST(self) -> None:
        try:
            size = int(self.headers.get("Content-Length", 0))
            if not 0 < size <= LARGEST:
                raise ValueError(f"a request has 1 to {LARGEST} bytes, got {size}")
            asked = json.loads(self.rfile.read(size))
            self._answer(200, {"data": [self._entry(asked)]})
        except (ValueError, KeyError, TypeError) as mistake:
            self._answer(400, {"error": f"{type(mistake).__name__}: {mistake}"})

    def _entry(self, asked: Any) -> dict[str, Any]:
        if self.path == "/pooling":
            messages = asked["messages"]
            return {"data": [self.server.score(messages[:-1], messages[-1:])]}
        if self.path == "/score":
            return {"score": self.server.score(asked["text_1"], asked["text_2"])}
        raise ValueError(f"no {self.path}; POST to /pooling or /score")

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of each request."""


def command(words: Sequence[str]) -> int:
    """`veriloop serve-reward FOLDER`: serve until Ctrl-C."""
    options = tyro.cli(Options, args=list(words[1:]), prog="veriloop serve-reward")
    with RewardServer((options.host, options.port), Path(options.folder)) as server:
        print(f"reward model {options.folder} at {server.url}/pooling and /score", flush=True)
        server.serve_forever()
    return 0


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["serve-reward", *sys.argv[1:]]))
