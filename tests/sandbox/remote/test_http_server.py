"""The server ends whatever its clients have open, and says so to those that can hear it."""

import asyncio
import socket
import threading

import pytest

from veriloop.sandbox.remote import http_server
from veriloop.sandbox.remote.gate import Gate
from veriloop.sandbox.remote.http_server import HttpServer
from veriloop.sandbox.remote.sockets import LOCAL, listen

HEAD = b"POST /read HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
WAIT = HEAD.replace(b"read", b"wait") + b"Content-Length: 0\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
SENT = {
    "nothing": b"",
    "half a head": HEAD,
    "half a body": HEAD + b"Content-Length: 100\r\n\r\n[",
    "half of a chunked body": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n",
    "a request that takes for ever": WAIT,
    "a request whose response is not read": LARGE,
    "a second request behind a response that is not read": LARGE * 2,
    "a second request that takes for ever behind a response that is not read": LARGE + WAIT,
}


async def app(scope, receive, send):
    if scope["path"] == "/wait":
        await asyncio.sleep(3600)
    await receive()
    body = b"x" * (32 << 20 if scope["path"] == "/large" else 1)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body, "more_body": False})


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(http_server, "_END_S", 20.0)  # `close` raises after twice as long
    monkeypatch.setattr(http_server, "GRACE_S", 0.2)
    gate = Gate(app, body_bytes=1000, body_s=3600.0)
    running = HttpServer(gate, listen(LOCAL, 0), log_level="critical")
    running.start()
    yield running
    running.close()


@pytest.fixture
def connect(server):
    """Function: bytes to send -> a connection that has sent them; all are open until the end."""
    opened = []

    def send(sent):
        connection = socket.socket()
        opened.append(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(server.socket.getsockname())
        connection.sendall(sent)
        return connection

    yield send
    for connection in opened:
        connection.close()


def rest(connection):
    """All that comes until the other side hangs up."""
    received = b""
    try:
        while more := connection.recv(1 << 16):
            received += more
    except ConnectionResetError:
        pass
    return received


def until(condition):
    async def wait():
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.01)

    asyncio.run(wait())


def begun(server, sent):
    """Whether the server has come as far as it can with what was sent."""
    state = server.server_state
    if sent.startswith("a second"):
        return state.total_requests and state.tasks
    if "response" in sent:
        return state.total_requests
    return state.tasks or (state.connections and (sent == "nothing" or "head" in sent))


def ended(server):
    server.close()
    return server._thread is None and not server.force_exit and not server.server_state.tasks


@pytest.mark.parametrize("sent", SENT)
def test_the_server_ends_whatever_its_client_has_sent(server, connect, sent):
    connection = connect(SENT[sent])
    until(lambda: begun(server, sent))
    assert ended(server)
    received = rest(connection)
    if "body" in sent or sent.endswith("for ever"):
        assert received.startswith(b"HTTP/1.1 503") and b"the service went down" in received
        assert b"retry-after: 1" in received
    elif "not read" not in sent:
        assert received == b""


def test_the_server_ends_with_an_idle_connection_and_one_that_begins_again(server, connect):
    request = HEAD + b"Content-Length: 2\r\n\r\n[]"
    idle, again = connect(request), connect(request)
    for connection in (idle, again):
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    again.sendall(HEAD)
    assert ended(server)
    assert b"HTTP" not in rest(idle) + rest(again)


def test_many_connections_end_together(server, connect):
    connections = [connect(sent) for sent in SENT.values() for _ in range(3)]
    until(lambda: len(server.server_state.connections) == len(connections))
    assert ended(server)
    assert not server.server_state.connections


def test_a_server_that_does_not_end_says_where_it_is(server, monkeypatch):
    release = threading.Event()

    async def block(*_):
        release.wait(20)
        return True

    monkeypatch.setattr(server, "on_tick", block)
    with monkeypatch.context() as patch:
        patch.setattr(http_server, "_END_S", 0.2)
        patch.setattr(http_server, "_START_S", 0.2)
        with pytest.raises(RuntimeError, match=f"{server.url} did not end within 0.2 s") as raised:
            server.close()
    release.set()
    assert "release.wait(20)" in str(raised.value)
