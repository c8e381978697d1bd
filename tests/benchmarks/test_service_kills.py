"""The harness that kills reward services: what it takes for a kill, and for a failure."""

import random
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

FAULTS = Path(__file__).parents[2] / "benchmarks" / "faults"
DOOMED, OTHER = 9, 8  # the ports, as the seed 0 picks them
NAMED = f"the reward service http://127.0.0.1:{DOOMED} is left out until it answers again: Read"


class Services:
    """Two services without a process."""

    ports = (8, 9)
    url = staticmethod("http://127.0.0.1:{}".format)

    def __init__(self):
        self.killed, self.begun = [], []

    def kill(self, port, held_s):
        self.killed.append(port)
        return []

    def begin(self, port):
        self.begun.append(port)


@pytest.fixture
def killed(monkeypatch):
    """Function: what the harness says of a run; `answered`: requests at the other service after."""
    monkeypatch.syspath_prepend(str(FAULTS.parent))
    monkeypatch.syspath_prepend(str(FAULTS))

    def judge(said="", *, answered=2, code=0, again_s=None):
        names = runpy.run_path(str(FAULTS / "service_kills.py"))
        counts = iter((5, 5 + answered))
        names["killed"].__globals__["_answered"] = lambda url: next(counts)
        services = Services()
        command = SimpleNamespace(ended=lambda: code, said=said)
        outcome = names["killed"](services, command, again_s, random.Random(0))
        assert services.killed == [DOOMED]
        assert services.begun == ([] if again_s is None else [DOOMED])
        return outcome

    yield judge
    for name in ("kills", "tiny_stages", "publish"):
        sys.modules.pop(name, None)


def test_a_run_that_asked_the_dead_service_must_name_it(killed):
    assert killed(NAMED) == (0, [])
    code, (wrong,) = killed("the other one is left out")
    assert code == 0 and wrong.startswith("the output does not name the service")
    assert killed(answered=1) == (0, [])  # it may have been in progress
    assert killed(again_s=0.0) == (0, [])  # it was back before anybody asked it


def test_a_service_that_nobody_needed_any_more_was_no_kill(killed):
    assert killed(answered=0) == (None, [])


def test_a_run_that_ends_by_itself_with_an_error_fails(killed):
    code, (wrong,) = killed("out of memory", code=1)
    assert code == 1 and wrong.startswith("the run ends with 1: 'out of memory")


def test_answered_requests_are_read_from_the_metrics(monkeypatch):
    monkeypatch.syspath_prepend(str(FAULTS.parent))
    monkeypatch.syspath_prepend(str(FAULTS))
    pattern = runpy.run_path(str(FAULTS / "service_kills.py"))["_ANSWERED"]
    text = (
        'veriloop_request_seconds_count{code="200",path="/readyz"} 4.0\n'
        'veriloop_request_seconds_count{code="200",path="/v1/verify"} 7.0\n'
        'veriloop_request_seconds_sum{code="200",path="/v1/verify"} 1.5\n'
        'veriloop_request_seconds_count{code="503",path="/v1/verify"} 2.0\n'
    )
    assert pattern.findall(text) == ["7.0", "2.0"]
