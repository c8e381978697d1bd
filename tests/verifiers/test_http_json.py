"""Requests to a judge or reward model: kept connections, and errors that say what is wrong."""

import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from veriloop.verifiers import http_json
from veriloop.verifiers.http_json import EndpointError, post


@pytest.fixture
def echo():
    """A server that answers with the client's port; also whether it shall answer too much."""
    state = {"size": 0}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"port": self.client_address[1], "rest": "x" * state["size"]})
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/score", state
    http_json._client(os.getpid()).close()
    http_json._client.cache_clear()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_connection_is_kept_and_a_forked_process_opens_its_own(echo):
    url, _ = echo
    first = post(url, {}, seconds=5)["port"]
    assert post(url, {}, seconds=5)["port"] == first
    child = os.fork()
    if not child:
        os._exit(int(post(url, {}, seconds=5)["port"] == first))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert post(url, {}, seconds=5)["port"] == first


def test_a_response_is_bounded(echo, monkeypatch):
    url, state = echo
    state["size"] = 200
    monkeypatch.setattr(http_json, "MAX_BYTES", 100)
    with pytest.raises(EndpointError, match="the answer is no JSON"):
        post(url, {}, seconds=5)


@pytest.mark.parametrize("url", ["nowhere", "ftp://127.0.0.1/", "http://[::1"])
def test_an_address_that_is_none_is_not_tried_again(url, monkeypatch):
    # Not time.sleep itself: threads of worker pools sleep too.
    without_sleep = SimpleNamespace(monotonic=time.monotonic)
    monkeypatch.setattr(http_json, "time", without_sleep)
    with pytest.raises(EndpointError, match=r"(missing|unsupported|Invalid|port)"):
        post(url, {}, seconds=5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "url", ["http://anna:hunter2hunter2@127.0.0.1:9/v1", "ftp://x?key=hunter2"]
)
def test_an_error_shows_no_credentials_of_the_address(url):
    with pytest.raises(EndpointError, match=r"\*\*\*") as failure:
        post(url, {}, seconds=1)
    assert "hunter2" not in str(failure.value)
