"""The service: strict requests, bounded bodies, kept connections, an orderly end."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.remote.messages import RunRequest
from veriloop.sandbox.remote.run_code import Ceiling, run_code
from veriloop.sandbox.remote.service import Service
from veriloop.sandbox.result import Execution

LEAST = {"code": "x", "language": "python"}


class Box:
    """An executor that answers with what it was given, or raises `failure`."""

    backend, tier = "box", 2

    def __init__(self):
        self.seen = []
        self.failure = None
        self.wait = threading.Event()
        self.wait.set()

    def run(self, program, invocation, limits):
        self.seen.append((program, invocation, limits))
        self.wait.wait(5)
        if self.failure is not None:
            raise self.failure
        return Execution(ended="ok", exit_code=0, stdout=invocation.data)


@pytest.fixture
def box():
    return Box()


@pytest.fixture
def serve(box):
    """Start services around the box; all are closed at the end."""
    started = []

    def make(**options):
        started.append(Service(box, **options).start())
        return started[-1]

    yield make
    for one in started:
        one.close()


def connected(service):
    return http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=10)


def ask(service, body=LEAST, method="POST", path="/run_code", **headers):
    """(status, JSON of the answer)."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = connected(service)
    try:
        usual = {"Content-Type": "application/json"}
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, None if method == "GET" else raw, {**usual, **names})
        with connection.getresponse() as answer:
            return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_the_route_alone_maps_a_request_to_a_response(box):
    done = run_code(box, RunRequest(code="c", language="lisp", stdin="é", run_timeout=2.5))
    assert done.status == "Success" and done.run_result.stdout == "é"
    program, given, limits = box.seen[0]
    assert (program, given) == (Program(source="c", language="lisp"), Stdin(data="é".encode()))
    assert (limits.cpu_s, limits.wall_s, limits.memory_mb) == (2.5, 2.5, Limits().memory_mb)
    run_code(box, RunRequest(code="c", language="lisp", memory_limit_MB=99))
    assert box.seen[1][2] == Limits(cpu_s=10, wall_s=10, memory_mb=99)
    given = Limits(cpu_s=0.5, processes=3)
    run_code(box, RunRequest(code="c", language="lisp", memory_limit_MB=99, limits=given))
    assert box.seen[2][2] == given


def test_a_request_as_other_clients_send_it_is_answered_in_their_format(serve, box):
    sent = {
        "code": "print(1)", "stdin": "5", "language": "python", "compile_timeout": 10,
        "run_timeout": 10, "memory_limit_MB": 1024, "files": {}, "fetch_files": [],
    }  # fmt: skip
    status, said = ask(serve(), sent)
    assert status == 200 and said.pop("measured")["ended"] == "ok"
    assert said == {
        "status": "Success", "message": "", "compile_result": None, "files": {},
        "run_result": {"status": "Finished", "execution_time": 0.0, "return_code": 0,
                       "stdout": "5", "stderr": ""},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"limits": {"cpu_s": 11}}, "the limit cpu_s is 11.0; this server allows at most 10"),
        ({"limits": {"cpu_s": 4}}, "the limit wall_s is 13.0; this server allows at most 10"),
        ({"run_timeout": 11}, "the limit cpu_s is 11.0; this server allows at most 10"),
        ({"memory_limit_MB": 101}, "the limit memory_mb is 101; this server allows at most 100"),
        ({"limits": {"memory_mb": 101}}, "the limit memory_mb is 101"),
        ({"limits": {"disk_mb": 101}}, "the limit disk_mb is 101"),
        ({"limits": {"stack_mb": 101}}, "the limit stack_mb is 101"),
        ({"limits": {"processes": 41}}, "the limit processes is 41; this server allows at most 40"),
        ({"limits": {"threads": 41}}, "the limit threads is 41; this server allows at most 40"),
        ({"limits": {"output_bytes": 17 << 20}}, "output_bytes is 17825792; this server allows"),
        ({"limits": {"error_bytes": 17 << 20}}, "the limit error_bytes is 17825792"),
    ],
)
def test_limits_above_the_ceiling_are_refused(serve, box, fields, message):
    service = serve(ceiling=Ceiling(seconds=10, memory_mb=100, processes=40, output_mb=16))
    body = {**LEAST, "memory_limit_MB": 100, **fields}
    if "limits" in fields:
        usual = {"cpu_s": 3, "memory_mb": 100, "disk_mb": 10, "stack_mb": 10}
        body["limits"] = usual | fields["limits"]
    status, response = ask(service, body)
    assert status == 400 and message in response["detail"] and not box.seen
    assert ask(service, {**LEAST, "run_timeout": 10, "memory_limit_MB": 100})[0] == 200


@pytest.mark.parametrize("name", Ceiling.__slots__)
def test_a_ceiling_is_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be positive, got 0"):
        Ceiling(**{name: 0})


def test_the_usual_limits_are_below_the_default_ceiling():
    Ceiling().check(Limits())
    Ceiling().check(Limits(cpu_s=60, memory_mb=8192, processes=128))


def test_health_names_the_backend_and_its_tier(serve):
    assert ask(serve(), method="GET", path="/health") == (200, {"backend": "box", "tier": 2})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "the body is no JSON"),
        ([], "the request must be an object, got []"),
        ({"code": "x"}, "the request has no 'language'; it must have: code, language"),
        ({**LEAST, "run_timeout": "1"}, "run_timeout must be a number from 0 to 3600, got '1'"),
        ({**LEAST, "stdn": "1"}, "the request has no field 'stdn'. Did you mean 'stdin'?"),
    ],
)
def test_a_wrong_request_is_400_and_names_the_field(serve, box, body, said):
    status, told = ask(serve(), body)
    assert status == 400 and said in told["detail"] and not box.seen


def test_other_routes_and_methods_are_404_with_those_that_exist(serve, box):
    service = serve()
    for method, path in (("POST", "/run"), ("GET", "/run_code"), ("POST", "/health")):
        status, told = ask(service, method=method, path=path)
        assert status == 404 and f"no route {method} {path}. Known: POST /run_code, GET" in str(
            told
        )
    assert not box.seen


def raw(service, sent):
    """Send bytes as they are; return all that comes back until the service hangs up."""
    address = ("127.0.0.1", int(service.url.rpartition(":")[2]))
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(sent.replace(b"\n", b"\r\n"))
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while more := connection.recv(1 << 16):
            received += more
    return received.decode()


def post(headers, body=b'{"code": "x", "language": "python"}'):
    head = b"POST /run_code HTTP/1.1\nHost: localhost\nContent-Type: application/json\n"
    return head + headers + b"\n\n" + body


def test_a_body_past_the_bound_is_not_read(serve, box):
    service = serve(body_bytes=100)
    assert ask(service, {**LEAST, "stdin": "x" * 100})[0] == 413
    assert "HTTP/1.1 413" in raw(service, post(b"Content-Length: " + b"9" * 18))
    assert "HTTP/1.1 400" in raw(service, post(b"Content-Length: " + b"9" * 30))
    chunked = post(b"Transfer-Encoding: chunked", b"c8\n" + b" " * 200 + b"\n0\n\n")
    assert "HTTP/1.1 413" in raw(service, chunked)
    assert not box.seen
    assert ask(service)[0] == 200 and len(box.seen) == 1


def test_zeros_in_front_of_a_length_do_not_hide_it(serve, box):
    response = raw(serve(body_bytes=50), post(b"Content-Length: " + b"0" * 20 + b"51", b" " * 51))
    assert "HTTP/1.1 400" in response  # h11 takes 20 digits at most
    assert not box.seen


@pytest.mark.parametrize("length", [b"-1", b"x", b"1.0", b"\xb2"])
def test_a_length_is_a_number(serve, box, length):
    assert "HTTP/1.1 400" in raw(serve(), post(b"Content-Length: " + length)) and not box.seen


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 35\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\nContent-Length: 35",
        b"Content-Length: 35\nContent-Length: 36",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: identity",
        b"Transfer-Encoding: chunked\nTransfer-Encoding: identity",
        b"Transfer-Encoding:\n chunked\nContent-Length: 35",  # a folded line
        b"Transfer-Encoding : chunked",
        b"Content-Length: +35",
    ],
)
def test_a_body_whose_end_is_ambiguous_is_refused(serve, box, headers):
    assert raw(serve(), post(headers)).startswith("HTTP/1.1 400") and not box.seen


def test_a_connection_ends_after_a_body_whose_end_is_ambiguous(serve, box):
    both = b"Content-Length: 5\nTransfer-Encoding: chunked"
    twice = post(both, b"1\n \n0\n\n") + post(b"Content-Length: 35")
    response = raw(serve(), twice)
    assert response.startswith("HTTP/1.1 400") and "connection: close" in response.lower()
    assert response.count("HTTP/1.1 400") == 1 and not box.seen


def test_http_1_0_has_no_transfer_encoding(serve, box):
    chunked = post(b"Transfer-Encoding: chunked", b"1\n \n0\n\n")
    response = raw(serve(), chunked.replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert response.startswith("HTTP/1.1 400") and not box.seen


def test_a_chunked_body_is_read(serve, box):
    connection = connected(serve())
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "Chunked"}
    parts = [b'{"code": "x", ', b'"language": "python"}']
    connection.request("POST", "/run_code", iter(parts), headers, encode_chunked=True)
    with connection.getresponse() as response:
        assert response.status == 200 and len(box.seen) == 1
    connection.close()


def test_the_body_of_a_get_is_no_second_request(serve):
    inner = b"GET /health HTTP/1.1\nHost: localhost\n\n"
    length = str(len(inner.replace(b"\n", b"\r\n"))).encode()
    head = b"GET /health HTTP/1.1\nHost: localhost\nContent-Length: " + length + b"\n\n"
    assert raw(serve(), head + inner).count("HTTP/1.1 200") == 1


def test_a_web_page_cannot_send_programs(serve, box):
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        status, told = ask(serve(), Content_Type=kind)
        assert status == 415 and "must be application/json" in told["detail"] and not box.seen


@pytest.mark.parametrize(
    ("failure", "status", "said"),
    [
        (ValueError("language 'lisp' cannot run here"), 400, "language 'lisp' cannot run here"),
        (SandboxUnavailableError("no cgroup"), 503, "SandboxUnavailableError: no cgroup"),
        (RuntimeError("it is\n\ud800 closed"), 503, "RuntimeError: it is ? closed"),
        (OSError(24, "Too many open files"), 503, "OSError: [Errno 24] Too many open files"),
    ],
)
def test_what_the_executor_refuses_is_no_success(serve, box, failure, status, said):
    service = serve()
    box.failure = failure
    assert ask(service) == (status, {"detail": said})
    box.failure = None
    assert ask(service)[0] == 200


def test_a_result_that_cannot_be_sent_is_a_failure_of_the_service(serve, box, monkeypatch):
    monkeypatch.setattr(box, "run", lambda *_: Execution(ended="error", exit_code=1, why="\ud800"))
    status, told = ask(serve())
    assert status == 503 and told["detail"].startswith("UnicodeEncodeError")


def test_a_large_request_is_read_and_checked_like_a_small_one(serve, box):
    service, text = serve(), "x" * (1 << 20)
    assert ask(service, {**LEAST, "stdin": text})[1]["run_result"]["stdout"] == text
    assert ask(service, {**LEAST, "stdn": text})[0] == 400 and len(box.seen) == 1


def test_a_token_is_asked_for(serve, box):
    service = serve(token="s3cret")
    assert ask(service)[0] == 401
    assert ask(service, Authorization="Bearer s3cre")[0] == 401
    assert ask(service, Authorization="s3cret")[0] == 401
    assert ask(service, Authorization="Bearer \u00e9")[0] == 401
    assert ask(service, method="GET", path="/health")[0] == 401 and not box.seen
    assert ask(service, Authorization="Bearer s3cret")[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "", "10.0.0.1", "example.org"])
def test_beyond_loopback_a_token_is_needed(box, host):
    with pytest.raises(ValueError, match="is not loopback, so others may reach it: a token is"):
        Service(box, host)


def test_with_a_token_it_may_listen_everywhere(serve):
    service = serve(host="0.0.0.0", token="t")
    assert ask(service, Authorization="Bearer t")[0] == 200


def test_an_address_in_use_is_an_error(serve, box):
    port = int(serve().url.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        Service(box, port=port)


def test_connections_are_kept_unless_much_of_a_refused_body_is_unread(serve):
    service = serve()
    connection = connected(service)
    headers = {"Content-Type": "application/json"}
    for number in range(3):
        body = json.dumps({**LEAST, "stdin": str(number)})
        connection.request("POST", "/run_code", body, headers)
        with connection.getresponse() as answer:
            assert json.loads(answer.read())["run_result"]["stdout"] == str(number)
            assert not answer.will_close
    for kind, status in (("text/plain", 415), ("application/json", 404)):
        connection.request("POST", "/elsewhere", "{}", {"Content-Type": kind})
        with connection.getresponse() as answer:
            assert answer.status == status and answer.read() and not answer.will_close
    connection.close()
    unread = post(b"Content-Length: 2000000", b"").replace(b"application/json", b"text/plain")
    response = raw(service, unread)
    assert response.startswith("HTTP/1.1 415") and "connection: close" in response


def test_answers_come_without_delay(serve):
    """A header and a body in two packets would wait 40 ms for an acknowledgement."""
    connection = connected(serve())
    times = []
    for _ in range(20):
        began = time.monotonic()
        connection.request("GET", "/health")
        with connection.getresponse() as answer:
            answer.read()
        times.append(time.monotonic() - began)
    connection.close()
    assert sorted(times)[5] < 0.03


def test_requests_are_answered_side_by_side(serve, box):
    service = serve()
    box.wait.clear()
    asking = [threading.Thread(target=ask, args=(service,)) for _ in range(8)]
    for one in asking:
        one.start()
    ends = time.monotonic() + 5
    while len(box.seen) < 8 and time.monotonic() < ends:
        time.sleep(0.01)
    assert ask(service, method="GET", path="/health")[0] == 200
    box.wait.set()
    for one in asking:
        one.join()
    assert len(box.seen) == 8


def test_a_client_that_leaves_is_no_event(serve, box, capfd):
    service = serve()
    address = ("127.0.0.1", int(service.url.rpartition(":")[2]))
    for sent in (
        b"",
        b"POST",
        b"POST /run_code HTTP/1.1\r\nContent-Length: 99\r\n\r\n{",
        b"\x00\r\n\r\n",
    ):
        with socket.create_connection(address) as leaving:
            leaving.sendall(sent)
    assert ask(service)[0] == 200
    assert capfd.readouterr().err == ""


def test_closing_leaves_no_thread_and_no_socket(box):
    before, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with Service(box) as service:
        idle = connected(service)
        idle.request("GET", "/health")
        with idle.getresponse() as answer:
            answer.read()
        began = time.monotonic()
    assert time.monotonic() - began < 2  # it does not wait for the idle one
    idle.close()
    assert threading.active_count() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors
    service.close()
    with Service(box) as again:
        again.close()
    never_started = Service(box)
    never_started.close()
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_executors_and_commands_do_not_load_the_web_framework():
    code = (
        "import sys, veriloop.sandbox.backends, veriloop.sandbox.remote.client; "
        "import veriloop.sandbox.namespace.pool, veriloop.stages.commands.sandbox; "
        "assert not {'fastapi', 'uvicorn', 'starlette'} & set(sys.modules), 'loaded'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_programs_beyond_the_bound_are_refused_until_others_have_ended(box, serve):
    service = serve(requests=2)
    box.wait.clear()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(ask(service))) for _ in range(2)]
    for thread in threads:
        thread.start()
    while len(box.seen) < 2:
        time.sleep(0.01)
    connection = connected(service)
    body, usual = json.dumps(LEAST), {"Content-Type": "application/json"}
    connection.request("POST", "/run_code", body, usual)
    with connection.getresponse() as refused:
        assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
        assert json.loads(refused.read()) == {"detail": "2 programs run or wait for a slot"}
    assert ask(service, method="GET", path="/health")[0] == 200
    box.wait.set()
    for thread in threads:
        thread.join()
    connection.request("POST", "/run_code", body, usual)  # the connection was kept
    with connection.getresponse() as answered:
        assert answered.status == 200
    connection.close()
    box.failure = RuntimeError("broken")
    assert [ask(service)[0] for _ in range(3)] == [503] * 3  # failures make room as well
    assert [status for status, _ in answers] == [200, 200] and len(box.seen) == 6


def test_a_service_has_room_for_a_program(box):
    with pytest.raises(ValueError, match="requests=0: at least 1 program"):
        Service(box, requests=0)
