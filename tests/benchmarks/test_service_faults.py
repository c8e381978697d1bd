"""The harness that overloads and restarts the reward service: a short run, and what it counts."""

import runpy
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = "benchmarks/faults/services.py"


@pytest.fixture(scope="module")
def harness():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
        yield runpy.run_path(str(ROOT / SCRIPT))


@pytest.fixture
def request_of(harness):
    return harness["Request"]("r", b"", [1.0, None], frozenset())


def responded(status, data, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, json=data, headers=names)


GOOD = {"request_id": "r", "verdicts": [{"score": 1.0}, {"score": None}]}


@pytest.mark.slow
def test_a_short_run_accounts_for_every_request():
    done = subprocess.run(
        [sys.executable, SCRIPT, "--quick"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 restarts" in done.stdout and "answered" in done.stdout


def test_its_own_verdicts_or_a_reason_settle_a_request(harness, request_of):
    outcome = harness["outcome"]
    assert outcome(request_of, responded(200, GOOD)) == ("answered", "")
    busy = responded(429, {"detail": "full"}, retry_after="1")
    assert outcome(request_of, busy) == ("refused 429", "")
    hostile = harness["Request"]("h", b"", (), frozenset({422}))
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
def test_anything_else_is_a_failure(harness, request_of, status, data):
    end, wrong = harness["outcome"](request_of, responded(status, data))
    assert end == "wrong" and wrong.startswith(f"r: status {status}")


def test_a_refusal_without_a_reason_is_a_failure(harness, request_of):
    bare = responded(503, {"detail": ""}, retry_after="1")
    assert harness["outcome"](request_of, bare)[0] == "wrong"
    no_json = httpx2.Response(503, text="gone")
    assert harness["outcome"](request_of, no_json)[0] == "wrong"


def test_requests_that_nobody_accounts_for_are_a_failure(harness):
    ends = {"answered": 5, "refused 413": 1, "refused 422": 1}
    result = {"sent": 7, "ends": ends, "problems": []}
    assert harness["failures"](result) == []
    assert harness["failures"](result | {"sent": 8}) == ["8 requests sent, 7 accounted for"]
    assert harness["failures"](result | {"problems": ["lost"]}) == ["lost"]
    unanswered = harness["failures"](result | {"ends": {"refused 413": 6, "refused 422": 1}})
    assert unanswered == ["no request was answered: this proves little"]
