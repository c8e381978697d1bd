"""Weights sent to workers in other processes: through a process group and by shared memory."""

import os
import signal
import threading
import time
from contextlib import ExitStack, contextmanager

import msgspec
import pytest
import torch

from tests.forked import forked
from tests.pipeline.sampling.transfer.worker import work
from veriloop.pipeline.sampling.sampler import digests
from veriloop.pipeline.sampling.transfer import groups
from veriloop.pipeline.sampling.transfer import sender as sender_module
from veriloop.pipeline.sampling.transfer.groups import Seat, seat
from veriloop.pipeline.sampling.transfer.records import address_towards
from veriloop.pipeline.sampling.transfer.sender import Sender, TransferError

URLS = ("http://127.0.0.1:8001", "http://127.0.0.1:8002")
SEVERAL = 10_000  # bytes of a bucket: two or three weights, each at the start of a page
ways = pytest.mark.parametrize("way", ["gloo", "ipc"])
pytestmark = pytest.mark.slow


class Worker:
    """A worker process; `hear` is what it says next."""

    def __init__(self, rank=0, mischief="", largest=groups.LARGEST):
        self.process, self.connection = forked(work, rank, mischief, largest)

    def tell(self, invitation):
        self.connection.send(invitation)

    def hear(self):
        assert self.connection.poll(60), "the worker says nothing"
        return self.connection.recv()

    def close(self):
        self.process.kill()
        self.process.join()


@contextmanager
def workers(*settings):
    with ExitStack() as stack:
        started = [Worker(*words) for words in settings]
        for worker in started:
            stack.callback(worker.close)
        yield started


def weights_of(seed):
    """Of several types and sizes; `large` is beyond a bucket, `tail` is not aligned."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"scalar": (), "large": (70, 33), "tail": (3,), "half": (5, 7), "last": (2, 2, 2)}
    return [
        (name, torch.randn(shape, generator=generator).to(
            torch.bfloat16 if name == "half" else torch.float32
        ))
        for name, shape in shapes.items()
    ]  # fmt: skip


def expected(weights):
    return [(name, w.dtype, tuple(w.shape)) for name, w in weights], digests(weights)


def send(sender, workers_by_url, weights):
    """Send to these workers; several of a URL are its ranks."""
    invitations = sender.invite({url: len(own) for url, own in workers_by_url.items()})
    for url, own in workers_by_url.items():
        for worker in own:
            worker.tell(invitations[url])
    sender.send(weights, threading.Event())


@ways
@pytest.mark.parametrize("bucket_bytes", [1, SEVERAL, 2**20])
def test_every_worker_gets_every_weight_again_and_again(way, bucket_bytes):
    sender = Sender(way, 30.0, bucket_bytes)
    with workers((0,), (0,), (1,)) as (one, two, two_b):
        by_url = {URLS[0]: [one], URLS[1]: [two, two_b]}
        for seed in range(3):
            weights = weights_of(seed)
            send(sender, by_url, iter(weights))
            assert [w.hear() for w in (one, two, two_b)] == [expected(weights)] * 3
        fewer = {URLS[1]: [two, two_b]}
        send(sender, fewer, iter(weights_of(7)))
        assert [w.hear() for w in (two, two_b)] == [expected(weights_of(7))] * 2
        sender.close()


@ways
def test_a_worker_that_stands_still_is_named_and_the_others_take_the_next_sending(way):
    sender = Sender(way, 6.0, SEVERAL)
    with workers((0,), (0, "stops at scalar")) as (well, still):
        began = time.monotonic()
        with pytest.raises(TransferError, match=f"{URLS[1]} took more than 6 s") as failure:
            send(sender, {URLS[0]: [well], URLS[1]: [still]}, weights_of(0))
        assert failure.value.late == (URLS[1],)
        assert time.monotonic() - began < 30
        assert well.hear()[0] == "failed"
        send(sender, {URLS[0]: [well]}, weights_of(1))
        assert well.hear() == expected(weights_of(1))
        sender.close()


@ways
def test_a_worker_that_dies_ends_the_sending_for_all(way):
    sender, lost = Sender(way, 20.0, SEVERAL), threading.Event()
    with workers((0,), (0, "dies at large")) as (well, dying):
        invitations = sender.invite({URLS[0]: 1, URLS[1]: 1})
        well.tell(invitations[URLS[0]])
        dying.tell(invitations[URLS[1]])

        def watch():
            dying.process.join()
            lost.set()  # as the end of a server's connection does

        threading.Thread(target=watch, daemon=True).start()
        with pytest.raises(TransferError):
            sender.send(weights_of(0), lost)
        assert lost.is_set() and well.hear()[0] == "failed"
        send(sender, {URLS[0]: [well]}, weights_of(1))
        assert well.hear() == expected(weights_of(1))
        sender.close()


@ways
def test_workers_that_wait_are_told_when_the_weights_end_early(way):
    def broken():
        yield from weights_of(0)[:3]
        raise KeyboardInterrupt

    sender = Sender(way, 20.0, SEVERAL)
    with workers((0,)) as (well,), pytest.raises(KeyboardInterrupt):
        send(sender, {URLS[0]: [well]}, broken())
    with workers((0,)) as (well,):
        with pytest.raises(KeyboardInterrupt):
            send(sender, {URLS[0]: [well]}, broken())
        assert well.hear()[0] == "failed"


def train(connection, way):
    """A trainer that is killed before its last bucket."""
    sender = Sender(way, 60.0, 64)
    connection.send(sender.invite({URLS[0]: 1})[URLS[0]])

    def weights():
        yield "a", torch.ones(40)
        yield "b", torch.ones(40)
        os.kill(os.getpid(), signal.SIGKILL)

    sender.send(weights(), threading.Event())


@ways
def test_workers_notice_a_trainer_that_is_killed(way):
    with workers((0,)) as (well,):
        trainer, connection = forked(train, way)
        well.tell(connection.recv())
        trainer.join()
        assert trainer.exitcode == -signal.SIGKILL
        assert well.hear()[0] == "failed"


def test_shared_memory_of_another_machine_is_refused():
    sender = Sender("ipc", 5.0)
    with workers((0,)) as (well,):
        invitations = sender.invite({URLS[0]: 1})
        well.tell(msgspec.structs.replace(invitations[URLS[0]], machine="elsewhere"))
        said = well.hear()
        assert said[0] == "failed" and "another machine" in said[1]
        sender.close()


def test_the_deadline_of_servers_is_none_for_this_process(monkeypatch):
    opened = []

    class Store:
        port = 1

        def __init__(self, *_, timeout, **__):
            opened.append(timeout.total_seconds())

        def set_timeout(self, timeout):
            opened.append(timeout.total_seconds())

        def set(self, *_): ...

    monkeypatch.setattr(sender_module, "TCPStore", Store)
    Sender("gloo", 2.0).invite({URLS[0]: 1})
    assert opened == [sender_module.OPENING_S, 2.0]
    assert sender_module.OPENING_S >= 60


def test_servers_elsewhere_get_an_address_that_they_reach():
    assert address_towards(["http://127.0.0.1:1", "http://localhost:2"]) == "127.0.0.1"


def test_weights_go_through_several_groups_where_there_are_many_workers(monkeypatch):
    monkeypatch.setattr(groups, "LARGEST", 2)
    sender = Sender("gloo", 30.0, SEVERAL)
    with workers((0, "", 2), (1, "", 2), (2, "", 2)) as started:
        for seed in range(2):
            send(sender, {URLS[0]: started}, iter(weights_of(seed)))
            assert [worker.hear() for worker in started] == [expected(weights_of(seed))] * 3
        assert [group.size() for group in sender._groups] == [3, 2]
        sender.close()


@pytest.mark.parametrize(
    ("worker", "workers", "position"),
    [(0, 1, (0, 1, 2)), (63, 64, (0, 64, 65)), (64, 130, (1, 1, 65)), (129, 130, (2, 2, 3))],
)
def test_a_group_has_at_most_64_workers_beside_the_trainer(worker, workers, position):
    assert seat(worker, workers) == Seat(*position)
