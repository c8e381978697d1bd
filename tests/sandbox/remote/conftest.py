"""A server of the API that misbehaves as it is told, on a raw socket so that nothing mends it."""

import json
import re
import socket
import struct
import threading
from contextlib import suppress

import pytest

from veriloop.sandbox.remote.client import RemoteExecutor


def http(body, status="200 OK", more=""):
    """One whole HTTP response."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw


def reply(stdout="", status="Success", **ran):
    """A response as the stock server gives it."""
    usual = {"status": "Finished", "execution_time": 0.01, "return_code": 0, "stderr": ""}
    return {
        "status": status, "message": "", "compile_result": None,
        "run_result": {**usual, "stdout": stdout, **ran}, "executor_pod_name": None, "files": {},
    }  # fmt: skip


class Fake:
    """Answers request k with `answers[k]`, the last one again and again; counts everything.

    An answer is bytes to send, a function of (the connection, the request's JSON) that returns
    bytes or None, or None: the connection is hung up.
    """

    def __init__(self):
        self.answers = [http(reply())]
        self.asked = []  # the JSON of each request
        self.heads = []  # its head, as text
        self.connections = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._open = []
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def close(self):
        self._over.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listening.close()

    def wait(self, seconds):
        """Sleep, unless the test is over."""
        self._over.wait(seconds)

    def _accept(self):
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            try:
                while (body := self._read(stream)) is not None:
                    answer = self._next(body)
                    if callable(answer):
                        answer = answer(connection, body)
                    if answer is None:
                        return
                    connection.sendall(answer)
            except OSError:
                pass  # the client has gone

    def _read(self, stream):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = stream.readline()
            if not line:
                return None
            head += line
        length = int(re.search(rb"(?i)content-length: (\d+)", head).group(1))
        self.heads.append(head.decode())
        return json.loads(stream.read(length))

    def _next(self, body):
        with self._lock:
            self.asked.append(body)
            return self.answers[min(len(self.asked), len(self.answers)) - 1]


def reset(connection, body):
    """Hang up with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.fixture
def fake():
    server = Fake()
    yield server
    server.close()


@pytest.fixture
def client(fake):
    """Make clients of the fake server; all are closed at the end."""
    made = []

    def make(**options):
        made.append(RemoteExecutor(fake.url, **{"slots": 1, "jitter_s": 0.0, **options}))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def answers():
    """How to write a response: (http, reply, reset)."""
    return http, reply, reset
