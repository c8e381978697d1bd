"""A box without walls for the trusted programs of these tests, and an endpoint that answers."""

import builtins
import contextlib
import io
import json
import marshal
import os
import random
import sys
import threading
import traceback
import types
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from veriloop.sandbox import wire
from veriloop.sandbox.executor import Stdin
from veriloop.sandbox.result import Execution


class OpenBox:
    """An executor that isolates nothing. `ends` maps a source to how its runs end."""

    backend, tier = "open", 0

    def __init__(self):
        self.ends = {}
        self.batches = []  # sizes of what was asked at once
        self.seen = []  # (program, given, limits) of every run
        self.closed = False

    def run(self, program, given, limits):
        self.seen.append((program, given, limits))
        if program.source in self.ends:
            return Execution(ended=self.ends[program.source], why="so the test says")
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out), _restored():
                value = _execute(program.source, given)
        except Exception:  # noqa: BLE001  the program's own
            return Execution(ended="error", exit_code=1, stderr=traceback.format_exc().encode())
        return Execution(ended="ok", exit_code=0, stdout=out.getvalue().encode(), value=value)

    def run_all(self, program, given, limits):
        self.batches.append(len(given))
        return [self.run(program, call, limits) for call in given]

    def close(self):
        self.closed = True


@contextlib.contextmanager
def _restored():
    """What the sides of a trial change of their interpreter, which here is that of the tests."""
    before = os.urandom, random._urandom, random.getstate(), sys.modules.get("solution")
    try:
        yield
    finally:
        os.urandom, random._urandom = before[:2]
        random.setstate(before[2])
        sys.modules.pop("solution", None)
        if before[3] is not None:
            sys.modules["solution"] = before[3]


def _execute(source, given):
    module = types.ModuleType("solution")
    module.__dict__["__builtins__"] = builtins
    code = compile(source, "solution.py", "exec")
    if isinstance(given, Stdin):
        before, sys.stdin = sys.stdin, io.StringIO(given.data.decode())
        try:
            exec(code, module.__dict__)
        finally:
            sys.stdin = before
        return None
    exec(code, module.__dict__)
    function = module.__dict__.get(given.function)
    if function is None and "Solution" not in module.__dict__:
        raise NameError(f"the program defines no {given.function!r}")
    if function is None:
        function = getattr(module.Solution(), given.function)
    args, kwargs = marshal.loads(marshal.dumps([list(given.args), dict(given.kwargs)]))
    return _crossed(function(*args, **kwargs))


def _crossed(value):
    return wire.decode(wire.encode(value), 1 << 20)


@pytest.fixture
def open_box():
    return OpenBox()


@pytest.fixture(scope="session")
def open_box_kind():
    return OpenBox


class Endpoint:
    """An HTTP endpoint whose answers a test sets: `answers` by the end of the path."""

    def __init__(self):
        self.answers = {}  # path's end -> body, or (status, body), or a function of what was sent
        self.asked = []  # (path, headers, body) of every request
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def judge_says(self, content):
        """Set the text of the judge's message, or a function of the messages it gets."""

        def answer(body):
            text = content(body["messages"][1]["content"]) if callable(content) else content
            return {"choices": [{"message": {"content": text}}]}

        self.answers["/chat/completions"] = answer


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, owner, *args):
        self.owner = owner
        super().__init__(*args)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.owner.asked.append((self.path, dict(self.headers), body))
        matches = [a for end, a in self.owner.answers.items() if self.path.endswith(end)]
        answer = matches[0] if matches else (404, "")
        answer = answer(body) if callable(answer) else answer
        status, reply = answer if isinstance(answer, tuple) else (200, answer)
        self.send_response(status)
        self.end_headers()
        self.wfile.write((reply if isinstance(reply, str) else json.dumps(reply)).encode())

    def log_message(self, *_):
        pass


def _paris(user):
    response = user.partition("[begin ")[2]
    return json.dumps({"score": 10 if "Paris" in response else 0, "reason": "it says so"})


def _right_steps(body):
    return {"data": [{"data": [1.0] * body["messages"][1]["content"].count("<extra_0>")}]}


@pytest.fixture
def endpoint(monkeypatch):
    """A judge that wants to read of Paris, and reward models that like everything."""
    endpoint = Endpoint()
    endpoint.judge_says(_paris)
    endpoint.answers["/classify"] = {"data": [{"probs": [0.0]}]}
    endpoint.answers["/steps"] = _right_steps
    for name, value in {
        "VERILOOP_JUDGE_URL": endpoint.url,
        "VERILOOP_JUDGE_MODEL": "judge",
        "VERILOOP_REWARD_URL": f"{endpoint.url}/classify",
        "VERILOOP_REWARD_MODEL": "liking",
        "VERILOOP_PROCESS_URL": f"{endpoint.url}/steps",
        "VERILOOP_PROCESS_MODEL": "steps",
    }.items():
        monkeypatch.setenv(name, value)
    yield endpoint
    endpoint.server.shutdown()
    endpoint.server.server_close()
