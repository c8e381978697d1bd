"""The service: strict requests, bounded bodies, kept connections, an orderly end."""

import http.client
import json
import os
import socket
import threading
import time

import pytest

from sandbox.executor import Program, Stdin
from sandbox.limits import Limits
from sandbox.probe import SandboxUnavailableError
from sandbox.remote.messages import RunRequest
from sandbox.remote.routes import run_code, sandbox_routes
from sandbox.remote.service import Service
from sandbox.result import Execution

LEAST = {"code": "x", "language": "python"}


class Box:
    """An executor that answers with what it was given, or raises `failure`."""

    backend, tier = "box", 2

    def __init__(self):
        self.seen = []
        self.failure = None
        self.wait = threading.Event()
        self.wait.set()

    def run(self, program, given, limits):
        self.seen.append((program, given, limits))
        self.wait.wait(5)
        if self.failure is not None:
            raise self.failure
        return Execution(ended="ok", exit_code=0, stdout=given.data)


@pytest.fixture
def box():
    return Box()


@pytest.fixture
def serve(box):
    """Start services around the box; all are closed at the end."""
    started = []

    def make(**options):
        started.append(Service(sandbox_routes(box), **options).start())
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


def test_a_body_past_the_bound_is_not_read(serve, box):
    service = serve(body_bytes=100)
    assert ask(service, {**LEAST, "stdin": "x" * 100})[0] == 413
    assert ask(service, Content_Length="9" * 30)[0] == 413
    assert ask(service)[0] == 200 and len(box.seen) == 1


@pytest.mark.parametrize("length", ["-1", "x", "1.0", "\u00b2".encode("latin-1").decode("latin-1")])
def test_a_body_needs_its_length(serve, box, length):
    assert ask(serve(), Content_Length=length)[0] == 411 and not box.seen


def test_a_web_page_cannot_send_programs(serve, box):
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        status, told = ask(serve(), Content_Type=kind)
        assert status == 415 and "must be application/json" in told["detail"] and not box.seen


@pytest.mark.parametrize(
    ("failure", "status", "said"),
    [
        (ValueError("language 'lisp' cannot run here"), 400, "language 'lisp' cannot run here"),
        (SandboxUnavailableError("needs a cgroup"), 503, "needs a cgroup"),
        (RuntimeError("it is\n\ud800 closed"), 500, "RuntimeError: it is ? closed"),
    ],
)
def test_what_the_executor_refuses_is_no_success(serve, box, failure, status, said):
    service = serve()
    box.failure = failure
    assert ask(service) == (status, {"detail": said})
    box.failure = None
    assert ask(service)[0] == 200


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
        Service(sandbox_routes(box), host)


def test_with_a_token_it_may_listen_everywhere(serve):
    service = serve(host="0.0.0.0", token="t")
    assert ask(service, Authorization="Bearer t")[0] == 200


def test_an_address_in_use_is_an_error(serve, box):
    port = int(serve().url.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        Service(sandbox_routes(box), port=port)


def test_connections_are_kept_and_refusals_end_them(serve):
    connection = connected(serve())
    headers = {"Content-Type": "application/json"}
    for number in range(3):
        body = json.dumps({**LEAST, "stdin": str(number)})
        connection.request("POST", "/run_code", body, headers)
        with connection.getresponse() as answer:
            assert json.loads(answer.read())["run_result"]["stdout"] == str(number)
            assert not answer.will_close
    connection.request("POST", "/elsewhere", "{}", headers)
    with connection.getresponse() as answer:
        assert answer.will_close
    connection.close()


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
    with Service(sandbox_routes(box)) as service:
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
    with Service(sandbox_routes(box)) as again:
        again.close()
    never_started = Service(sandbox_routes(box))
    never_started.close()
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_more_routes_can_stand_beside_those_of_the_sandbox(box):
    more = {**sandbox_routes(box), ("POST", "/double"): lambda data: {"twice": 2 * data["x"]}}
    with Service(more) as service:
        assert ask(service, {"x": 4}, path="/double") == (200, {"twice": 8})
        assert ask(service)[0] == 200
