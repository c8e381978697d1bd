"""What the pool makes of each end of a call; its process pool runs the calls in this process."""

import pickle
import threading
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from pebble import ProcessExpired

from tests.clock import Clock
from veriloop.data.problem import Problem
from veriloop.sandbox.clean_spawn import EXITED
from veriloop.verifiers import pool as pool_module
from veriloop.verifiers.pool import ATTEMPTS, CHUNK, CHUNK_BUDGET, WARM_LIMIT_S, VerifierPool
from veriloop.verifiers.verdict import UnreadyVerifierError, Verdict
from veriloop.verifiers.worker import judge_chunk

PLUGIN = str(Path(__file__).parent / "misbehaving.py")
GOOD = "<answer>12</answer>"
LOST, NEVER, CANCELLED = "the pool breaks", "no end", "cancelled"
MAX_CALLS = 40
TOO_LATE_S = 3.0  # after which a call that was lost ends all the same


class Awaited(Future):
    """Notes how long it is awaited for its exception, in `waits`."""

    def exception(self, timeout=None):
        if timeout is not None:
            self.waits.append(timeout)
        return super().exception(timeout)


class Pretended:
    """Stands in for `PatientPool`: calls end as listed in `ends`, and else as their function."""

    def __init__(self, owner, workers, settings):
        self.owner, self.workers, self.settings = owner, workers, settings
        self.active = True
        self.stopped = False
        self.joined = threading.Event()
        self.joined_by_daemon = False
        self.slow_to_end = threading.Event()
        self.slow_to_end.set()

    def schedule(self, function, args, timeout):
        if not self.active:
            raise RuntimeError("The Pool is not active")
        self.owner.calls.append((function, args, timeout))
        assert len(self.owner.calls) < MAX_CALLS, "it sends without an end"
        self.owner.clock.now += self.owner.call_s
        future = Awaited()
        future.waits = self.owner.waits
        end = self.owner.ends.pop(0) if self.owner.ends else None
        if end is LOST:
            self.active = False
            late = pickle.dumps([Verdict(score=0.25)] * 2)
            ending = threading.Timer(TOO_LATE_S, future.set_result, [late])
            ending.daemon = True
            ending.start()
        elif end is CANCELLED:
            future.cancel()
            future.set_running_or_notify_cancel()
        elif isinstance(end, BaseException):
            future.set_exception(end)
        elif end is not NEVER:
            future.set_result(end or function(*args))
        self.owner.futures.append(future)
        return future

    def stop(self):
        self.active, self.stopped = False, True

    def join(self):
        self.slow_to_end.wait(10)
        self.joined_by_daemon = threading.current_thread().daemon
        self.joined.set()


class Processes:
    """All pretended process pools of a test; `ends` are those of the next calls."""

    def __init__(self):
        self.clock = Clock(50.0)
        self.call_s = 0.0  # by which the clock advances at each call
        self.ends, self.calls, self.futures, self.waits, self.pools = [], [], [], [], []

    def open(self, workers, initializer, settings, context):
        self.pools.append(Pretended(self, workers, settings))
        return self.pools[-1]

    def judged(self):
        """The responses of each call that judges some, in order."""
        chunks = [pickle.loads(args[0]) for f, args, _ in self.calls if f is judge_chunk]
        return [[response for _, response in chunk] for chunk in chunks]


@pytest.fixture
def processes(monkeypatch):
    opened = Processes()
    monkeypatch.setattr(pool_module, "PatientPool", opened.open)
    monkeypatch.setattr(pool_module, "time", opened.clock)
    return opened


@pytest.fixture
def warm(processes):
    """Function: a pool with two verifiers warm, whose calls so far are forgotten."""

    def opened(**options):
        pool = VerifierPool(plugins=[PLUGIN], **options)
        pool.warm(["number", "misbehaves"])
        processes.calls.clear()
        processes.futures.clear()
        return pool

    return opened


def sums(*responses):
    problem = Problem(id="p/1", prompt="", verifier="number", reference={"value": 12})
    return [(problem, response) for response in responses]


def acts(*responses, **reference):
    problem = Problem(id="p/0", prompt="", verifier="misbehaves", reference=reference)
    return [(problem, response) for response in responses]


def died(code):
    return ProcessExpired("it died", code=code)


def numbered(count):
    return [f"{GOOD}{n}" for n in range(count)]


def test_a_pool_of_no_arguments_is_one_worker_of_five_seconds_and_two_gigabytes(processes):
    pool = VerifierPool()
    assert (pool.workers, pool.limit_s, pool.restarts) == (1, 5.0, 0)
    assert processes.pools[0].workers == 1 and processes.pools[0].settings[1] == 2048


def test_names_are_warmed_once_by_each_worker_and_by_those_that_come_later(processes):
    pool = VerifierPool(workers=2)
    pool.judge_all(sums(GOOD))
    pool.judge_all(sums(GOOD))
    names = [function.__name__ for function, _, _ in processes.calls]
    assert names == ["warm_up", "warm_up", "judge_chunk", "judge_chunk"]
    assert processes.calls[0][1:] == ((("number",),), WARM_LIMIT_S)
    assert processes.pools[0].settings[3] == ["number"]


def test_a_warm_up_that_failed_is_begun_anew(processes):
    pool = VerifierPool()
    processes.ends = [OSError("no engine")]
    with pytest.raises(UnreadyVerifierError, match="OSError: no engine"):
        pool.warm(["number"])
    pool.warm(["number"])
    assert len(processes.calls) == 2 and processes.pools[0].settings[3] == ["number"]


@pytest.mark.parametrize("death", [died(-9), BrokenProcessPool("gone")])
def test_a_worker_may_die_of_a_warm_up_twice_and_no_more(processes, death):
    pool = VerifierPool()
    processes.ends = [death] * (ATTEMPTS - 1)
    pool.warm(["number"])
    assert (len(processes.calls), pool.restarts) == (ATTEMPTS, ATTEMPTS - 1) == (3, 2)
    assert processes.waits == [2 * WARM_LIMIT_S] * 3  # others may be before it
    processes.ends = [death] * ATTEMPTS
    with pytest.raises(UnreadyVerifierError, match="cannot judge their examples"):
        pool.warm(["exact_match"])
    assert processes.ends == []


def test_leaving_a_pool_stops_its_processes_and_waits_for_them(processes):
    with VerifierPool() as pool:
        pass
    (ended,) = processes.pools
    assert ended.stopped and ended.joined.is_set() and ended.joined_by_daemon
    with pytest.raises(RuntimeError, match="closed"):
        pool.judge_all(sums(GOOD))


def test_closing_waits_for_processes_that_are_slow_to_end_up_to_a_limit(processes, monkeypatch):
    pool = VerifierPool()
    slow = processes.pools[0].slow_to_end
    slow.clear()
    threading.Timer(0.1, slow.set).start()
    pool.close()
    assert processes.pools[0].joined.is_set()
    slow.clear()
    monkeypatch.setattr(pool_module, "CLOSE_LIMIT_S", 0.01)
    with pytest.raises(RuntimeError, match=r"has not ended after 0\.01 s"):
        pool.close()
    slow.set()


def test_a_pool_that_broke_is_replaced_and_ended_in_the_background(processes, warm):
    pool = warm(workers=3)
    processes.pools[0].active = False
    assert [verdict.score for verdict in pool.judge_all(sums(GOOD, "no"))] == [1.0, 0.0]
    assert pool.restarts == 3 and len(processes.pools) == 2
    assert processes.pools[0].joined.wait(10) and processes.pools[0].joined_by_daemon
    assert processes.pools[1].settings[3] == ["number", "misbehaves"]


def test_the_cost_of_a_verifier_is_a_moving_average(warm):
    pool = warm()
    pool.note([("a", 2.0), ("b", 1.0), ("a", 4.0)])
    assert pool.costs == {"a": pytest.approx(0.8 * 2.0 + 0.2 * 4.0), "b": pytest.approx(1.0)}


def test_what_was_judged_is_noted_as_the_cost_of_its_verifier(processes, warm):
    pool = warm()
    processes.ends = [
        pickle.dumps([Verdict(score=1.0, exec_s=3.0), Verdict(score=0.0, exec_s=8.0)])
    ]
    pool.judge_all(sums(*numbered(2)))
    assert pool.costs == {"number": pytest.approx(0.8 * 3.0 + 0.2 * 8.0)}


def test_items_are_sent_with_their_limit_and_a_share_of_it_for_the_chunk(processes, warm):
    pool = warm(limit_s=4.0)
    tasks = [*acts("behave", "no"), *acts("behave", states=0.5), *sums(GOOD)]
    assert [verdict.score for verdict in pool.judge_all(tasks)] == [1.0, 0.0, 1.0, 1.0]
    assert [timeout for _, _, timeout in processes.calls] == [4.0, 4.5]
    assert processes.judged() == [["behave", "no", GOOD], ["behave"]]
    began, budget_s = processes.calls[0][1][1:]
    assert began == 50.0 and budget_s == pytest.approx(0.4) and CHUNK_BUDGET < 0.5


def test_items_with_alternating_limits_are_sent_in_chunks(warm, processes):
    pool = warm(limit_s=4.0)
    slow, quick = acts(*["behave"] * 30, states=0.5), sums(*numbered(30))
    verdicts = pool.judge_all([task for pair in zip(slow, quick, strict=True) for task in pair])
    assert [verdict.score for verdict in verdicts] == [1.0] * 60
    assert processes.judged() == [["behave"] * 30, numbered(30)]
    assert [timeout for _, _, timeout in processes.calls] == [4.5, 4.0]


@pytest.mark.parametrize(
    ("costs", "count", "sizes"),
    [
        ({}, 8, [4, 4]),  # shared out: the cost is not known
        ({"number": 10e-6}, 8, [8]),  # not worth two trips
        ({"number": 0.0005}, 8, [4, 4]),
        ({"number": 0.0005}, 3, [3]),
        ({"number": 0.5}, 2, [1, 1]),
        ({"number": 0.0}, CHUNK, [CHUNK]),
        ({"number": 0.5}, 5 * CHUNK, [CHUNK] * 5),
    ],
)
def test_a_chunk_is_a_share_for_each_worker_or_more_of_fast_items(
    processes, warm, costs, count, sizes
):
    pool = warm(workers=2)
    pool.costs |= costs
    assert len(pool.judge_all(sums(*numbered(count)))) == count
    assert list(map(len, processes.judged())) == sizes


def test_the_slowest_verifier_of_a_batch_decides_how_it_is_shared_out(processes, warm):
    pool = warm(workers=2)
    pool.costs |= {"number": 10e-6, "misbehaves": 0.5}
    pool.judge_all([*sums(*numbered(3)), *acts("behave")])
    assert list(map(len, processes.judged())) == [2, 2]


def test_the_rest_of_a_chunk_that_a_worker_returns_is_sent_again(processes, warm):
    pool = warm()
    processes.ends = [pickle.dumps([Verdict(score=1.0, answer="first"), Verdict(score=0.5)])]
    verdicts = pool.judge_all(sums("a", "b", "no", GOOD, "none"))
    assert [verdict.score for verdict in verdicts] == [1.0, 0.5, 0.0, 1.0, 0.0]
    assert processes.judged() == [["a", "b", "no", GOOD, "none"], ["no", GOOD, "none"]]


def test_an_item_past_its_limit_has_spent_it_and_waited_the_rest(processes, warm):
    pool = warm(limit_s=2.0)
    processes.ends, processes.call_s = [TimeoutError()], 2.5
    (verdict,) = pool.judge_all(acts("behave"))
    assert verdict == Verdict(
        score=None, status="error", detail="verifier exceeded its 2.0 s limit",
        components={"half": 0.0}, queue_s=0.5, exec_s=2.0,
    )  # fmt: skip
    assert pool.restarts == 1


@pytest.mark.parametrize(("code", "shown"), [(7, 7), (-9, -9), (EXITED, 0)])
def test_an_item_whose_worker_dies_is_an_error_with_the_exit_code(processes, warm, code, shown):
    pool = warm(limit_s=2.0)
    processes.ends, processes.call_s = [died(code)], 0.25
    (verdict,) = pool.judge_all(acts("behave"))
    assert (verdict.score, verdict.queue_s, verdict.exec_s) == (None, 0.25, 0.0)
    assert verdict.detail == f"verifier worker died with exit code {shown}" and pool.restarts == 1


def test_any_other_failure_is_described_and_costs_no_worker(processes, warm):
    pool = warm()
    processes.ends = [MemoryError("no room")]
    (verdict,) = pool.judge_all(acts("behave"))
    assert verdict.detail == "MemoryError: no room" and pool.restarts == 0


@pytest.mark.parametrize("count", [2, 3])
def test_a_chunk_that_fails_is_sent_again_one_by_one(processes, warm, count):
    pool = warm()
    processes.ends = [died(7), None, died(7)]
    verdicts = pool.judge_all(acts(*["behave"] * count))
    assert [verdict.score for verdict in verdicts] == [1.0, None, 1.0][:count]
    assert list(map(len, processes.judged())) == [count] + [1] * count and pool.restarts == 2


@pytest.mark.parametrize("end", [LOST, CANCELLED, BrokenProcessPool("gone")])
def test_items_of_a_pool_that_breaks_are_sent_again_one_by_one(processes, warm, end, monkeypatch):
    monkeypatch.setattr(pool_module, "_WAKE_S", 0.01)
    pool = warm()
    processes.ends = [end]
    assert [verdict.score for verdict in pool.judge_all(sums(GOOD, "no"))] == [1.0, 0.0]
    assert processes.judged() == [[GOOD, "no"], [GOOD], ["no"]]


def test_an_item_under_which_the_pool_breaks_three_times_is_given_up(processes, warm):
    pool = warm()
    processes.ends = [BrokenProcessPool("gone")] * 3
    (verdict,) = pool.judge_all(sums(GOOD))
    assert verdict.detail == "the pool broke 3 times under this item"
    assert len(processes.calls) == 3 and processes.ends == []


def test_a_verdict_is_yielded_while_others_are_awaited(processes, warm, monkeypatch):
    monkeypatch.setattr(pool_module, "_WAKE_S", 30.0)
    pool = warm(workers=2)
    processes.ends, taken = [None, NEVER], threading.Event()
    groups = pool.judge_groups(sums(GOOD, "no"))

    def end_the_second():
        taken.wait(TOO_LATE_S)
        processes.futures[1].set_result(pickle.dumps([Verdict(score=0.0)]))

    ending = threading.Thread(target=end_the_second)
    ending.start()
    first = next(groups)
    taken.set()
    ending.join()
    assert [list(group) for group in (first, *groups)] == [[0], [1]]
    assert len(processes.calls) == 2
