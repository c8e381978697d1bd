"""The gate: tokens, bounds on bodies and time, and refusals that come at once."""

import http.client
import json
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest

from veriloop.sandbox.remote.sockets import loopback
from veriloop.verifiers.service.middleware import Bounds
from veriloop.verifiers.service.server import Settings


def raw(url, head, body=b"", wait_s=5.0):
    """Send bytes as they are; returns all that comes back until the other side hangs up."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=wait_s) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + body)
        told = b""
        while more := connection.recv(1 << 16):
            told += more
    return told.decode()


@pytest.fixture(scope="module")
def guarded(open_service):
    bounds = Bounds(body_bytes=2000, body_s=0.5, request_s=0.5, queue_items=4)
    with open_service(token="secret", limit_s=3.0, bounds=bounds) as service:
        yield service


@pytest.fixture
def mine():
    return {"Authorization": "Bearer secret"}


@pytest.mark.parametrize("told", ["", "Bearer secrets", "Bearer ", "secret", "bearer secret"])
def test_without_the_token_nobody_is_answered(ask, guarded, number, told):
    answer = ask(guarded.url, "/v1/verify", {"items": [number(1)]}, headers={"Authorization": told})
    assert answer.status == 401 and "token" in answer.json["detail"]
    assert ask(guarded.url, "/metrics", headers={"Authorization": told}).status == 401


def test_probes_need_no_token(ask, guarded, mine, number):
    assert ask(guarded.url, "/healthz").status == ask(guarded.url, "/readyz").status == 200
    answer = ask(guarded.url, "/v1/verify", {"items": [number(1)]}, headers=mine)
    assert answer.status == 200 and ask(guarded.url, "/metrics", headers=mine).status == 200


def test_a_body_that_is_no_json_by_its_type_is_refused(ask, guarded, mine):
    told = mine | {"Content-Type": "text/plain"}
    answer = ask(guarded.url, "/v1/verify", {"items": []}, headers=told)
    assert answer.status == 415 and "text/plain" in answer.json["detail"]


@pytest.mark.slow
def test_a_body_too_large_is_refused_told_or_not(ask, guarded, mine, number):
    items = {"items": [number(1, prompt="x" * 3000)]}
    told = ask(guarded.url, "/v1/verify", items, headers=mine)
    assert told.status == 413 and "2000" in told.json["detail"]
    head = (
        "POST /v1/verify HTTP/1.1\nHost: localhost\nAuthorization: Bearer secret\n"
        "Content-Type: application/json\nTransfer-Encoding: chunked\n\n"
    )
    untold = raw(guarded.url, head, b"bb8\r\n" + b" " * 3000 + b"\r\n")
    assert untold.startswith("HTTP/1.1 413") and "connection: close" in untold.lower()


@pytest.mark.slow
def test_a_body_that_does_not_come_is_not_waited_for(guarded):
    head = (
        "POST /v1/verify HTTP/1.1\nHost: localhost\nAuthorization: Bearer secret\n"
        "Content-Type: application/json\nContent-Length: 50\n\n"
    )
    began = time.monotonic()
    told = raw(guarded.url, head, b"{")
    assert told.startswith("HTTP/1.1 408") and 0.4 < time.monotonic() - began < 3.0


def test_a_refusal_leaves_the_connection_usable(guarded):
    parts = urlsplit(guarded.url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    for _ in range(3):
        connection.request("POST", "/v1/verify", b'{"items": []}', {"Content-Type": "text/plain"})
        answer = connection.getresponse()
        assert answer.status == 401 and answer.read()
        assert connection.sock is not None
    connection.close()


@pytest.mark.slow
def test_an_answer_that_takes_too_long_is_a_504_and_the_same_id_gets_it_later(
    ask, guarded, mine, acts
):
    batch = {"items": [acts("work", id="late")], "request_id": "late"}
    first = ask(guarded.url, "/v1/verify", batch, headers=mine)
    assert first.status == 504 and first.headers["retry-after"] == "1"
    time.sleep(0.8)
    later = ask(guarded.url, "/v1/verify", batch, headers=mine)
    assert later.status == 200 and later.json["verdicts"][0]["score"] == 1.0


@pytest.mark.slow
def test_a_stream_may_deliver_for_longer_than_a_response_may_take_to_begin(
    ask, guarded, mine, acts
):
    items = [acts("work", id=f"stream {n}") for n in range(2)]
    told = ask(guarded.url, "/v1/verify", {"items": items, "stream": True}, headers=mine)
    assert told.status == 200
    assert [json.loads(line).get("done") for line in told.body.splitlines()] == [None, None, 2]


@pytest.mark.slow
def test_a_full_queue_is_reported_at_once_and_when_to_come_back(ask, guarded, mine, acts, number):
    def fill():
        ask(
            guarded.url,
            "/v1/verify",
            {"items": [acts("sleep", id=f"{n}") for n in range(4)]},
            headers=mine,
        )

    filling = threading.Thread(target=fill)
    filling.start()
    while guarded.desk.depth < 4:
        time.sleep(0.005)
    began = time.monotonic()
    answer = ask(guarded.url, "/v1/verify", {"items": [number(1)]}, headers=mine)
    took = time.monotonic() - began
    assert answer.status == 429 and int(answer.headers["retry-after"]) >= 1
    assert "4 of 4 items" in answer.json["detail"]
    assert took < 0.15  # 50 ms on a machine that does nothing else
    filling.join()
    while guarded.desk.depth:
        time.sleep(0.01)
    assert ask(guarded.url, "/v1/verify", {"items": [number(1)]}, headers=mine).status == 200


def test_a_request_with_more_items_than_there_is_room_for_never_fits(ask, guarded, mine, number):
    answer = ask(guarded.url, "/v1/verify", {"items": [number(n) for n in range(5)]}, headers=mine)
    assert answer.status == 413 and "retry-after" not in answer.headers


def test_other_hosts_need_a_token():
    with pytest.raises(ValueError, match=r"'0\.0\.0\.0' is not loopback"):
        Settings(host="0.0.0.0")
    assert Settings(host="0.0.0.0", token="x").host == "0.0.0.0"
    assert loopback("127.0.0.1") and loopback("::1") and loopback("localhost")
    assert not loopback("10.0.0.1") and not loopback("example.com")


@pytest.mark.parametrize("name", ["body_bytes", "body_s", "request_s", "queue_items", "drain_s"])
def test_bounds_are_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be positive, got 0"):
        Bounds(**{name: 0})
