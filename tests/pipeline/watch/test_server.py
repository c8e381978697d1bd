"""The server: which requests are refused, the frames of its stream, resumption, shutdown."""

import http.client
import json
import threading
import time

import pytest
from starlette.testclient import TestClient

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.watch.server import POLICY, Watch, build
from veriloop.sandbox.remote.sockets import is_own_name


@pytest.fixture
def served(growing):
    growing.step(1)
    with Watch(growing.folder) as watch:
        yield watch


class Stream:
    """Reads the frames of /events as a browser does."""

    def __init__(self, watch, last=""):
        port = watch.socket.getsockname()[1]
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        headers = {"Last-Event-ID": last} if last else {}
        self.connection.request("GET", "/events", headers=headers)
        self.answer = self.connection.getresponse()
        self.last = last

    def frame(self):
        """(event, data) of the next frame with data; None at the end."""
        told = {}
        while line := self.answer.readline().decode():
            key, _, value = line.rstrip("\n").partition(": ")
            if key:
                told[key] = value
            elif "data" in told:
                self.last = told.get("id", self.last)
                return told["event"], json.loads(told["data"])
            else:
                told = {}
        return None

    def until(self, event):
        while (found := self.frame()) is not None:
            if found[0] == event:
                return found[1]
        raise AssertionError(f"the stream ended without {event!r}")

    def close(self):
        self.answer.close()
        self.connection.close()


def test_frames_come_as_steps_are_written(served, growing):
    stream = Stream(served)
    assert stream.answer.getheader("content-type").startswith("text/event-stream")
    assert stream.until("curves")["steps"] == [1]
    growing.step(2)
    began = time.monotonic()
    assert stream.until("curves")["steps"] == [2]
    assert time.monotonic() - began < 2.0
    stream.close()


def test_the_last_id_is_where_another_stream_continues(served, growing):
    first = Stream(served)
    first.until("rollouts")
    first.close()
    growing.step(2)
    second = Stream(served, first.last)
    name, data = second.frame()
    assert (name, data["steps"]) == ("curves", [2])
    second.close()


@pytest.mark.slow
def test_a_pulse_tells_how_long_nothing_came_and_moves_no_id(served):
    stream = Stream(served)
    assert 0 <= stream.until("pulse") < 30
    before = stream.last
    assert stream.until("pulse") > 0 and stream.last == before
    stream.close()


@pytest.mark.slow
def test_several_look_on_at_once(served, growing):
    streams = [Stream(served) for _ in range(5)]
    for stream in streams:
        stream.until("rollouts")
    growing.step(2)
    assert [stream.until("curves")["steps"] for stream in streams] == [[2]] * 5
    for stream in streams:
        stream.close()


def test_it_ends_though_somebody_still_looks_on(growing):
    growing.step(1)
    before = set(threading.enumerate())
    watch = Watch(growing.folder).__enter__()
    stream = Stream(watch)
    stream.until("rollouts")
    began = time.monotonic()
    watch.close()
    assert time.monotonic() - began < 4.0
    while stream.frame() is not None:  # what was sent before, then the end
        pass
    servers = [thread for thread in threading.enumerate() if thread.name == "http-server"]
    assert not set(servers) - before
    stream.close()


def test_nothing_is_written_into_the_run(served, growing):
    before = {path: path.stat().st_mtime_ns for path in growing.folder.rglob("*")}
    stream = Stream(served)
    stream.until("rollouts")
    stream.close()
    assert {path: path.stat().st_mtime_ns for path in growing.folder.rglob("*")} == before


def test_what_cannot_be_watched_is_refused(growing, tmp_path):
    with pytest.raises(RecipeError, match=r"none holds no run: it has no run\.json"):
        Watch(tmp_path / "none")
    with pytest.raises(RecipeError, match="could read the prompts, answers and curves"):
        Watch(growing.folder, host="0.0.0.0")
    watch = Watch(growing.folder, host="0.0.0.0", exposed=True)
    assert watch.url.startswith("http://0.0.0.0:")
    watch.close()


@pytest.mark.parametrize(
    ("name", "host", "ours_is"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.2", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("::1", "127.0.0.1", True),
        ("evil.example", "127.0.0.1", False),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
        ("localhost.evil.example", "127.0.0.1", False),
        ("10.0.0.7", "127.0.0.1", False),
        ("", "127.0.0.1", False),
        ("10.0.0.7", "0.0.0.0", True),
        ("localhost", "0.0.0.0", True),
        ("evil.example", "0.0.0.0", False),
        ("Box.example", "box.example", True),
    ],
)
def test_names_of_this_machine(name, host, ours_is):
    assert is_own_name(name, host) is ours_is


@pytest.fixture
def client(growing):
    growing.step(1)
    return TestClient(build(growing.folder, host="127.0.0.1"), base_url="http://127.0.0.1:8090")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8090", "[::2]:80", "10.0.0.1", ""])
@pytest.mark.parametrize("path", ["/", "/events", "/page.js", "/none"])
def test_a_foreign_name_is_refused_everywhere(client, host, path):
    answer = client.get(path, headers={"host": host})
    assert answer.status_code == 403 and "use the address of 127.0.0.1" in answer.text


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "[::1]:8090", "127.0.0.1"])
def test_any_port_of_loopback_is_ours_for_who_forwards_one(client, host):
    assert client.get("/", headers={"host": host}).status_code == 200


def test_another_sites_page_gets_nothing_but_a_link_works(client):
    foreign = {"sec-fetch-site": "cross-site"}
    assert client.get("/events", headers=foreign).status_code == 403
    assert client.get("/page.js", headers=foreign).status_code == 403
    assert client.get("/", headers=foreign).status_code == 200


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/plotly.js", "/none"])
def test_every_answer_forbids_what_the_page_does_not_need(client, path):
    headers = client.get(path).headers
    assert headers["content-security-policy"] == POLICY and "unsafe-eval" not in POLICY
    assert "script-src 'self';" in POLICY and headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_written(client, method):
    for path in ("/", "/events", "/page.js"):
        assert client.request(method, path).status_code == 405
    assert {client.get(path).status_code for path in ("/docs", "/openapi.json")} == {404}
