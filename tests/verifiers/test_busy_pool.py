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


@pytest.fixture
def judging(pool):
    """(pool, manager of its processes, worker that judges an item, the item's verdict to come)."""
    workers, verdicts = pool(60.0), []
    thread = threading.Thread(target=lambda: verdicts.append(only(workers, "work")))
    thread.start()
    manager = workers._pool._pool_manager
    tasks = manager.task_manager.tasks
    while not (began := [task.worker_id for task in [*tasks.values()] if task.started]):
        time.sleep(0.01)

    def verdict():
        thread.join(100)
        return verdicts[0]

    yield workers, manager.worker_manager, began[0], verdict
    thread.join(100)


def test_an_item_whose_worker_is_stopped_for_another_one_is_judged_again(judging):
    _, manager, worker, verdict = judging
    while not manager.maybe_stop_worker(worker):  # as pebble does to one past its limit
        time.sleep(0.01)
    assert verdict().score == 1.0


def test_a_worker_that_dies_with_the_lock_of_its_pool_keeps_no_other_waiting(judging):
    workers, manager, worker, verdict = judging
    assert manager.workers_channel.mutex.acquire(timeout=30)  # it ends with the broken pool
    began = time.monotonic()
    manager.workers[worker].kill()
    assert verdict().detail == "verifier worker died with exit code -9"
    assert only(workers, "behave").score == 1.0
    assert time.monotonic() < began + 55  # pebble's workers wait for 60 s


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
