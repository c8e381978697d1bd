"""A reward service in the place of a pool: the same verdicts, and no 0 for what it never said."""

import math
import os
import threading
import time

import pytest

from tests.verifiers.service.conftest import VERDICT, answered, fine
from veriloop.data.problem import Problem
from veriloop.verifiers.pool import VerifierPool
from veriloop.verifiers.registry import fingerprint
from veriloop.verifiers.service.caller import ServiceRefusedError
from veriloop.verifiers.service.client import PART_ITEMS, TOKEN_VARIABLE, ServicePool
from veriloop.verifiers.verdict import JudgingError


def number(value, response="<answer>1</answer>", **rest):
    fields = {"id": "p", "prompt": "", "verifier": "number", "reference": {"value": value}}
    return Problem(**fields | rest), response


@pytest.mark.slow
def test_verdicts_are_those_of_a_pool_of_our_own(service):
    responses = ["<answer>1</answer>", "<answer>2</answer>", "", "\ud800", "</think>" * 9, "1"]
    tasks = [number(str(value), response) for value in range(4) for response in responses]
    tasks += [number("1", "<answer>1</answer>", facts={"prefilled_think": True})]
    tasks += [number("1", r, verifier="think_format", reference={}) for r in responses]
    tasks += [number("no number")]
    with ServicePool(service.url) as there, VerifierPool(limit_s=20.0) as here:
        got, own = there.judge_all(tasks), here.judge_all(tasks)
        assert (
            there.fingerprint(["number"]) == here.fingerprint(["number"]) == fingerprint(["number"])
        )
    told = [(v.score, v.status, v.answer, v.detail, v.components) for v in got]
    assert told == [(v.score, v.status, v.answer, v.detail, v.components) for v in own]
    assert got[-1].status == "error" and got[0].score == 0.0 and got[6].score == 1.0


def test_many_items_go_in_parts_and_come_back_in_order(service):
    tasks = [number(str(n % 3)) for n in range(30)]
    with ServicePool(service.url) as pool:
        assert [v.score for v in pool.judge_all(tasks)] == [float(n % 3 == 1) for n in range(30)]
        assert pool.judge_all([]) == []


def test_parts_are_bounded_and_a_part_too_large_is_halved(scripted):
    def small(body):
        return fine(body)

    url, calls = scripted((200, small, {}))
    with ServicePool(url) as pool:
        assert len(pool.judge_all([number("1")] * (PART_ITEMS + 1))) == PART_ITEMS + 1
    assert sorted(len(body["items"]) for _, body, _, _ in calls) == [1, PART_ITEMS]
    url, calls = scripted((413, {"detail": "too large"}, {}), (200, fine, {}))
    with ServicePool(url) as pool:
        assert [v.score for v in pool.judge_all([number("1")] * 5)] == [1.0] * 5
    assert [len(body["items"]) for _, body, _, _ in calls] == [5, 2, 3]


@pytest.mark.slow
def test_a_busy_service_is_asked_again_with_the_same_id_and_not_before_it_said(scripted):
    busy = (429, {"detail": "full"}, {"Retry-After": "1"})
    url, calls = scripted(busy, (503, {"detail": "down"}, {}), None, (200, fine, {}))
    with ServicePool(url) as pool:
        (verdict,) = pool.judge_all([number("1")])
    assert verdict.score == 1.0 and len(calls) == 4
    assert len({body["request_id"] for _, body, _, _ in calls}) == 1
    assert calls[1][0] - calls[0][0] >= 1.0


def test_connections_are_kept(scripted):
    url, calls = scripted((200, fine, {}))
    with ServicePool(url) as pool:
        for _ in range(5):
            pool.judge_all([number("1")])
    assert len({address for _, _, _, address in calls}) == 1
    assert len({body["request_id"] for _, body, _, _ in calls}) == 5


@pytest.mark.slow
def test_a_service_that_is_gone_gives_errors_and_never_a_zero():
    with ServicePool("http://127.0.0.1:9", patience_s=0.5) as pool:
        began = time.monotonic()
        verdicts = pool.judge_all([number("1")] * 3)
    assert [(v.score, v.status) for v in verdicts] == [(None, "error")] * 3
    assert "127.0.0.1:9" in verdicts[0].detail and time.monotonic() - began < 5.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "said",
    [
        b"{",
        {"verdicts": []},
        {"verdicts": [{**VERDICT, "score": 2.0}]},
        {"verdicts": [{**VERDICT, "score": None}]},
        {"verdicts": [{**VERDICT, "status": "error"}]},
        {"verdicts": [{"score": 0.0}, {}]},
        {"verdicts": 7},
        {},
    ],
)
def test_an_answer_that_holds_no_verdicts_is_an_error(scripted, said):
    url, _ = scripted((200, said, {}))
    with ServicePool(url) as pool:
        (verdict,) = pool.judge_all([number("1")])
    assert (verdict.score, verdict.status) == (None, "error") and "no verdicts" in verdict.detail


def test_what_the_service_refuses_is_raised_at_once(scripted, service):
    url, calls = scripted((401, {"detail": "a bearer token is needed"}, {}))
    with ServicePool(url) as pool, pytest.raises(ServiceRefusedError, match=r"401.*bearer"):
        pool.judge_all([number("1")])
    assert len(calls) == 1
    with ServicePool(service.url) as pool, pytest.raises(KeyError, match="Did you mean 'number'"):
        pool.judge_all([number("1", verifier="numbr")])


def test_rewards_of_one_run_have_one_judge(scripted):
    url, _ = scripted((200, answered(1), {}), (200, answered(1, "2+b"), {}))
    with ServicePool(url) as pool:
        pool.judge_all([number("1")])
        with pytest.raises(JudgingError, match=r"as 1\+a and now as 2\+b"):
            pool.judge_all([number("1")])


@pytest.mark.slow
@pytest.mark.parametrize("judged_by", [None, "number", [], {}, {"verifiers": None}])
def test_verdicts_of_an_unnamed_judge_are_none(judged_by, scripted):
    url, _ = scripted((200, {"verdicts": [VERDICT], "judged_by": judged_by}, {}))
    with ServicePool(url) as pool:
        (verdict,) = pool.judge_all([number("1")])
    assert (verdict.score, verdict.status) == (None, "error")
    assert verdict.detail.startswith("the reward service answers what are no verdicts: ")


@pytest.mark.slow
@pytest.mark.parametrize("odd", [(1, 2), b"1", math.nan, math.inf, {1: 2}, {1, 2}, object()])
def test_a_reference_that_json_would_change_is_an_error_of_its_own(scripted, odd):
    url, _ = scripted((200, fine, {}))
    with ServicePool(url) as pool:
        verdicts = pool.judge_all([number("1"), number([{"deep": odd}]), number("1")])
    assert [v.score for v in verdicts] == [1.0, None, 1.0] and "'p'" in verdicts[1].detail


def test_the_token_comes_from_the_environment(scripted, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    url, calls = scripted((200, fine, {}))
    with ServicePool(url) as pool:
        pool.judge_all([number("1")])
    assert calls[0][2]["Authorization"] == "Bearer secret"


def test_a_forked_process_opens_its_own_connections(scripted):
    url, calls = scripted((200, fine, {}))
    with ServicePool(url) as pool:
        pool.judge_all([number("1")])
        child = os.fork()
        if not child:
            (verdict,) = pool.judge_all([number("1")])
            os._exit(int(verdict.score != 1.0))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        pool.judge_all([number("1")])
    first, forked, last = (address for _, _, _, address in calls)
    assert first == last != forked


def test_closing_ends_a_call_that_waits(scripted):
    url, calls = scripted((503, {"detail": "down"}, {"Retry-After": "9"}))
    pool, raised = ServicePool(url), []

    def ask():
        with pytest.raises(RuntimeError) as info:
            pool.judge_all([number("1")])
        raised.append(info)

    asking = threading.Thread(target=ask)
    asking.start()
    while not calls:
        time.sleep(0.01)
    pool.close()
    asking.join(5.0)
    assert raised
    pool.close()


def test_several_threads_share_one_pool(service):
    got = {}
    with ServicePool(service.url, connections=2) as pool:

        def ask(value):
            tasks = [number(str(value), f"<answer>{n}</answer>") for n in range(6)]
            got[value] = [v.score for v in pool.judge_all(tasks)]

        threads = [threading.Thread(target=ask, args=(value,)) for value in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert got == {value: [float(n == value) for n in range(6)] for value in range(6)}


@pytest.mark.parametrize("url", ["127.0.0.1:1", "ftp://x", "http://", "http://x:y"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ValueError, match="no address of a server"):
        ServicePool(url)
