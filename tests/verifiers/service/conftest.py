"""A reward service in this process, and a client that hides nothing of its answers."""

import http.client
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from veriloop.verifiers.service import server
from veriloop.verifiers.service.middleware import Bounds
from veriloop.verifiers.service.server import RewardService, Settings

PLUGIN = str(Path(__file__).parents[1] / "misbehaving.py")


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
