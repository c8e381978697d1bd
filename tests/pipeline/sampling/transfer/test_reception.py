"""Requests by which servers receive weights: when they end, and who is to blame."""

import asyncio
import threading

import pytest

from veriloop.pipeline.sampling.transfer import reception as module
from veriloop.pipeline.sampling.transfer.reception import Reception
from veriloop.pipeline.sampling.vllm_server import ServerFaultError

INVITED = dict.fromkeys(("a", "b", "c"))


def received(ends, before=lambda _: None):
    """The reception of servers that end with None, an error, or never ("hangs")."""

    async def receive(url, _):
        if ends[url] == "hangs":
            await asyncio.sleep(60)
        if ends[url] is not None:
            raise ends[url]

    reception = Reception(INVITED, receive)
    before(reception)
    asyncio.run(reception.run())
    reception.close()
    return reception


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(module, "GRACE_S", 0.05)


def later(reception, *arguments):
    threading.Timer(0.1, reception.end, arguments).start()


def test_nobody_is_to_blame_when_all_have_the_weights():
    reception = received({"a": None, "b": None, "c": None})
    assert reception.done == {*INVITED} and not reception.lost.is_set()
    assert reception.blamed() == {}


def test_a_server_that_is_gone_is_to_blame_and_not_those_that_replied_before():
    ends = {
        "a": ServerFaultError("500: a member has gone"),
        "b": ServerFaultError("connection lost", gone=True),
        "c": "hangs",
    }
    reception = received(ends, later)
    assert reception.lost.is_set() and reception.blamed() == {"b": "connection lost"}


def test_the_first_reply_is_to_blame_while_others_only_wait():
    ends = {"a": ServerFaultError("500: no memory"), "b": "hangs", "c": "hangs"}
    assert received(ends, later).blamed() == {"a": "500: no memory"}


def test_a_late_server_is_to_blame_with_the_trainer_s_reason():
    ends = {"a": None, "b": "hangs", "c": ServerFaultError("500: hung up")}
    reception = received(ends, lambda r: (r.lost.set(), later(r, ["b"], "late for bucket 3")))
    assert reception.done == {"a"} and reception.blamed() == {"b": "late for bucket 3"}


def test_without_another_reason_those_that_still_wait_are_to_blame():
    reception = received({"a": None, "b": "hangs", "c": None}, later)
    assert list(reception.blamed()) == ["b"]
    assert "did not end its transfer within" in reception.blamed()["b"]


def test_requests_end_also_when_the_trainer_failed_before_they_began():
    reception = received({"a": "hangs", "b": None, "c": None}, lambda r: r.end(["a"], "late"))
    assert reception.blamed() == {"a": "late"}


def test_an_error_of_ours_is_raised():
    with pytest.raises(ZeroDivisionError):
        received({"a": ZeroDivisionError(), "b": None, "c": None})


def test_a_reception_that_never_ran_has_lost_its_servers():
    reception = Reception(INVITED, lambda *_: None)
    reception.close()
    assert reception.lost.is_set() and reception.unanswered == []
