"""The queue: small requests share groups, order holds within each, a broken pool is told."""

import asyncio
import threading

import pytest

from veriloop.data.problem import Problem
from veriloop.sandbox.remote.refusal import Refusal
from veriloop.verifiers.service.queue import GROUP, Desk
from veriloop.verifiers.service.repeats import KEEP_REQUESTS, KEEP_S, Repeats
from veriloop.verifiers.verdict import Verdict

TASK = (Problem(id="", prompt="", verifier="number", reference={}), "")


class Held:
    """A pool of one worker that waits for `open` and notes how much it is given at once."""

    workers = 1

    def __init__(self):
        self.open = threading.Event()
        self.sizes = []

    def judge_groups(self, tasks):
        self.sizes.append(len(tasks))
        self.open.wait(10)
        if any(response == "break" for _, response in tasks):
            yield {0: Verdict(score=0.0)}
            raise OSError("the pool is gone")
        for n in range(0, len(tasks), 2):
            yield {k: Verdict(score=1.0, answer=tasks[k][1]) for k in (n, n + 1) if k < len(tasks)}


@pytest.fixture
def pool():
    return Held()


@pytest.fixture
def desk(pool):
    with Desk(pool, 1000) as desk:
        yield desk
        pool.open.set()


def tasks(*responses):
    return [(TASK[0], response) for response in responses]


async def every_lane(pool, desk):
    """Tickets of one item each, one to a lane."""
    lanes = []
    for count in range(1, 5):
        lanes.append(desk.submit(tasks("x")))
        while len(pool.sizes) < count:
            await asyncio.sleep(0.005)
    return lanes


def test_requests_that_wait_become_one_group(pool, desk):
    async def run():
        lanes = await every_lane(pool, desk)
        later = [desk.submit(tasks(str(n))) for n in range(GROUP)]
        assert desk.depth == 4 + GROUP
        pool.open.set()
        answers = [await ticket.all() for ticket in later]
        assert [verdicts[0].answer for verdicts in answers] == [str(n) for n in range(GROUP)]
        assert [len(await ticket.all()) for ticket in lanes] == [1] * 4

    asyncio.run(run())
    assert pool.sizes == [1, 1, 1, 1, GROUP] and desk.depth == 0


def test_each_request_sees_its_own_verdicts_as_they_come(pool, desk):
    async def run():
        pool.open.set()
        ticket = desk.submit(tasks(*"abcde"))
        seen = []
        while more := await ticket.next_after(len(seen)):
            seen += more
        assert seen == [0, 1, 2, 3, 4] and ticket.done
        assert [verdict.answer for verdict in ticket.verdicts] == list("abcde")
        assert await desk.submit([]).all() == []

    asyncio.run(run())


def test_a_pool_that_breaks_gives_errors_to_those_it_left(pool, desk):
    async def run():
        pool.open.set()
        verdicts = await desk.submit(tasks("a", "break", "c")).all()
        assert [verdict.score for verdict in verdicts] == [0.0, None, None]
        assert verdicts[1].detail == "OSError: the pool is gone"
        assert (await desk.submit(tasks("b")).all())[0].score == 1.0  # the lane lives on

    asyncio.run(run())
    assert desk.depth == 0


def test_room_is_counted_in_items(pool):
    with Desk(pool, 4) as desk:

        async def run():
            desk.submit(tasks("a", "b", "c"))
            with pytest.raises(Refusal) as full:
                desk.submit(tasks("d", "e"))
            assert full.value.status == 429 and full.value.headers == {"Retry-After": "1"}
            desk.submit(tasks("d"))
            with pytest.raises(Refusal) as never:
                desk.submit(tasks(*"abcde"))
            assert never.value.status == 413 and never.value.headers == {}
            desk.draining = True
            with pytest.raises(Refusal) as down:
                desk.submit(tasks("f"))
            assert down.value.status == 503

        asyncio.run(run())
        pool.open.set()


def test_waiting_at_the_desk_is_part_of_the_waiting(pool):
    seen = []
    with Desk(pool, 10, lambda task, verdict: seen.append((task, verdict))) as desk:

        async def run():
            held = [*await every_lane(pool, desk), desk.submit(tasks("a"))]
            await asyncio.sleep(0.2)
            pool.open.set()
            for one in held:
                await one.all()

        asyncio.run(run())
    assert len(seen) == 5 and max(verdict.queue_s for _, verdict in seen) > 0.15


def test_repeats_are_forgotten_by_age_and_number():
    now = [0.0]
    repeats = Repeats(clock=lambda: now[0])
    first = repeats.ticket("a", b"1", object)
    assert repeats.ticket("a", b"1", object) is first
    assert repeats.ticket("", b"1", object) is not repeats.ticket("", b"1", object)
    with pytest.raises(Refusal, match="409"):
        repeats.ticket("a", b"2", object)
    now[0] = KEEP_S + 1
    assert repeats.ticket("a", b"2", object) is not first
    kept = repeats.ticket("b", b"", object)
    for n in range(KEEP_REQUESTS):
        repeats.ticket(f"n{n}", b"", object)
    assert repeats.ticket("b", b"", object) is not kept


def test_a_request_that_was_refused_is_not_remembered():
    repeats = Repeats()

    def full():
        raise Refusal(429, "full", 1.0)

    with pytest.raises(Refusal):
        repeats.ticket("a", b"1", full)
    made = repeats.ticket("a", b"1", object)
    assert repeats.ticket("a", b"1", full) is made
