"""The harnesses that overload and restart services: a short run of each, and what they count."""

import runpy
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from veriloop.sandbox.probe import probe

ROOT = Path(__file__).parents[2]
FAULTS = ROOT / "benchmarks/faults"


@pytest.fixture(scope="module")
def harness():
    """Function: the names of a script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "benchmarks"), str(FAULTS), *sys.path])
        yield lambda name: runpy.run_path(str(FAULTS / f"{name}.py"))
    sys.modules.pop("traffic", None)


@pytest.fixture(scope="module")
def traffic(harness):
    return harness("traffic")


def request_of(traffic, expected=None, statuses=()):
    return traffic["Request"]("r", b"", expected, frozenset(statuses))


def responded(status, data, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, json=data, headers=names)


GOOD = {"request_id": "r", "verdicts": [{"score": 1.0}, {"score": None}]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "services",
        pytest.param(
            "sandbox_services",
            marks=pytest.mark.skipif(probe().tier != 1, reason="no namespaces here"),
        ),
    ],
)
def test_a_short_run_accounts_for_every_request(script):
    words = [sys.executable, FAULTS / f"{script}.py", "--quick"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 restarts" in done.stdout and "answered" in done.stdout


def test_its_own_verdicts_or_a_reason_settle_a_request(harness, traffic):
    outcome, request = harness("services")["outcome"], request_of(traffic, [1.0, None])
    assert outcome(request, responded(200, GOOD)) == ("answered", "")
    busy = responded(429, {"detail": "full"}, retry_after="1")
    assert outcome(request, busy) == ("refused 429", "")
    hostile = request_of(traffic, (), {422})
    assert outcome(hostile, responded(422, {"detail": "no JSON"})) == ("refused 422", "")


@pytest.mark.parametrize(
    ("status", "data"),
    [
        (200, GOOD | {"request_id": "s"}),
        (200, GOOD | {"verdicts": GOOD["verdicts"][::-1]}),
        (200, GOOD | {"verdicts": GOOD["verdicts"][:1]}),
        (422, {"detail": "no JSON"}),
        (429, {"detail": "full"}),
        (500, {"detail": "RuntimeError"}),
    ],
)
def test_anything_else_is_a_failure(harness, traffic, status, data):
    request = request_of(traffic, [1.0, None])
    end, wrong = harness("services")["outcome"](request, responded(status, data))
    assert end == "wrong" and wrong.startswith(f"r: status {status}")


def ran(ended, stdout="", **more):
    result = {"status": "Finished", "stdout": stdout}
    return {"status": "Success", "run_result": result, "measured": {"ended": ended}, **more}


@pytest.mark.parametrize(
    ("reply", "end"),
    [
        (ran("ok", "3\n"), "answered"),
        (ran("ok", "4\n"), "wrong"),
        (ran("error", "3\n"), "wrong"),
        ({"status": "SandboxError", "message": "no slot", "run_result": None}, "wrong"),
    ],
)
def test_a_program_is_settled_by_its_own_end_and_output(harness, traffic, reply, end):
    request = request_of(traffic, (("ok",), "3\n"))
    assert harness("sandbox_services")["outcome"](request, responded(200, reply))[0] == end


def test_a_refusal_without_a_reason_is_a_failure(traffic):
    request = request_of(traffic)
    bare = responded(503, {"detail": ""}, retry_after="1")
    assert traffic["refused"](request, bare)[0] == "wrong"
    no_json = httpx2.Response(503, text="gone")
    assert traffic["refused"](request, no_json)[0] == "wrong"


def test_requests_that_nobody_accounts_for_are_a_failure(traffic):
    must = ("answered", "refused 422")
    result = {"sent": 6, "ends": {"answered": 5, "refused 422": 1}, "problems": []}
    assert traffic["failures"](result, must) == []
    assert traffic["failures"](result | {"sent": 8}, must) == ["8 requests sent, 6 accounted for"]
    assert traffic["failures"](result | {"problems": ["lost"]}, must) == ["lost"]
    unanswered = traffic["failures"](result | {"ends": {"refused 422": 6}}, must)
    assert unanswered == ["no request was answered: this proves little"]


def test_a_full_run_has_bars_on_time_and_memory(traffic):
    result = {"health_p99_s": 1.0, "growth_mib": 256.0}
    assert traffic["missed"](result) == []
    late = traffic["missed"]({"health_p99_s": 1.5, "growth_mib": 300.0})
    assert late == ["health took 1.50 s at p99", "memory grew by 300 MiB"]
