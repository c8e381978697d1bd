"""A busy machine, a clock that is set and a death next door cost no item its verdict."""

import threading
import time
from pathlib import Path

import pytest
from pebble.pool import process

from veriloop.data.problem import Problem
from veriloop.sandbox import patient_pool
from veriloop.verifiers.pool import VerifierPool

PLUGIN = str(Path(__file__).parent / "misbehaving.py")
pytestmark = pytest.mark.slow


def acts(response):
    return Problem(id="p/0", prompt="", verifier="misbehaves", reference={}), response


@pytest.fixture
def pool():
    """Function: a warm pool of one worker with this limit."""
    opened = []

    def of(limit_s):
        opened.append(VerifierPool(workers=1, limit_s=limit_s, memory_mb=1024, plugins=[PLUGIN]))
        opened[-1].warm(["misbehaves"])
        return opened[-1]

    yield of
    for pool in opened:
        pool.close()


def only(pool, response):
    (verdict,) = pool.judge_all([acts(response)])
    return verdict


@pytest.fixture
def late_reading(monkeypatch):
    """This process reads what workers send half a second after they have sent it."""
    read = patient_pool._Manager.process_next_message

    def late(self, timeout):
        time.sleep(0.5)
        read(self, timeout)

    monkeypatch.setattr(patient_pool._Manager, "process_next_message", late)


def without_a_processor(pid):
    """All the time of a worker, as the kernel counts waiting."""
    return time.monotonic()


def test_time_without_a_processor_does_not_count(pool, monkeypatch):
    workers = pool(0.5)
    assert only(workers, "work").detail == "verifier exceeded its 0.5 s limit"  # it takes 0.9 s
    monkeypatch.setattr(patient_pool, "waited_s", without_a_processor)
    assert only(workers, "work").score == 1.0


def test_a_worker_that_never_gets_a_processor_is_given_up(pool, monkeypatch):
    workers = pool(0.05)
    monkeypatch.setattr(patient_pool, "waited_s", without_a_processor)
    verdict = only(workers, "hang")
    assert verdict.score is None and verdict.detail == "verifier exceeded its 0.05 s limit"


class SetForward:
    """The module `time` for pebble, whose wall clock is set forward by a day after 0.4 s."""

    def __init__(self):
        self.began = time.monotonic()

    def time(self):
        return time.time() + 86_400 * (time.monotonic() > self.began + 0.4)

    def __getattr__(self, name):
        return getattr(time, name)


def test_a_clock_that_is_set_ends_no_item(pool, monkeypatch):
    workers = pool(5.0)
    monkeypatch.setattr(process, "time", clock := SetForward())
    assert only(workers, "work").score == 1.0
    assert clock.time() > time.time() + 80_000


def test_a_verdict_in_time_that_is_read_late_counts(late_reading, pool):
    assert only(pool(0.2), "behave").score == 1.0


def test_a_death_that_is_seen_before_its_item_is_known_is_that_items(late_reading, pool):
    workers = pool(5.0)
    verdicts = workers.judge_all([acts(response) for response in ("behave", "exit 7", "no")])
    assert [verdict.score for verdict in verdicts] == [1.0, None, 0.0]
    assert verdicts[1].detail == "verifier worker died with exit code 7"
    assert workers.restarts == 2  # once for the group, once for the item alone


def test_an_item_whose_worker_is_stopped_for_another_one_is_judged_again(pool):
    workers, verdicts = pool(60.0), []
    judging = threading.Thread(target=lambda: verdicts.append(only(workers, "work")))
    judging.start()
    internals = workers._pool._pool_manager
    while not (began := [t.worker_id for t in internals.task_manager.tasks.values() if t.started]):
        time.sleep(0.01)
    internals.worker_manager.workers.pop(began[0]).kill()  # as pebble does to one past its limit
    judging.join(30)
    assert [verdict.score for verdict in verdicts] == [1.0]


def test_a_pool_that_breaks_as_it_is_given_an_item_is_replaced(pool, monkeypatch):
    workers, schedule, broken = pool(5.0), patient_pool.PatientPool.schedule, []

    def breaks(self, *args, **options):
        if not broken:
            broken.append(self)
            self.stop()
        return schedule(self, *args, **options)

    monkeypatch.setattr(patient_pool.PatientPool, "schedule", breaks)
    assert only(workers, "behave").score == 1.0
    assert broken and workers._pool is not broken[0]
