"""`veriloop serve-reward`: a reward model over HTTP, as the verifier `reward_model` calls it.

POST /pooling takes {"messages": [user, assistant]}, POST /score {"text_1": prompt, "text_2":
response}; both return one scalar, the reward minus the zero point. /classify is refused: it gets
prompt and response as one text, and the model was trained on token ids that keep them apart.
"""

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel

from veriloop.data.preference_ids import encode
from veriloop.data.preferences import Labelled, parse_rows
from veriloop.pipeline.config.checkpoints import find_checkpoint
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.scalar_head import ScalarHead
from veriloop.sandbox.remote.http_server import HttpServer
from veriloop.sandbox.remote.off_loop import in_process
from veriloop.sandbox.remote.refusal import Refusal
from veriloop.sandbox.remote.responses import EVERY, refusals
from veriloop.sandbox.remote.sockets import LOCAL, listen, require_token
from veriloop.stages.commands.parse import parse_options
from veriloop.stages.commands.serving import serving_on, token_of
from veriloop.verifiers.service.app import guard
from veriloop.verifiers.service.metrics import Metrics
from veriloop.verifiers.service.middleware import GateBounds
from veriloop.verifiers.service.routes import as_json

_SHOWN = 500  # characters of an error
USUAL = GateBounds(body_bytes=1 << 20, queue_items=256)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Serve a reward model that `veriloop reward-model` has trained."""

    folder: tyro.conf.Positional[str]
    host: str = LOCAL  # any other than loopback needs a token
    port: int = 8090  # 0: a free one
    hosts: tuple[str, ...] = ()  # further names that clients may use in the Host header
    token_variable: str = ""  # environment variable with the bearer token that clients must send
    token_file: str = ""  # file with the token in its first line
    bounds: GateBounds = field(default_factory=lambda: USUAL)


class Mistake(BaseModel):
    """Why a request cannot be scored; `detail` where the gate refuses it."""

    error: str = ""
    detail: str = ""


class RewardServer(HttpServer):
    """Scores one response at a time, behind the gate of `veriloop serve`.

    Raises ValueError for a host beyond loopback without a token, OSError for an address in use.
    """

    def __init__(
        self,
        folder: Path,
        host: str = LOCAL,
        port: int = 0,
        *,
        hosts: Sequence[str] = (),
        token: str = "",
        bounds: GateBounds = USUAL,
    ) -> None:
        require_token(host, token)
        sock = listen(host, port)
        try:
            self.head = ScalarHead(folder)
        except BaseException:
            sock.close()
            raise
        self._thread_of_model = ThreadPoolExecutor(1)
        self._room = bounds.queue_items
        self._depth = 0  # requests that wait or are scored
        self._body_bytes = bounds.body_bytes
        metrics = Metrics()
        metrics.watch(lambda: self._depth, lambda: 0)
        app = self._app(metrics)
        guard(
            app,
            bounds=bounds,
            metrics=metrics,
            admit=self._admit,
            host=host,
            hosts=hosts,
            token=token,
        )
        super().__init__(app, sock)

    def close(self) -> None:
        """Stop. Harmless when repeated."""
        super().close()
        self._thread_of_model.shutdown()

    def _app(self, metrics: Metrics) -> FastAPI:
        app = FastAPI(
            title="veriloop reward model", version="1", redoc_url=None, responses=refusals(*EVERY)
        )
        refused: dict[int | str, dict[str, Any]] = {400: {"model": Mistake}}
        refused |= refusals(401, 408, 413, 415, 429, 503, 504)
        for path, example in _EXAMPLES.items():
            content = {"application/json": {"schema": {"type": "object"}, "example": example}}
            extra = {"requestBody": {"content": content, "required": True}}
            app.add_api_route(
                path,
                self._answer,
                methods=["POST"],
                response_model=dict[str, list[Any]],
                responses=refused,
                openapi_extra=extra,
            )

        @app.get("/healthz")
        async def healthz() -> dict[str, str]:
            """The process is alive."""
            return {"status": "alive"}

        @app.get("/metrics", response_class=PlainTextResponse)
        async def metrics_text() -> PlainTextResponse:
            """Metrics in Prometheus' text format."""
            return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

        app.add_api_route("/{path:path}", self._answer, methods=["POST"], include_in_schema=False)
        return app

    def _admit(self, path: str) -> Refusal | None:
        del path
        if self._depth < self._room:
            return None
        return Refusal(429, f"{self._depth} requests wait already", 1.0)

    async def _answer(self, request: Request) -> Response:
        """One scalar, the reward minus the zero point."""
        self._depth += 1
        try:
            raw = await request.body()
            if not raw:
                raise ValueError(f"a request has 1 to {self._body_bytes} bytes, got 0")
            value = await in_process(len(raw), json.loads, raw)
            loop = asyncio.get_running_loop()
            path = request.url.path.lstrip("/")
            row = await loop.run_in_executor(self._thread_of_model, self._row, path, value)
            return as_json({"data": [row]})
        except (ValueError, KeyError, TypeError, RecursionError, RecipeError) as mistake:
            return as_json({"error": f"{type(mistake).__name__}: {mistake}"[:_SHOWN]}, 400)
        finally:
            self._depth -= 1

    def _row(self, path: str, body: Any) -> dict[str, Any]:
        """Raises ValueError, KeyError or TypeError for a request that cannot be scored."""
        needed = {"pooling": ("messages",), "score": ("text_1", "text_2")}.get(path)
        if needed is None:
            raise ValueError(f"no /{path}; POST to /pooling or /score")
        if not isinstance(body, dict) or not body.keys() >= set(needed):
            raise ValueError(f"/{path} takes an object with {', '.join(needed)}; got {body!r:.60}")
        if path == "pooling":
            messages = body["messages"]
            return {"data": [self.score(messages[:-1], messages[-1:])]}
        return {"score": self.score(body["text_1"], body["text_2"])}

    def score(self, prompt: Any, response: Any) -> float:
        """The centred reward. Raises ValueError for what is no prompt with a response."""
        (row,) = parse_rows([{"prompt": prompt, "completion": response, "label": True}], "request")
        assert isinstance(row, Labelled)
        ids = encode(row.prompt, row.completion, self.head.tokenizer, self.head.ends)
        if excess := self.head.beyond_positions(ids):
            raise ValueError(excess)
        return self.head.rewards([ids], TrainerConfig())[0]


_EXAMPLES = {
    "/pooling": {
        "messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    },
    "/score": {"text_1": "2+2?", "text_2": "4"},
}


def command(words: Sequence[str]) -> int:
    """`veriloop serve-reward FOLDER`: serve until Ctrl-C.

    Raises RecipeError for a host beyond loopback without a token, and for an address in use.
    """
    options = parse_options(Options, words)
    token = token_of(options.token_variable, options.token_file)
    folder = find_checkpoint(options.folder, "FOLDER")
    with serving_on(options.host, options.port):
        server = RewardServer(
            folder,
            options.host,
            options.port,
            hosts=options.hosts,
            token=token,
            bounds=options.bounds,
        )
    print(f"reward model {options.folder} at {server.url}/pooling and /score", flush=True)
    try:
        server.serve_forever()
    finally:
        server.close()
    return 0
