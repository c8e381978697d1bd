"""Weights that are sent to servers, of which some die, stand still, refuse or lie meanwhile."""

import os
import signal
import threading
from contextlib import ExitStack

import pytest
import torch
from torch.distributed import DistNetworkError

from tests import vllm_stand_in
from tests.forked import forked
from tests.vllm_stand_in import StandIn, serving
from veriloop.pipeline.config.cluster import ClusterConfig
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.model.policy import load_policy
from veriloop.pipeline.sampling.sampler import SendAgainError
from veriloop.pipeline.sampling.served import ServedSampler
from veriloop.pipeline.sampling.sync import SyncError, WeightSync
from veriloop.pipeline.sampling.torch_engine import TorchSampler
from veriloop.pipeline.sampling.transfer import sender
from veriloop.pipeline.sampling.vllm_server import ServerFaultError

PROMPTS = [(1, 40, 41, 42), (1, 50)]
ways = pytest.mark.parametrize("way", ["gloo", "ipc"])
pytestmark = pytest.mark.slow


@pytest.fixture
def fleet(tiny_checkpoint, tmp_path):
    """Function: a sync of a policy to these servers, and what is said."""
    with ExitStack() as stack:

        def build(way, *servers, sync_s=20.0):
            for server in servers:
                if isinstance(server, StandIn):
                    stack.enter_context(serving(server))
            said, urls = [], [server.url for server in servers]
            cluster = ClusterConfig.model_validate(
                {"samplers": {"urls": urls, "weights": way}, "deadlines": {"sync_s": sync_s}}
            )
            sampler = ServedSampler(
                cluster, SamplerConfig(max_batch=8), str(tiny_checkpoint()), tmp_path,
                max_length=96, say=said.append,
            )  # fmt: skip
            stack.callback(sampler.close)
            sampler._sender._bucket_bytes = 2**15  # several buckets
            policy = load_policy(tiny_checkpoint())
            return WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4), said

        yield build


@pytest.fixture
def honest(tiny_checkpoint):
    """Function: a stand-in with the model itself."""
    return lambda: StandIn(TorchSampler(str(tiny_checkpoint())))


@pytest.fixture
def processes(tiny_checkpoint):
    """Two stand-ins with the model, each in a process; they have `url` and `pid`."""
    started = [forked(vllm_stand_in.serve, str(tiny_checkpoint())) for _ in range(2)]
    for process, connection in started:
        assert connection.poll(60), "a stand-in does not begin"
        process.url = connection.recv()
    yield [process for process, _ in started]
    for process, _ in started:
        process.kill()
        process.join()


def shake(sync):
    with torch.no_grad():
        for parameter in sync._policy.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)


def during(sync, act, weight=9):
    """Have `act` called once, before this weight of the next transfer is sent."""
    real, todo = sync._outgoing, [act]

    def outgoing(*arguments):
        for number, pair in enumerate(real(*arguments)):
            if number == weight and todo:
                todo.pop()()
            yield pair

    sync._outgoing = outgoing


@ways
def test_weights_that_are_sent_are_proved_on_each_server(way, honest, fleet):
    servers = honest(), honest()
    sync, said = fleet(way, *servers)
    for version in range(3):
        report = sync(version, PROMPTS)
        assert report.max <= 1e-4 and report.tokens >= 8 and not report.warnings
        assert version == 0 or report.moved > 1e-3
        shake(sync)
    assert sorted(said) == sorted(f"the server {server.url} samples" for server in servers)
    assert not any(server.told for server in servers)  # no files


@ways
def test_a_server_that_lies_about_weights_that_were_sent_is_named(way, honest, fleet):
    right, liar = honest(), honest()
    sync, _ = fleet(way, right, liar)
    sync(0, PROMPTS)
    shake(sync)
    liar.loads = False
    with pytest.raises(SyncError, match=rf"\({liar.url}\) sampler holds other weights"):
        sync(1, PROMPTS)


@ways
@pytest.mark.parametrize("weight", [0, 9])
def test_the_others_get_the_weights_again_when_a_server_is_killed(way, weight, processes, fleet):
    sync, said = fleet(way, *processes)
    sync(0, PROMPTS)
    shake(sync)
    lost, kept = processes
    during(sync, lambda: os.kill(lost.pid, signal.SIGKILL), weight)
    assert sync(1, PROMPTS).moved > 1e-3
    assert set(sync._sampler.fleet.left_out) == {lost.url}
    assert f"WARNING: the server {lost.url} is left out until the next sync" in said[-1]
    shake(sync)
    sync(2, PROMPTS)
    assert sync._sampler.fleet.ready == [kept.url]


@pytest.mark.parametrize("way", ["gloo"])  # each way stands still in transfer/test_sender.py
def test_a_server_that_stands_still_is_left_out_at_its_deadline_and_taken_again(
    way, processes, fleet
):
    sync, said = fleet(way, *processes, sync_s=12.0)
    sync(0, PROMPTS)
    shake(sync)
    still, kept = processes
    during(sync, lambda: os.kill(still.pid, signal.SIGSTOP))
    sync(1, PROMPTS)
    assert sync._sampler.fleet.ready == [kept.url]
    assert f"{still.url} took more than 12 s" in said[-1] and "receiving bucket" in said[-1]
    os.kill(still.pid, signal.SIGCONT)
    shake(sync)
    sync(2, PROMPTS)
    assert said[-1] == f"the server {still.url} samples"


@ways
def test_without_a_server_left_the_run_ends_with_the_reasons(way, processes, fleet):
    sync, _ = fleet(way, *processes)
    sync(0, PROMPTS)

    def kill():
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)

    during(sync, kill)
    with pytest.raises(StageError, match=r"no server of cluster\.samplers is left") as failure:
        sync(1, PROMPTS)
    assert all(process.url in str(failure.value) for process in processes)


@ways
def test_a_server_whose_process_is_another_one_is_connected_again(way, honest, fleet):
    one, two = honest(), honest()
    sync, said = fleet(way, one, two)
    sync(0, PROMPTS)
    two.worker = vllm_stand_in._worker(two)  # as after a restart that nobody noticed
    sync(1, PROMPTS)
    if way == "gloo":
        assert "lost its connection to the trainer: it was restarted" in said[-1]
        assert sync._sampler.fleet.ready == [one.url]
    sync(2, PROMPTS)
    assert len(sync._sampler.fleet.ready) == 2


def test_a_server_without_our_worker_is_left_out_by_name(honest, fleet):
    good, plain = honest(), StandIn()
    sync, said = fleet("gloo", good, plain)
    sync(0, PROMPTS)
    (warning,) = [line for line in said if "WARNING" in line]
    assert plain.url in warning and "started without --worker-extension-cls" in warning


def test_a_failure_of_the_trainer_itself_ends_the_run(honest, fleet, monkeypatch):
    sync, _ = fleet("gloo", honest(), honest())

    def unreachable(*_, **__):
        raise RuntimeError("no such interface")

    monkeypatch.setattr(sender, "open_group", unreachable)
    monkeypatch.setattr("veriloop.pipeline.sampling.transfer.reception.GRACE_S", 0.5)
    with pytest.raises(StageError, match="no such interface"):
        sync(0, PROMPTS)


@ways
def test_a_trainer_that_can_open_no_port_leaves_no_server_paused(way, honest, fleet, monkeypatch):
    servers = [honest(), honest()]
    sync, _ = fleet(way, *servers)

    def full(*_, **__):
        raise DistNetworkError("no port is free")

    with monkeypatch.context() as patch:
        patch.setattr(sender, "TCPStore", full)
        with pytest.raises(StageError, match=rf"cluster.samplers.weights={way}: .*no port is free"):
            sync(0, PROMPTS)
    assert set(sync._sampler.fleet.left_out) == {server.url for server in servers}
    assert sync(1, PROMPTS).max <= 1e-4


@ways
def test_weights_that_cannot_be_computed_leave_no_request_behind(way, honest, fleet):
    sync, _ = fleet(way, honest(), honest())
    sync(0, PROMPTS)

    def broken():
        yield "a", torch.ones(3)
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        sync._sampler.load_weights(broken(), 1)
    assert not [t for t in threading.enumerate() if t.name.startswith("receiving")]
    with pytest.raises(StageError, match="a transfer to it broke off"):
        sync.prove(0, PROMPTS)
    shake(sync)
    assert sync(2, PROMPTS).max <= 1e-4


def test_closing_ends_a_transfer_in_another_thread(honest, fleet):
    sync, _ = fleet("gloo", honest())
    sync(0, PROMPTS)
    reached, released, failures = threading.Event(), threading.Event(), []

    def slow():
        yield "a", torch.ones(3)
        reached.set()
        released.wait(20)
        yield "b", torch.ones(2**16)

    def send():
        try:
            sync._sampler.load_weights(slow(), 1)
        except StageError as failure:
            failures.append(str(failure))

    thread = threading.Thread(target=send)
    thread.start()
    reached.wait(20)
    sync._sampler.close()
    released.set()
    thread.join(20)
    assert failures == ["the sampler was closed while it worked"]


def test_the_weights_are_given_again_until_the_sampler_has_them(tiny_checkpoint):
    class Forgetful(TorchSampler):
        attempts = 0

        def load_weights(self, weights, version):
            self.attempts += 1
            if self.attempts < 3:
                next(iter(weights))
                raise SendAgainError("a server was lost")
            super().load_weights(weights, version)

    sampler, told = Forgetful(str(tiny_checkpoint())), []
    sync = WeightSync(
        load_policy(tiny_checkpoint()), sampler, temperature=1.0, tolerance=1e-4,
        command=lambda *words: told.append(words[0]),
    )  # fmt: skip
    assert sync(0, PROMPTS).max <= 1e-4
    assert sampler.attempts == told.count("send_weights") == 3


def test_a_reply_is_told_from_a_server_that_is_gone():
    assert ServerFaultError("x", gone=True).gone and not ServerFaultError("x").gone
