"""Hostile requests: each is refused readably, and costs the others neither time nor memory."""

import json
import logging
import socket
import threading
import time
from urllib.parse import urlsplit

import psutil
import pytest

from tests.cpu_budget import cpu_budget
from veriloop.data.problem import Problem
from veriloop.sandbox.remote import h11_connection
from veriloop.sandbox.remote.json_size import MAX_VALUES, json_depth, json_values
from veriloop.verifiers.service.client import ServicePool
from veriloop.verifiers.service.json_body import parse
from veriloop.verifiers.service.middleware import Bounds

DEEP = "[" * 100_000 + "]" * 100_000
LABEL = '{"verifier": "number", "reference": ' + DEEP + "}"
ANSWER = "<answer>1</answer>"
BAD_TESTS = [
    [f"assert {'-' * 5000}1"],  # nests too deeply for Python's compiler
    [f"assert {'-' * 200_000}1"],  # exhausts the parser's stack
    ["---...1"],
    DEEP,
    "A" * 1000,
    [{"input": 1}],
]


@pytest.mark.slow
def test_a_body_past_the_bound_is_answered_after_it_is_read(ask, open_service):
    bounds = Bounds(body_bytes=100_000, body_s=10.0)
    with open_service(bounds=bounds) as service:
        answer = ask(service.url, "/v1/verify", b" " * (20 << 20))
    assert answer.status == 413 and "20971520 bytes" in answer.json["detail"]
    assert answer.headers["connection"] == "close"


@pytest.mark.slow
def test_the_client_takes_413_as_final_and_names_the_item(open_service):
    def task(response):
        return Problem(id="p", prompt="", verifier="number", reference={"value": "1"}), response

    with (
        open_service(bounds=Bounds(body_bytes=100_000)) as service,
        ServicePool(service.url) as pool,
    ):
        began = time.monotonic()
        verdicts = pool.judge_all([task(ANSWER), task("x" * 2_000_000), task(ANSWER)])
    assert [verdict.score for verdict in verdicts] == [1.0, None, 1.0]
    assert "item 1 has 2000" in verdicts[1].detail and "413" in verdicts[1].detail
    assert time.monotonic() - began < 60.0  # not the five minutes of a service that is gone


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/slime", b'{"prompt": "", "response": "", "label": NaN}'),
        ("/slime", b'{"prompt": "", "response": "", "label": 1e999}'),
        ("/verify", b'{"responses_create_params": {"x": -Infinity}, "response": {}, "label": 1}'),
        ("/verify", b'{"responses_create_params": {"x": 1e400}, "response": {}, "label": 1}'),
        ("/verify", b'{"responses_create_params": {}, "response": {}, "x": ' + b"9" * 5000 + b"}"),
        (
            "/verify",
            b'{"responses_create_params": {}, "response": {}, "verifier": 7, "label": 1}',
        ),
        ("/v1/verify", b'{"items": ' + DEEP.encode() + b"}"),
        ("/v1/verify", b'{"items": ["\\ud800", ' + DEEP.encode() + b"]}"),
        ("/v1/verify", b"\xff\xfe{}"),
        ("/slime", json.dumps({"prompt": "", "response": "", "label": LABEL}).encode()),
        ("/slime", json.dumps({"prompt": "", "response": ANSWER, "label": "---...1"}).encode()),
        *(
            ("/test_program", json.dumps({"program": "", "tests": tests}).encode())
            for tests in BAD_TESTS
        ),
    ],
)
def test_what_cannot_be_read_is_the_clients_mistake(ask, service, path, body):
    answer = ask(service.url, f"{path}?verifier=number", body)
    assert answer.status == 422 and answer.json["detail"], (answer.status, answer.body)


@pytest.mark.parametrize("bad", ["no number", "", [1, 2], {"value": {}}, {"valu": 1}])
def test_a_label_that_cannot_be_used_is_named_and_a_failure_of_the_verifier_is_not(
    ask, service, bad
):
    batch = {"query": [ANSWER] * 2, "prompts": [""] * 2, "labels": ["1", bad]}
    answer = ask(service.url, "/get_reward?verifier=number", batch)
    assert answer.status == 422 and "item 1" in answer.json["detail"], answer.body
    good = {**batch, "labels": ["1", "2"]}
    assert ask(service.url, "/get_reward?verifier=number", good).json["rewards"] == [1.0, 0.0]
    failing = {"prompt": "", "response": "none", "label": None}
    assert ask(service.url, "/slime?verifier=misbehaves", failing).status == 503


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200),
        ("LOCALHOST", 200),
        ("[::1]:8080", 200),
        ("Reward.internal:1", 200),
        ("rebound.example", 400),
        ("127.0.0.1.example", 400),
        ("10.0.0.7", 400),
        ("", 400),
    ],
)
def test_only_own_names_are_answered(ask, named, host, status):
    assert ask(named.url, "/healthz", headers={"Host": host}).status == status


@pytest.fixture(scope="module")
def named(open_service):
    with open_service(hosts=("reward.internal",)) as service:
        yield service


def test_values_are_counted_outside_of_strings():
    text = json.dumps({"a": ['[{,\\"' * MAX_VALUES, {"b": 1}]}).encode()
    assert json_values(text) == 5 and json_depth(text) == 3
    assert json_values(b"[" + b"[]," * MAX_VALUES + b"[]]") > MAX_VALUES


def test_many_strings_are_counted_without_going_through_them():
    raw = b"[" + b'"",' * (30 * MAX_VALUES) + b'""]'
    with cpu_budget(0.12):
        assert json_values(raw) > MAX_VALUES
    pairs = b"{" + b'"k":"",' * (MAX_VALUES // 2) + b'"k":""}'
    assert json_values(pairs) == MAX_VALUES // 2 + 2


def test_long_numbers_are_searched_in_linear_time():
    text = ("1" * 299 + "a") * 15_000
    with cpu_budget(0.2):
        assert parse(f'["{text}"]'.encode()) == [text]


@pytest.mark.slow
def test_many_tiny_values_are_refused_and_many_commas_in_a_text_are_not(ask, open_service, number):
    with open_service(bounds=Bounds()) as service:
        many = ask(service.url, "/v1/verify", b'{"items": [' + b"[]," * (4 << 20) + b"[]]}")
        text = ask(service.url, "/v1/verify", {"items": [number(1, prompt="1," * (4 << 20))]})
    assert many.status == 413 and "JSON values" in many.json["detail"]
    assert text.status == 200 and text.json["verdicts"][0]["score"] == 1.0


@pytest.mark.slow
def test_bodies_in_progress_are_bounded_together(ask, open_service, number):
    with open_service(bounds=Bounds(pending_bytes=1 << 20)) as service:
        large = ask(service.url, "/v1/verify", {"items": [number(1, prompt="x" * (2 << 20))]})
        small = ask(service.url, "/v1/verify", {"items": [number(1)]})
    assert large.status == 503 and large.headers["retry-after"] == "1" and small.status == 200


def connected(service):
    parts = urlsplit(service.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def read_all(connection):
    data = b""
    try:
        while more := connection.recv(1 << 16):
            data += more
    except ConnectionResetError:
        pass
    return data


def drip(connection, closed):
    """Send a header line every 50 ms, until the server has closed the connection."""
    try:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        while not closed.wait(0.05):
            connection.sendall(b"X: y\r\n")
    except OSError:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("sends", ["nothing", "slow headers", "a second, slow request"])
def test_a_head_that_does_not_end_is_not_waited_for(service, monkeypatch, sends):
    monkeypatch.setattr(h11_connection, "HEAD_S", 0.4)
    with connected(service) as connection:
        closed = threading.Event()
        if sends.startswith("a second"):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            response = b""
            while b"alive" not in response:
                response += connection.recv(1 << 16)
        dripping = threading.Thread(target=drip, args=(connection, closed))
        if sends != "nothing":
            dripping.start()
        began = time.monotonic()
        read_all(connection)
        closed.set()
    assert time.monotonic() - began < 20.0
    if sends != "nothing":
        dripping.join()


def test_headers_without_end_are_refused(service):
    with connected(service) as connection:
        try:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 50_000)
        except OSError:
            return  # closed already
        assert read_all(connection)[:12] in (b"HTTP/1.1 400", b"")


def test_a_client_that_stops_sending_after_its_request_is_answered(service, number, caplog):
    body = json.dumps({"items": [number(1)]}).encode()
    head = "POST /v1/verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with caplog.at_level(logging.WARNING), connected(service) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        connection.shutdown(socket.SHUT_WR)
        response = read_all(connection)
    assert response.startswith(b"HTTP/1.1 200") and b'"score": 1.0' in response
    assert not caplog.records


def test_a_body_that_breaks_off_is_not_judged(service, caplog):
    head = "POST /v1/verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with caplog.at_level(logging.ERROR), connected(service) as connection:
        connection.sendall(f'{head}Content-Length: 99\r\n\r\n{{"items": []}}'.encode())
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection) == b""
    assert not caplog.records


@pytest.mark.slow
def test_under_hostile_load_every_request_is_answered_and_memory_stays_bounded(
    ask, open_service, number
):
    bounds = Bounds(body_s=10.0, queue_items=32)
    hostile = [
        json.dumps({"items": [number(n) for n in range(16)]}).encode(),
        b'{"items": [' + b"[]," * (2 << 20) + b"[]]}",
        b'{"items": [' + b"0," * 200_000 + b"0]}",
        json.dumps({"items": [number(1, prompt="x" * (8 << 20))]}).encode(),
        b" " * (17 << 20),
        b'{"items": ' + DEEP.encode() + b"}",
    ]
    statuses, waits, over = [], [], threading.Event()

    def attack(service):
        statuses.extend(ask(service.url, "/v1/verify", body).status for body in hostile)

    def probe(service):
        while not over.wait(0.05):
            began = time.monotonic()
            assert ask(service.url, "/healthz").status == 200
            waits.append(time.monotonic() - began)

    with open_service(bounds=bounds, limit_s=20.0) as service:
        before = psutil.Process().memory_info().rss
        probing = threading.Thread(target=probe, args=(service,))
        probing.start()
        attacks = [threading.Thread(target=attack, args=(service,)) for _ in range(4)]
        for thread in attacks:
            thread.start()
        for thread in attacks:
            thread.join()
        over.set()
        probing.join()
        grown = psutil.Process().memory_info().rss - before
    assert len(statuses) == 4 * len(hostile)
    assert set(statuses) <= {200, 413, 422, 429, 503} and 200 in statuses and 413 in statuses
    assert sorted(waits)[len(waits) // 2] < 5.0  # a loop that parses answers in tens of seconds
    assert grown < 512 << 20  # the clients' own bodies among it
