"""The stream over HTTP: its frames, going on by the last id, and an end that waits for nobody."""

import http.client
import json
import threading
import time

import pytest

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.watch.server import Watch


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


def test_the_last_id_is_where_another_stream_goes_on(served, growing):
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
