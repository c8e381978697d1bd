"""A reward service in this process, one that follows a script, and a client that hides nothing."""

import http.client
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from veriloop.verifiers.service import server
from veriloop.verifiers.service.middleware import Bounds
from veriloop.verifiers.service.server import RewardService, Settings

PLUGIN = str(Path(__file__).parents[1] / "misbehaving.py")
VERDICT = {"score": 1.0, "status": "graded", "answer": "1", "detail": ""}
VERDICT |= {"components": {}, "queue_s": 0.0, "exec_s": 0.0}
LISTED = {"verifiers": [{"name": "number", "fingerprint": "1+a"}]}


def answered(count, told="1+a"):
    return {"verdicts": [VERDICT] * count, "judged_by": {"verifiers": {"number": told}}}


def fine(body):
    return answered(len(body["items"]))


class Answer:
    """Status, headers in lower case, and body of one answer."""

    def __init__(self, response):
        self.status = response.status
        self.headers = {key.lower(): value for key, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)


@pytest.fixture(scope="session")
def ask():
    """Function: one request to a service, on a connection of its own."""

    def send(url, path, data=None, *, headers=None, method=None):
        parts = urlsplit(url)
        body = data if data is None or isinstance(data, bytes) else json.dumps(data).encode()
        told = {"Content-Type": "application/json"} | (headers or {})
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        try:
            connection.request(method or ("GET" if data is None else "POST"), path, body, told)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    return send


@pytest.fixture(scope="session")
def open_service():
    """Function: settings for a quick service -> the service, not started."""

    def build(**changes):
        settings = {
            "verifiers": ("number", "think_format", "misbehaves"),
            "plugins": [PLUGIN],
            "limit_s": 0.8,
            "memory_mb": 1024,
            "bounds": Bounds(body_bytes=1 << 20, body_s=2.0, request_s=20.0, queue_items=64),
        }
        return RewardService(Settings(**settings | changes))

    return build


@pytest.fixture(scope="session")
def service(open_service, open_box_kind):
    """One for all tests that do not change it; it runs programs in a box without walls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "open_backend", lambda setting, slots: open_box_kind())
        opened = open_service(sandbox="open")
    with opened:
        yield opened


@pytest.fixture(scope="session")
def number():
    """Function: an item of the verifier `number`."""

    def item(value, answer=None, **rest):
        response = f"<answer>{value if answer is None else answer}</answer>"
        return {
            "verifier": "number",
            "reference": {"value": str(value)},
            "response": response,
        } | rest

    return item


@pytest.fixture(scope="session")
def acts():
    """Function: an item whose verifier does what it says."""

    def item(response, **rest):
        return {"verifier": "misbehaves", "response": response, "reference": {}} | rest

    return item


@pytest.fixture
def scripted():
    """Function: a server that gives these answers to POST, one after the other; also its calls.

    An answer is (status, JSON, headers), None to hang up, or "hang" for none before the test ends;
    the last one is repeated. `listed`: the answer to GET, with status 200.
    """
    servers, over = [], threading.Event()

    def start(*script, listed=LISTED):
        calls, left = [], list(script)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.tell(200, listed, {})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                calls.append((time.monotonic(), body, dict(self.headers), self.client_address))
                answer = left.pop(0) if len(left) > 1 else left[0]
                if answer in (None, "hang"):
                    if answer:
                        over.wait()
                    self.close_connection = True
                    return
                status, data, headers = answer
                self.tell(status, data(body) if callable(data) else data, headers)

            def tell(self, status, data, headers):
                raw = data if isinstance(data, bytes) else json.dumps(data).encode()
                self.send_response(status)
                for key, value in {"Content-Length": str(len(raw)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_):
                pass

        opened = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        opened.daemon_threads = True
        threading.Thread(target=opened.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(opened)
        return f"http://127.0.0.1:{opened.server_port}", calls

    yield start
    over.set()
    for opened in servers:
        opened.shutdown()
        opened.server_close()
