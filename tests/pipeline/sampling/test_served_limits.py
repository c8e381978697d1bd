"""Servers that are busy, refuse or lose requests, and the limit on connections to them."""

import os
import resource
import threading
import time
from contextlib import ExitStack

import httpx2
import pytest
import torch

from tests.vllm_stand_in import StandIn, serving
from veriloop.pipeline.config.cluster import ClusterConfig
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.sampling import connections, served, vllm_server
from veriloop.pipeline.sampling.connections import connected
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.sampling.served import ServedSampler

PROMPTS = [(1, *range(2, 2 + n)) for n in range(12)]
SAMPLING = Sampling(per_prompt=4, temperature=1.0, max_tokens=8, seed=3)
pytestmark = pytest.mark.slow
COUNT = len(PROMPTS) * SAMPLING.per_prompt


class Queueing(StandIn):
    """Works on a few requests at a time; the others wait in it."""

    def __init__(self, *, at_once=64, takes_s=0.0):
        super().__init__()
        self._places, self._takes_s = threading.Semaphore(at_once), takes_s
        self.statuses = {}  # of requests, by how many came before
        self.lost = ()  # requests that get no answer, in the same way
        self.most, self._now, self._came = 0, 0, 0
        self._counts, self._never = threading.Lock(), threading.Event()

    def on_generate(self, body):
        with self._counts:
            place, self._came, self._now = self._came, self._came + 1, self._now + 1
            self.most = max(self.most, self._now)
        try:
            if place in self.lost:
                self._never.wait(30.0)
            with self._places:
                time.sleep(self._takes_s)
                answer = super().on_generate(body)
        finally:
            with self._counts:
                self._now -= 1
        return self.statuses.get(place, answer[0]), answer[1]


@pytest.fixture
def fleet(tiny_checkpoint, tmp_path):
    """Function: a sampler of these servers, which hold weights, and what it says."""
    with ExitStack() as stack:

        def build(*servers, room=64, **deadlines):
            urls = [stack.enter_context(serving(server)).url for server in servers]
            cluster = {"samplers": {"urls": urls}, "deadlines": deadlines}
            said = []
            sampler = ServedSampler(
                ClusterConfig.model_validate(cluster), SamplerConfig(max_batch=room),
                str(tiny_checkpoint()), tmp_path, max_length=96, say=said.append,
            )  # fmt: skip
            stack.callback(sampler.close)
            sampler.load_weights([("a", torch.ones(2))], 0)
            return sampler, said

        yield build


def answers(sampler):
    return sum(map(len, sampler.sample(PROMPTS, SAMPLING)))


def test_servers_that_go_on_answering_are_kept_however_long_their_queues_are(fleet):
    sampler, _ = fleet(*(Queueing(at_once=2, takes_s=0.2) for _ in range(2)), answer_s=1.5)
    began = time.monotonic()
    assert answers(sampler) == COUNT and time.monotonic() - began > 1.5
    assert not sampler.fleet.left_out


def test_a_lost_request_is_asked_again_once_its_server_answers_nothing(fleet):
    loses, good = Queueing(takes_s=0.02), Queueing(takes_s=0.02)
    loses.lost = (3,)
    sampler, said = fleet(loses, good, answer_s=1.5)
    assert answers(sampler) == COUNT
    assert set(sampler.fleet.left_out) == {loses.url}
    assert "no answer within 1.5 s (cluster.deadlines.answer_s)" in said[-1]


@pytest.mark.parametrize("status", [401, 404, 413, 503])
def test_a_server_that_fails_in_its_own_way_is_left_out_and_named(fleet, status):
    bad, good = Queueing(), Queueing()
    bad.statuses = dict.fromkeys(range(COUNT), status)
    sampler, said = fleet(bad, good)
    assert answers(sampler) == COUNT
    assert set(sampler.fleet.left_out) == {bad.url} and f"HTTP status {status}" in said[-1]


@pytest.mark.parametrize("status", [400, 422])
def test_a_request_that_is_wrong_ends_the_run(fleet, status):
    bad = Queueing()
    bad.statuses = dict.fromkeys(range(COUNT), status)
    sampler, _ = fleet(bad, Queueing())
    with pytest.raises(StageError, match=f"refused a request.*HTTP status {status}"):
        answers(sampler)


@pytest.mark.parametrize("status", [408, 425, 429])
def test_a_server_without_room_is_asked_again_and_left_out_if_it_answers_nothing(
    fleet, monkeypatch, status
):
    monkeypatch.setattr(vllm_server, "RETRY_S", 0.05)
    busy, good = Queueing(), Queueing()
    busy.statuses = dict.fromkeys(range(12), status)
    sampler, said = fleet(busy, good, room=8, answer_s=1.5)
    assert answers(sampler) == COUNT and not sampler.fleet.left_out
    busy.statuses = dict.fromkeys(range(1000), status)
    assert answers(sampler) == COUNT and set(sampler.fleet.left_out) == {busy.url}
    assert "no answer within 1.5 s (cluster.deadlines.answer_s); /inf" in said[-1]
    assert f"HTTP status {status}" in said[-1]


def used():
    return len(os.listdir("/dev/fd"))


@pytest.fixture
def limit(monkeypatch):
    """Function: there seems to be a hard limit on open files."""

    def set_to(files):
        monkeypatch.setattr(connections.resource, "getrlimit", lambda _: (files, files))

    return set_to


def test_asks_beyond_the_limit_on_open_files_wait_their_turn(fleet, limit):
    limit(2 * used() + 24)
    servers = [Queueing(takes_s=0.02) for _ in range(3)]
    sampler, said = fleet(*servers)
    assert answers(sampler) == COUNT and not sampler.fleet.left_out
    room = sampler.fleet.room
    assert 1 <= max(server.most for server in servers) <= room < 16
    assert any(f"WARNING: {room} asks at once of each server" in line for line in said)
    limit(used())
    with pytest.raises(StageError, match="leaves 0 connections for 3 servers"):
        answers(sampler)


def test_the_soft_limit_on_open_files_is_raised_for_connections():
    kept = resource.getrlimit(resource.RLIMIT_NOFILE)
    if kept[1] < 500:
        pytest.skip("the hard limit is too low for it")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used() + 20, kept[1]))
        assert connected(2, 100)[1] == 100
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= used() + 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, kept)


def test_a_process_without_another_open_file_blames_itself_and_no_server(fleet, monkeypatch):
    sampler, _ = fleet(StandIn())
    kept = resource.getrlimit(resource.RLIMIT_NOFILE)

    transport = httpx2.AsyncHTTPTransport()

    def full(*_):
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, kept[1]))
        return transport, 8

    monkeypatch.setattr(served, "connected", full)
    try:
        with pytest.raises(StageError, match="this process has too many open files"):
            answers(sampler)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, kept)
    assert not sampler.fleet.left_out
