"""Several services share each batch; what one leaves open the others judge, and nothing twice."""

import logging
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.verifiers.service.conftest import LISTED, PLUGIN, VERDICT, answered, fine
from veriloop.data.problem import Problem
from veriloop.verifiers.service import client, services
from veriloop.verifiers.service.caller import ServiceRefusedError
from veriloop.verifiers.service.client import PART_ITEMS, ServicePool
from veriloop.verifiers.service.services import read_addresses
from veriloop.verifiers.verdict import JudgingError

ROOT = Path(__file__).parents[3]
OTHERS = {"verifiers": [{"name": "number", "fingerprint": "2+b"}]}


def task(value, response="", verifier="number"):
    return Problem(id="p", prompt="", verifier=verifier, reference={"value": value}), response


def graded(body):
    """Answers that say which item they are about."""
    verdicts = [{**VERDICT, "score": item["reference"]["value"] / 1000} for item in body["items"]]
    return {**answered(0), "verdicts": verdicts}


def scores(count):
    return [value / 1000 for value in range(count)]


def sizes(calls):
    return [len(body["items"]) for _, body, _, _ in calls]


def ids(calls):
    return [body["request_id"] for _, body, _, _ in calls]


@pytest.fixture
def gone():
    """The address of a service that does not listen."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def quick(monkeypatch):
    """A service that is left out is tried again at once."""
    monkeypatch.setattr(services, "_FIRST_REST_S", 0.0)


@pytest.fixture
def warnings(caplog):
    """Function: what was logged as a warning."""
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("count", [2, 3, 11, PART_ITEMS])
def test_two_services_get_half_of_a_batch_each_and_verdicts_keep_the_order(scripted, count):
    (one, first), (two, second) = scripted((200, graded, {})), scripted((200, graded, {}))
    with ServicePool([one, two]) as pool:
        verdicts = pool.judge_all([task(value) for value in range(count)])
    assert [v.score for v in verdicts] == scores(count)
    assert sorted(sizes(first) + sizes(second)) == [count // 2, count - count // 2]
    assert len(first) == len(second) == 1


def test_a_large_batch_has_equal_parts_and_every_service_gets_work(scripted):
    (one, first), (two, second) = scripted((200, graded, {})), scripted((200, graded, {}))
    with ServicePool([one, two]) as pool:
        verdicts = pool.judge_all([task(value) for value in range(600)])
    assert [v.score for v in verdicts] == scores(600)
    assert sizes(first + second) == [150] * 4 and first and second


def test_every_service_gets_work_when_there_is_enough_for_each(scripted):
    opened = [scripted((200, graded, {})) for _ in range(4)]
    with ServicePool([url for url, _ in opened]) as pool:
        verdicts = pool.judge_all([task(value) for value in range(5)])
        assert pool.judge_all([]) == []
    assert [v.score for v in verdicts] == scores(5)
    assert sorted(sizes([call for _, calls in opened for call in calls])) == [1, 1, 1, 2]
    assert all(len(calls) == 1 for _, calls in opened)


def test_services_take_turns_with_single_items(scripted):
    opened = [scripted((200, fine, {})) for _ in range(3)]
    with ServicePool([url for url, _ in opened]) as pool:
        for _ in range(6):
            pool.judge_all([task(1)])
    assert [len(calls) for _, calls in opened] == [2, 2, 2]


@pytest.mark.slow
def test_the_service_with_the_fewest_open_requests_takes_the_next(scripted):
    (slow, stuck), (quick_one, calls) = scripted("hang"), scripted((200, fine, {}))
    with ServicePool([slow, quick_one], request_s=1.5) as pool:
        waiting = threading.Thread(target=pool.judge_all, args=([task(1)],))
        waiting.start()
        while not stuck:
            time.sleep(0.01)
        for _ in range(5):
            pool.judge_all([task(1)])
        assert len(stuck) == 1 and len(calls) == 5
        waiting.join()


def test_a_service_that_is_unreachable_is_named_once_and_the_other_judges(scripted, gone, warnings):
    url, calls = scripted((200, graded, {}))
    with ServicePool([gone, url]) as pool:
        for _ in range(3):
            verdicts = pool.judge_all([task(value) for value in range(8)])
            assert [v.score for v in verdicts] == scores(8)
    assert sizes(calls) == [4] * 6
    (warning,) = warnings()
    assert warning.startswith(f"the reward service {gone} is left out until it answers again: Conn")


def test_a_service_that_dies_in_the_middle_of_a_request_passes_it_on_with_its_id(
    scripted, warnings
):
    (one, first), (two, second) = scripted(None), scripted((200, graded, {}))
    with ServicePool([one, two]) as pool:
        verdicts = pool.judge_all([task(value) for value in range(9)])
    assert [v.score for v in verdicts] == scores(9)
    assert len(first) == 1 and ids(first)[0] in ids(second) and len(set(ids(second))) == 2
    (warning,) = warnings()
    assert f"the reward service {one} is left out until it answers again: RemoteProto" in warning


def test_a_service_that_answers_no_verdicts_is_left_out(scripted, warnings):
    (one, first), (two, second) = scripted((200, {}, {})), scripted((200, graded, {}))
    with ServicePool([one, two]) as pool:
        verdicts = pool.judge_all([task(value) for value in range(2)])
    assert [v.score for v in verdicts] == scores(2) and ids(first)[0] in ids(second)
    (warning,) = warnings()
    assert f"{one} is left out" in warning and "answers what are no verdicts" in warning


@pytest.mark.slow
def test_a_service_that_hangs_past_its_deadline_rests_for_longer(scripted, warnings):
    (one, first), (two, second) = scripted("hang"), scripted((200, graded, {}))
    with ServicePool([one, two], request_s=0.4) as pool:
        began = time.monotonic()
        for _ in range(20):
            verdicts = pool.judge_all([task(value) for value in range(4)])
            assert [v.score for v in verdicts] == scores(4)
            time.sleep(0.1)
    assert time.monotonic() - began < 4.0
    assert len(first) == 1 and ids(first)[0] in ids(second)
    (warning,) = warnings()
    assert f"{one} is left out until it answers again: ReadTimeout" in warning


@pytest.mark.usefixtures("quick")
def test_a_service_that_was_left_out_is_tried_again_and_judges_again(scripted, warnings):
    (one, first), (two, _) = scripted(None, (200, graded, {})), scripted((200, graded, {}))
    with ServicePool([one, two]) as pool:
        for _ in range(3):
            verdicts = pool.judge_all([task(value) for value in range(4)])
            assert [v.score for v in verdicts] == scores(4)
    # it rests for no time, so that the part it failed on may come back to it
    assert len(first) in (3, 4) and len(warnings()) == 1


@pytest.mark.usefixtures("quick")
def test_a_service_that_cannot_list_its_verifiers_gets_no_request(scripted):
    (one, first), (two, second) = (
        scripted((200, graded, {}), listed={}),
        scripted((200, graded, {})),
    )
    with ServicePool([one, two]) as pool:
        for _ in range(3):
            assert pool.judge_all([task(1)] * 4)[0].score == 0.001
    assert not first and len(second) == 6


def test_a_busy_service_is_not_left_out(scripted, warnings):
    busy = (429, {"detail": "full"}, {"Retry-After": "1"})
    (one, first), (two, second) = scripted(busy, (200, graded, {})), scripted((200, graded, {}))
    with ServicePool([one, two]) as pool:
        for _ in range(2):
            verdicts = pool.judge_all([task(value) for value in range(4)])
            assert [v.score for v in verdicts] == scores(4)
    assert len(first) == 2 and ids(first)[0] in ids(second) and not warnings()


@pytest.mark.slow
def test_a_part_that_all_are_too_busy_for_waits_as_they_ask(scripted):
    busy = (503, {"detail": "not warm"}, {"Retry-After": "1"})
    opened = [scripted(busy, (200, fine, {})) for _ in range(2)]
    with ServicePool([url for url, _ in opened]) as pool:
        (verdict,) = pool.judge_all([task(1)])
    times = sorted(call[0] for _, calls in opened for call in calls)
    assert verdict.score == 1.0 and len(times) == 3 and times[2] - times[0] >= 1.0
    assert len({name for _, calls in opened for name in ids(calls)}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("others", [None, (200, {}, {}), (500, {"detail": "broken"}, {})])
def test_without_any_service_there_are_errors_and_never_a_zero(scripted, gone, others):
    url, _ = scripted(others)
    with ServicePool([gone, url], patience_s=0.7) as pool:
        began = time.monotonic()
        verdicts = pool.judge_all([task(value) for value in range(5)])
        assert 0.1 < time.monotonic() - began < 5.0
    assert [(v.score, v.status) for v in verdicts] == [(None, "error")] * 5
    for verdict in verdicts:
        assert verdict.detail.startswith("no verdict from any reward service in 0.7 s: ")
        assert f"{gone}: ConnectError" in verdict.detail and f"{url}: " in verdict.detail


@pytest.mark.slow
def test_patience_ends_only_after_every_service_was_tried(scripted):
    hanging = [scripted("hang") for _ in range(3)]
    url, calls = scripted((200, fine, {}))
    urls = [*(url for url, _ in hanging), url]
    with ServicePool(urls, request_s=0.3, patience_s=0.1) as pool:
        verdicts = [pool.judge_all([task(1)])[0] for _ in range(3)]
    assert [v.score for v in verdicts] == [1.0] * 3 and len(calls) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_whatever_fails_each_item_has_its_own_verdict_once(scripted):
    chance = random.Random(0)
    good = (200, graded, {})
    bad = [None, (200, {}, {}), (500, {"detail": "broken"}, {}), (429, {"detail": "full"}, {})]
    opened = [scripted(*chance.choices([good, *bad], k=40), good) for _ in range(3)]
    got = {}
    with ServicePool([url for url, _ in opened], patience_s=60.0) as pool:

        def judge(first):
            verdicts = pool.judge_all([task(first + n) for n in range(7)])
            got[first] = [v.score for v in verdicts]

        threads = [threading.Thread(target=judge, args=(100 * n,)) for n in range(9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [s.open for s in pool._link().services._services] == [0] * 3
    assert got == {100 * n: [(100 * n + k) / 1000 for k in range(7)] for n in range(9)}
    requests = {body["request_id"]: body["items"] for _, calls in opened for _, body, *_ in calls}
    judged = [item["reference"]["value"] for items in requests.values() for item in items]
    assert sorted(judged) == sorted(100 * n + k for n in range(9) for k in range(7))


def test_services_with_other_verifiers_are_refused_by_both_names(scripted):
    (one, _), (two, calls) = scripted((200, fine, {})), scripted((200, fine, {}), listed=OTHERS)
    with (
        ServicePool([one, two]) as pool,
        pytest.raises(JudgingError, match="differently") as difference,
    ):
        pool.judge_all([task(1)])
    assert f"{one} as 1+a and {two} as 2+b" in str(difference.value) and not calls


def test_a_service_that_judges_with_another_verifier_later_ends_the_run(scripted):
    (one, _), (two, _) = scripted((200, fine, {})), scripted((200, answered(1, "2+b"), {}))
    with ServicePool([one, two]) as pool, pytest.raises(JudgingError) as difference:
        pool.judge_all([task(1), task(2)])
    assert f"{one} as 1+a and {two} as 2+b" in str(difference.value)
    changed = [(200, answered(1), {}), (200, answered(1, "2+b"), {})]
    (one, _), (two, _) = scripted(*changed), scripted((200, fine, {}))
    with ServicePool([one, two]) as pool:
        for _ in range(2):
            pool.judge_all([task(1)])
        with pytest.raises(JudgingError, match=rf"{one} judged 'number' as 1\+a and now as 2\+b"):
            pool.judge_all([task(1)])


def test_a_refusal_and_a_missing_verifier_name_the_service(scripted):
    url, _ = scripted((200, fine, {}))
    refusing, calls = scripted((401, {"detail": "a bearer token is needed"}, {}))
    said = rf"the reward service {refusing} refuses with status 401: a bearer"
    with ServicePool([url, refusing]) as pool, pytest.raises(ServiceRefusedError, match=said):
        pool.judge_all([task(1), task(2)])
    assert len(calls) == 1
    two = {"verifiers": [*LISTED["verifiers"], {"name": "numbers", "fingerprint": "1+c"}]}
    more, _ = scripted((200, fine, {}), listed=two)
    said = rf"the reward service {url} has no verifier 'numbers'. Did you mean 'number'\?"
    with ServicePool([more, url]) as pool, pytest.raises(KeyError, match=said):
        pool.judge_all([task(1, verifier="numbers")])


def test_an_item_that_is_too_large_is_an_error_of_its_own(scripted, warnings):
    large = (413, {"detail": "too large"}, {})
    (one, _), (two, second) = scripted(large), scripted((200, graded, {}))
    with ServicePool([one, two], connections=1) as pool:
        verdicts = pool.judge_all([task(value) for value in range(2)])
    assert [v.score for v in verdicts].count(None) == 1 and sizes(second) == [1]
    (refused,) = (v for v in verdicts if v.score is None)
    assert f"the reward service {one} refuses with status 413" in refused.detail
    assert not warnings()


def test_a_forked_process_knows_the_services_and_opens_its_own_connections(scripted, gone):
    url, calls = scripted((200, fine, {}))
    with ServicePool([url, gone]) as pool:
        pool.judge_all([task(1), task(2)])
        child = os.fork()
        if not child:
            verdicts = pool.judge_all([task(1), task(2)])
            os._exit(int([v.score for v in verdicts] != [1.0, 1.0]))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(calls) == 4 and {a[3] for a in calls[:2]}.isdisjoint(a[3] for a in calls[2:])


def test_closing_ends_a_call_that_waits_for_several(gone, scripted):
    url, calls = scripted((503, {"detail": "down"}, {"Retry-After": "9"}))
    pool, raised = ServicePool([gone, url]), []

    def ask():
        with pytest.raises(RuntimeError, match="closed") as failure:
            pool.judge_all([task(1)])
        raised.append(failure)

    asking = threading.Thread(target=ask)
    asking.start()
    while not calls:
        time.sleep(0.01)
    pool.close()
    asking.join(5.0)
    assert raised


@pytest.mark.parametrize(
    ("urls", "said"),
    [
        ([], "an empty list names no service; name at least one URL"),
        (["http://a", "b"], "'b' is no address of a server"),
        (["http://a:80", "http://b", "http://a/"], "http://a:80 is named twice"),
        (["http://a", ""], "'' is no address of a server"),
        (["http://anna:hunter2@a", "http://b"], r"'http://\*\*\*@a' is no address"),
    ],
)
def test_a_list_that_is_no_list_of_addresses_is_refused(urls, said):
    with pytest.raises(ValueError, match=said):
        ServicePool(urls)


def test_one_url_in_a_list_is_the_same_as_without(scripted):
    url, calls = scripted(None, (200, fine, {}))
    with ServicePool((url,)) as pool:
        assert len(pool.judge_all([task(1)] * (PART_ITEMS + 1))) == PART_ITEMS + 1
    assert sorted(sizes(calls))[-1] == PART_ITEMS and len(calls) == 3
    assert read_addresses(url) == read_addresses([url])


def test_a_rest_grows_up_to_its_bound():
    service = services._Service("", None)
    rests = []
    for service.faults in range(1, 2000):
        rests.append(service.rest_s)
    assert rests[:4] == [1.0, 2.0, 4.0, 8.0] and set(rests[4:]) == {15.0}
    assert all(a <= b for a, b in pairwise(rests)) and client.REQUEST_S > services.LIST_S


@pytest.fixture
def started():
    """Function: a service with a slow verifier, in a process of its own: its URL and process."""
    processes = []

    def start():
        flags = ["--plugin", PLUGIN, "--verifiers", "misbehaves", "number", "--port", "0"]
        process = subprocess.Popen(
            [sys.executable, "-m", "veriloop.stages.cli", "serve", *flags],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process.stdout.readline().partition(": ")[0], process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_service_killed_in_the_middle_of_a_batch_leaves_no_item_without_a_verdict(
    started, ask, warnings
):
    (one, doomed), (two, _) = started(), started()
    results = []
    with ServicePool([one, two]) as pool:
        pool.warm(["misbehaves", "number"])
        while any(ask(url, "/readyz").status != 200 for url in (one, two)):
            time.sleep(0.05)
        batch = [task(n, "sleep" if n % 2 else "behaves not", "misbehaves") for n in range(20)]
        asking = threading.Thread(target=lambda: results.extend(pool.judge_all(batch)))
        asking.start()
        while b"\nveriloop_queue_items 0.0" in ask(one, "/metrics").body:
            time.sleep(0.02)
        doomed.send_signal(signal.SIGKILL)
        asking.join()
        assert [v.score for v in results] == [float(n % 2) for n in range(20)]
        again = pool.judge_all([task("1", f"<answer>{n}</answer>") for n in range(6)])
    assert [v.score for v in again] == [float(n == 1) for n in range(6)]
    (warning,) = warnings()
    assert f"the reward service {one} is left out until it answers again" in warning
