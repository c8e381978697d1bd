"""Whatever a server does wrong is a `sandbox_error` after one retry, and never a wrong answer."""

import json
import os
import re
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from tests.clock import Clock
from veriloop.sandbox.executor import Call, Program, Stdin
from veriloop.sandbox.languages.polyglot import compile_seconds
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.remote.client import RemoteExecutor
from veriloop.sandbox.result import Execution

LIMITS = Limits(cpu_s=1, wall_s=2, memory_mb=64)
SOURCE = "print(input())"


def script(box, source=SOURCE, data=b"", limits=LIMITS):
    return box.run(Program(source=source), Stdin(data=data), limits)


def call(box, limits=LIMITS, args=(1,)):
    return box.run(Program(source="def f(x): return x"), Call(function="f", args=args), limits)


def mark_of(body):
    """The mark of the call that a request holds."""
    return re.search(r"=[0-9a-f]{32}=", body["code"]).group()


def threads():
    return {one.name for one in threading.enumerate()}


def test_a_request_holds_what_the_api_names_and_our_limits_next_to_it(fake, client):
    assert script(client(), data="é\n".encode()).ended == "ok"
    body = fake.asked[0]
    assert body.pop("limits") == {name: getattr(LIMITS, name) for name in LIMITS.__slots__}
    assert body == {
        "code": SOURCE, "language": "python", "stdin": "é\n", "compile_timeout": 2,
        "run_timeout": 2, "memory_limit_MB": 64, "files": {}, "fetch_files": [],
    }  # fmt: skip
    assert fake.heads[0].startswith("POST /run_code HTTP/1.1")
    assert "authorization" not in fake.heads[0].lower()


def test_a_program_that_is_compiled_has_the_compiler_s_own_time(fake, client):
    client().run(Program(source="int main(){}", language="cpp"), Stdin(), LIMITS)
    assert fake.asked[0]["compile_timeout"] == compile_seconds("cpp") > LIMITS.wall
    assert fake.asked[0]["run_timeout"] == LIMITS.wall
    client().run(Program(source="package main", language="go"), Stdin(), LIMITS)  # not one of ours
    assert fake.asked[-1]["compile_timeout"] == compile_seconds("cpp")


def test_what_a_call_expects_and_any_language_but_python_stay_here(fake, client):
    box = client()
    box.run(Program(source="echo", language="bash"), Stdin(), LIMITS)
    assert fake.asked[0]["language"] == "bash"
    with pytest.raises(ValueError, match="calls are for Python, got a program in 'bash'"):
        box.run(Program(source="f", language="bash"), Call(function="f"), LIMITS)
    assert len(fake.asked) == 2  # the first printed nothing, so it was asked twice


def test_a_script_that_succeeds_is_ok(fake, client, answers):
    http, reply, _ = answers
    fake.answers = [http(reply("right\r\n", stderr="warned", execution_time=0.5))]
    assert script(client()) == Execution(
        ended="ok", exit_code=0, stdout=b"right\r\n", stderr=b"warned", wall_s=0.5
    )


def test_a_call_finds_its_value_among_what_was_printed(fake, client, answers):
    http, reply, _ = answers

    def answer(connection, body):
        mark = mark_of(body)
        return http(reply(f'{mark}\nnoise\n{mark}{{"t": [1, "x"]}}{mark}\nmore'))

    fake.answers = [answer]
    done = call(client())
    assert (done.ended, done.value, done.stdout) == ("ok", (1, "x"), b"noisemore")
    assert len(fake.asked) == 1


def faults(answers):
    http, reply, reset = answers
    good = reply("x")
    unspoken = http(
        b'{"status": "Failed", "run_result": {"status": "Finished", "stdout": "\\ud800"}}'
    )
    endless = json.dumps(reply("x", execution_time=float("inf"))).encode()
    return {
        "HTTP status 500 Oops: it broke": http(b"it broke", "500 Oops"),
        "HTTP status 422": http({"detail": "no"}, "422 Unprocessable"),
        "HTTP status 302": http(b"", "302 Found", "Location: /elsewhere\r\n"),
        "RemoteProtocolError: Server disconnected": None,
        "ReadError: [Errno 104]": reset,
        "RemoteProtocolError: illegal status line": b"SMTP ready\r\n\r\n",
        "the server failed: no pod": http({**good, "status": "SandboxError", "message": "no pod"}),
        "no JSON": http(b'{"status": "Succ'),
        "no JSON: Infinity": http(endless),
        "status must be one of Success": http({**good, "status": "Sucess"}),
        "must be an object, got []": http([]),
        "has no 'run_result'": http({"status": "Success"}),
        "return_code must be an integer": http(reply("x", return_code="0")),
        "stdout must be a string": http(reply(1)),
        "without lone surrogates": unspoken,
        "the server reports no run": http({**good, "run_result": None}),
        "Success contradicts Finished, return code 1": http(reply("x", return_code=1)),
        "Failed contradicts Finished, return code 0": http(reply("x", "Failed")),
        "Failed contradicts Finished, return code None": http(
            reply("x", "Failed", return_code=None)
        ),
        "an answer of more than": http(reply("x" * 9_000_000)),
    }


FAULTS = list(faults((lambda *_: b"", lambda *_, **__: {}, None)))  # their names


@pytest.mark.parametrize("said", FAULTS)
@pytest.mark.parametrize("run", [script, call])
def test_a_fault_is_asked_about_once_more_and_is_a_sandbox_error(fake, client, answers, run, said):
    fake.answers = [faults(answers)[said]]
    limits = Limits(cpu_s=1, output_bytes=1000)
    done = run(client(), limits=limits)
    assert (done.ended, done.value, done.exit_code) == ("sandbox_error", None, None)
    assert said in done.why
    assert len(fake.asked) == 2


@pytest.mark.parametrize(
    "said",
    ["HTTP status 500 Oops: it broke", "RemoteProtocolError: Server disconnected", "no JSON"],
)
def test_a_fault_that_passes_costs_nothing(fake, client, answers, said):
    http, reply, _ = answers
    fake.answers = [faults(answers)[said], http(reply("right"))]
    assert script(client()).stdout == b"right" and len(fake.asked) == 2


def busy(answers, after):
    http, _, _ = answers
    more = f"Retry-After: {after}\r\n" if after else ""
    return http({"detail": "no room"}, "429 Too Many Requests", more)


@pytest.mark.parametrize(("after", "seconds"), [("0", 0.0), ("7", 7.0), ("", 1.0), ("Mon", 1.0)])
def test_a_server_without_room_is_asked_again_when_it_says(
    fake, client, answers, after, seconds, monkeypatch
):
    http, reply, _ = answers
    fake.answers = [busy(answers, after)] * 5 + [http(reply("right"))]
    with client() as made:
        waits = []
        monkeypatch.setattr(made._closed, "wait", lambda s: waits.append(s))
        assert script(made).stdout == b"right"
    assert waits[1:] == [seconds] * 5 and fake.connections == 1


def test_a_server_that_never_has_room_is_a_sandbox_error(fake, client, answers):
    fake.answers = [busy(answers, "1")]
    done = script(client(busy_s=0.5))
    assert (done.ended, len(fake.asked)) == ("sandbox_error", 2)
    assert "HTTP status 429 Too Many Requests" in done.why and "no room" in done.why


def test_both_attempts_together_wait_for_room_as_long_as_is_said(
    fake, client, answers, monkeypatch
):
    fake.answers = [busy(answers, "7")]
    clock = Clock()
    monkeypatch.setattr("veriloop.sandbox.remote.client.time", clock)
    with client(busy_s=70.0) as made:

        def wait(seconds):
            clock.now += seconds

        monkeypatch.setattr(made._closed, "wait", wait)
        assert script(made).ended == "sandbox_error"
    assert len(fake.asked) == 11 + 1


def test_a_server_that_is_not_there_is_a_sandbox_error():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with RemoteExecutor(f"http://127.0.0.1:{port}", jitter_s=0) as box:
        done = script(box)
    assert (
        done.ended == "sandbox_error" and "ConnectError: [Errno 111] Connection refused" in done.why
    )


def silent(connection, body):
    time.sleep(1.0)


def dripping(connection, body):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(20):
        connection.sendall(b" ")
        time.sleep(0.05)


def dripping_to_its_end(connection, body):
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    for _ in range(20):
        connection.sendall(b" ")
        time.sleep(0.05)


@pytest.mark.parametrize("answer", [silent, dripping, dripping_to_its_end])
def test_an_answer_must_be_whole_in_time(fake, client, answer):
    fake.answers = [answer]
    began = time.monotonic()
    done = script(client(margin_s=0.1), limits=Limits(cpu_s=1, wall_s=0.1))
    assert done.ended == "sandbox_error" and "no answer within 0.2 s" in done.why
    assert time.monotonic() - began < 5 and len(fake.asked) == 2


def test_an_answer_that_is_cut_short_is_a_fault(fake, client):
    def cut(connection, body):
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"status"')

    fake.answers = [cut]
    assert script(client()).ended == "sandbox_error" and len(fake.asked) == 2


def test_a_call_that_never_began_is_a_fault(fake, client, answers):
    http, reply, _ = answers
    for lost in (reply(""), reply("noise"), reply("", "Failed", return_code=1)):
        fake.asked.clear()
        fake.answers = [http(lost)]
        done = call(client())
        assert done.ended == "sandbox_error" and "the call never began" in done.why
        assert len(fake.asked) == 2


def test_a_lost_value_that_comes_at_the_second_time_counts(fake, client, answers):
    http, reply, _ = answers
    fake.answers = [
        http(reply("")),
        lambda _, body: http(reply("{0}\n\n{0}5{0}\n".format(mark_of(body)))),
    ]
    assert call(client()).value == 5


def test_a_call_that_began_and_gave_no_value_is_the_programs_doing(fake, client, answers):
    http, reply, _ = answers
    fake.answers = [lambda _, body: http(reply(mark_of(body) + "\nnoise"))]
    done = call(client())
    assert (done.ended, done.stdout, done.why) == ("protocol", b"noise", "no value came back")
    assert len(fake.asked) == 1


def test_a_script_that_prints_nothing_is_asked_twice_and_then_believed(fake, client, answers):
    http, reply, _ = answers
    assert script(client()) == Execution(ended="ok", exit_code=0, wall_s=0.01)
    assert len(fake.asked) == 2
    fake.asked.clear()
    fake.answers = [http(reply("")), http(reply("late"))]
    assert script(client()).stdout == b"late"
    fake.asked.clear()
    fake.answers = [http(reply("")), None]
    assert script(client()).ended == "sandbox_error"


def test_an_output_that_the_stock_server_may_have_cut_is_not_trusted(fake, client, answers):
    http, reply, _ = answers
    fake.answers = [http(reply("x" * 120_000))]
    done = script(client())
    assert done.ended == "sandbox_error" and len(fake.asked) == 1
    assert done.why == "120000 bytes of output; a server may lose some from 120000"
    assert script(client(trusted_output_bytes=120_001)).ended == "ok"
    fake.answers = [http(reply("x" * 119_999))]
    assert script(client()).ended == "ok"


def test_connections_are_kept(fake, client):
    box = client(slots=2)
    for _ in range(5):
        script(box)
    assert fake.connections == 1 and len(fake.asked) == 10


def test_a_kept_connection_that_was_closed_over_there_costs_no_retry(fake, client, answers):
    http, reply, reset = answers
    good, bad = http(reply("x")), http(b"", "500 Oops")
    fake.answers = [good, None, bad, good, reset, good]
    box = client()
    assert [script(box).ended for _ in range(3)] == ["ok"] * 3
    assert len(fake.asked) == 6


def test_no_more_requests_at_a_time_than_there_are_slots_and_results_in_order(
    fake, client, answers
):
    http, reply, _ = answers
    now, most, lock = [0], [0], threading.Lock()

    def answer(connection, body):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.03)
        with lock:
            now[0] -= 1
        return http(reply(body["stdin"]))

    fake.answers = [answer]
    box = client(slots=3)
    given = [Stdin(data=str(number).encode()) for number in range(12)]
    done = box.run_all(Program(source=SOURCE), given, LIMITS)
    assert [one.stdout for one in done] == [one.data for one in given]
    assert most[0] == 3 and fake.connections == 3
    assert box.run_all(Program(source=SOURCE), [], LIMITS) == []


def test_closing_leaves_no_thread_and_no_socket_and_ends_what_runs(fake, client):
    before, descriptors = threads(), len(os.listdir("/proc/self/fd"))
    fake.answers = [lambda *_: fake.wait(5)]
    box = client(slots=2)
    raised = []

    def run():
        try:
            script(box)
        except RuntimeError as closed:
            raised.append(str(closed))

    workers = [threading.Thread(target=run) for _ in range(4)]
    for worker in workers:
        worker.start()
    while len(fake.asked) < 2:
        time.sleep(0.01)
    began = time.monotonic()
    box.close()
    for worker in workers:
        worker.join()
    assert time.monotonic() - began < 2 and len(raised) == 4
    assert set(raised) == {
        "this RemoteExecutor is closed", "this RemoteExecutor was closed during the run"
    }  # fmt: skip
    fake.close()
    fake._open.clear()
    assert threads() <= before
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    box.close()
    with pytest.raises(RuntimeError, match="is closed"):
        script(box)
    fake.__init__()  # for the fixture to close


def test_another_process_does_not_use_our_connections(client, monkeypatch):
    box = client()
    monkeypatch.setattr("veriloop.sandbox.remote.client.os", SimpleNamespace(getpid=lambda: -1))
    with pytest.raises(RuntimeError, match="opened in another process"):
        script(box)
    box.close()
    monkeypatch.undo()
    assert script(box).ended == "ok"  # it was not closed from there


def test_starts_and_retries_are_spread(fake, client, answers, monkeypatch):
    spans = []
    monkeypatch.setattr(
        "veriloop.sandbox.remote.client.random.uniform", lambda *span: spans.append(span) or 0
    )
    box = client(jitter_s=0.25)
    fake.answers = [answers[0](answers[1]("x"))]
    script(box), script(box)
    assert spans == [(0, 0.25)]
    fake.answers = [None]
    script(box)
    assert spans == [(0, 0.25)] * 2


def test_a_token_comes_from_the_environment_and_is_sent(fake, client, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    box = client(token_variable="MY_TOKEN")
    script(box)
    assert "Authorization: Bearer s3cret" in fake.heads[0]
    assert "s3cret" not in repr(box._connections[0]._address)
    for value in ("", "a\nb", "é"):
        monkeypatch.setenv("MY_TOKEN", value)
        with pytest.raises(ValueError, match="'MY_TOKEN' of the environment holds no token"):
            client(token_variable="MY_TOKEN")


def test_a_path_in_front_is_kept(fake):
    with RemoteExecutor(fake.url + "/box/", jitter_s=0) as box:
        script(box)
    assert fake.heads[0].startswith("POST /box/run_code ")


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8080", "ftp://x", "http://", "http://x:99999", "http://u:p@x", "http://x/?q=1", ""],
)
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ValueError, match="is no address of a server; it must be http://HOST"):
        RemoteExecutor(url)


def test_impossible_requests_are_refused_here(fake, client):
    with pytest.raises(ValueError, match="slots must be at least 1, got 0"):
        client(slots=0)
    box = client()
    with pytest.raises(ValueError, match="no input that is not UTF-8 text: byte 1 of 2"):
        script(box, data=b"a\xff")
    with pytest.raises(ValueError, match="arguments of 'f' are not plain data"):
        call(box, args=(object(),))
    assert not fake.asked


def test_a_program_that_is_no_text_is_in_error_without_a_request(fake, client):
    done = script(client(), source="'\ud800'")
    assert (done.ended, done.exit_code) == ("error", 1) and not fake.asked
