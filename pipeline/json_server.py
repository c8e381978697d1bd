"""JSON in, JSON out over HTTP: what the small servers of a model have in common."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class JsonServer(ThreadingHTTPServer):
    """Answers each POST with what `answer` makes of its JSON, and a mistake in it with 400."""

    daemon_threads = True
    largest = 1 << 20  # bytes of a request

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def answer(self, path: str, asked: Any) -> Any:
        """What is sent back, as JSON has it. Raises ValueError, KeyError or TypeError for what
        cannot be answered."""
        raise NotImplementedError


class _Handler(BaseHTTPRequestHandler):
    server: JsonServer  # type: ignore[assignment]

    def do_POST(self) -> None:
        try:
            size, most = int(self.headers.get("Content-Length", 0)), self.server.largest
            if not 0 < size <= most:
                raise ValueError(f"a request has 1 to {most} bytes, got {size}")
            asked = json.loads(self.rfile.read(size))
            self._send(200, self.server.answer(self.path, asked))
        except (ValueError, KeyError, TypeError) as mistake:
            self._send(400, {"error": f"{type(mistake).__name__}: {mistake}"})

    def _send(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of each request."""
