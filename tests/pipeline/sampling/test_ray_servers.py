"""Servers that Ray starts on this machine; stand-ins without vLLM, killed without warning."""

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from veriloop.pipeline.config.cluster import ClusterConfig
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.errors import RecipeError, StageError
from veriloop.pipeline.sampling import ray_servers
from veriloop.pipeline.sampling.guardian import KILLED
from veriloop.pipeline.sampling.ray_servers import GUARDIAN, RayServers
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.sampling.served import ServedSampler
from veriloop.pipeline.sampling.vllm_server import server_arguments

ROOT = Path(__file__).parents[3]
STAND_IN = (sys.executable, str(ROOT / "tests/vllm_stand_in.py"))
PROMPTS = [(1, *range(2, 2 + n)) for n in range(12)]
SAMPLING = Sampling(per_prompt=4, temperature=1.0, max_tokens=8, seed=3)
WEIGHTS = [("a", torch.ones(2, 3)), ("b", torch.zeros(1))]
PATIENCE_S = 60.0


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.2)
    return value


def cluster(count, **samplers):
    return ClusterConfig.model_validate(
        {
            "ray": "local",
            "samplers": {"count": count, "gpus": 0, **samplers},
            "deadlines": {"answer_s": 20, "sync_s": PATIENCE_S},
        }
    )


@pytest.fixture
def build(tiny_checkpoint, tmp_path):
    """Function: a sampler of so many servers that Ray starts, and what it says."""
    ray = pytest.importorskip("ray")
    with ExitStack() as stack:
        stack.callback(ray.shutdown)

        def started(count, **samplers):
            said, asked, start = [], cluster(count, **samplers), str(tiny_checkpoint())
            config = SamplerConfig(max_batch=8)
            servers = RayServers(
                asked, config, start, max_length=96, say=said.append, server=STAND_IN
            )
            stack.callback(servers.close)
            sampler = ServedSampler(
                asked, config, start, tmp_path, max_length=96, say=said.append, servers=servers
            )
            return sampler, said

        yield started


def ids(groups):
    return [[one.ids for one in group] for group in groups]


def expected():
    first = SAMPLING.seed * 1_000_003
    return [
        [((first + i * 4 + k) % 389, len(prompt)) for k in range(4)]
        for i, prompt in enumerate(PROMPTS)
    ]


def running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def processes(url):
    """The guardian of the server at this address, the leader of its group, itself."""
    port = url.rpartition(":")[2]
    found = {
        p.pid: p for p in psutil.process_iter(["cmdline"]) if port in (p.info["cmdline"] or ())
    }
    guardian = next(p for p in found.values() if p.ppid() not in found)
    leader = next(p for p in found.values() if p.ppid() == guardian.pid)
    return guardian, leader, next(p for p in found.values() if p.ppid() == leader.pid)


@pytest.mark.ray
@pytest.mark.slow
def test_servers_of_ray_sample_and_end_with_the_run(build):
    sampler, _ = build(2)
    sampler.load_weights(WEIGHTS, 0)
    assert ids(sampler.sample(PROMPTS, SAMPLING)) == expected()
    assert len(sampler.fleet.ready) == 2 and min(sampler.fleet.answered.values()) > 0
    alive = [process for url in sampler.fleet.open for process in processes(url)]
    sampler.close()
    until(lambda: not any(running(p.pid) for p in alive))


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("victim", ["server", "leader", "guardian", "actor"])
def test_what_is_killed_is_started_again_and_no_answer_is_lost(victim, build):
    sampler, said = build(2)
    sampler.load_weights(WEIGHTS, 0)
    first = set(sampler.fleet.ready)
    lost = sampler.fleet.ready[0]
    guardian, leader, server = processes(lost)
    actor = guardian.parent()
    dict(server=server, leader=leader, guardian=guardian, actor=actor)[victim].kill()
    until(lambda: not running(server.pid))
    assert ids(sampler.sample(PROMPTS, SAMPLING)) == expected()

    def whole_again():
        sampler.load_weights(WEIGHTS, sampler.version + 1)
        return len(sampler.fleet.ready) == 2

    until(whole_again)
    assert lost not in sampler.fleet.ready and len(first & set(sampler.fleet.ready)) == 1
    assert ids(sampler.sample(PROMPTS, SAMPLING)) == expected()
    assert any(f"the server {lost} is lost" in line for line in said)


@pytest.mark.ray
@pytest.mark.slow
def test_servers_that_ray_has_no_place_for_are_refused_with_what_it_has(build, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PATIENCE_S", 2.0)
    with pytest.raises(StageError, match=r"Ray placed none of the 1 servers .* 0 of 0 GPUs free"):
        build(1, gpus=1)


class Places:
    """A Ray with room for some of the actors, without processes; notes who is waited for."""

    class ActorDiedError(Exception):
        pass

    class ActorUnavailableError(Exception):
        pass

    class GetTimeoutError(Exception):
        pass

    def __init__(self, places):
        self.places, self.actors, self.waits, self.asked = places, [], [], []
        self.exceptions = self

    def remote(self, kind):
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self.actor))

    def actor(self, *_):
        number = f"actor {len(self.actors)}"
        address = SimpleNamespace(remote=lambda: self.ask(number))
        self.actors.append(SimpleNamespace(address=address))
        return self.actors[-1]

    def ask(self, actor):
        self.asked.append(actor)
        return actor

    def wait(self, replies, num_returns, timeout):
        assert num_returns == len(replies)
        self.waits.append((list(replies), timeout))

    def get(self, reply, timeout):
        if int(reply.split()[1]) >= self.places:
            raise self.GetTimeoutError("not ready")
        return f"http://{reply}", ""

    def available_resources(self):
        return {"CPU": 0.0, "GPU": 0.0}

    def cluster_resources(self):
        return {"CPU": 8.0, "GPU": 3.0}


def test_fewer_servers_than_asked_for_are_told_once_and_waited_for_once(monkeypatch):
    ray, said = Places(2), []
    monkeypatch.setattr(ray_servers, "_connected", lambda _: (ray, False))
    servers = RayServers(cluster(3), SamplerConfig(), "start", max_length=9, say=said.append)
    two = ["http://actor 0", "http://actor 1"]
    assert [servers.urls() for _ in range(3)] == [two, two, two]
    waited, seconds = zip(*ray.waits, strict=True)
    assert [len(replies) for replies in waited] == [3, 2, 2]
    assert seconds[1:] == (ray_servers.AGAIN_S,) * 2
    assert ray.asked.count("actor 2") == 1  # until it has replied
    (line,) = said
    assert line.startswith("WARNING: Ray has a place for 2 of the 3 servers of cluster.samplers")
    assert "0 of 8 CPUs free, 0 of 3 GPUs free" in line
    ray.places = 3
    assert servers.urls() == [*two, "http://actor 2"] and len(said) == 1
    ray.places = 1
    servers.urls()
    assert [line for line in said if "a place for 1 of the 3" in line] == [said[-1]]


@pytest.mark.parametrize("how", ["its starter is gone", "it is killed"])
def test_a_command_ends_with_its_guardian_or_its_starter(how, tmp_path):
    file = tmp_path / "pids"
    program = (
        "import os, subprocess, sys, time; more = subprocess.Popen(['sleep', '60']); "
        f"open({str(file)!r}, 'w').write(f'{{os.getpid()}} {{more.pid}}'); time.sleep(60)"
    )
    guardian = subprocess.Popen([*GUARDIAN, sys.executable, "-c", program], stdin=subprocess.PIPE)
    until(lambda: file.exists() and file.read_text())
    pids = [int(pid) for pid in file.read_text().split()]
    if how == "it is killed":
        guardian.kill()
    guardian.stdin.close()
    assert guardian.wait(PATIENCE_S) == (KILLED if how != "it is killed" else -signal.SIGKILL)
    until(lambda: not any(running(pid) for pid in pids))


def test_a_command_that_ends_gives_its_status(tmp_path):
    guardian = [*GUARDIAN, sys.executable, "-c", "raise SystemExit(7)"]
    with subprocess.Popen(guardian, stdin=subprocess.PIPE) as process:
        assert process.wait(PATIENCE_S) == 7


def test_a_server_leaves_no_log_behind_and_its_last_words_are_told(monkeypatch, tmp_path):
    address = SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(util=address))
    monkeypatch.setattr(ray_servers.tempfile, "tempdir", str(tmp_path))
    command = [sys.executable, "-c", "raise SystemExit('no memory for ' + 'weights')"]
    actor = ray_servers._ServerActor(command, {})
    assert actor.address()[1] == ""
    for _ in range(2):
        assert actor._process.wait(PATIENCE_S) == 1
        ended = actor.address()[1]
        assert ended == "exit status 1. no memory for weights"
        assert not list(tmp_path.iterdir())
    actor._process.communicate()
    actor._log.close()
    actor._port.close()


def test_without_ray_the_recipe_is_refused(monkeypatch):
    monkeypatch.setattr(ray_servers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RecipeError, match=r"cluster.ray='local', but ray is not installed"):
        RayServers(cluster(1), SamplerConfig(), "nowhere", max_length=8, say=print)


@pytest.mark.ray
@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("auto", "any running Ray"),
        ("127.0.0.1:1", "refused"),
        ("ray://127.0.0.1:1", "refused"),
        ("[::ffff:127.0.0.1]:1", "refused"),
    ],
)
def test_a_ray_that_is_not_there_is_named_at_once(address, told, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_TMPDIR", "/nowhere")  # no cluster of this machine
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    asked = cluster(1).model_copy(update={"ray": address})
    with pytest.raises(RecipeError, match=rf"{re.escape(repr(address))}: no Ray cluster .*{told}"):
        RayServers(asked, SamplerConfig(), "nowhere", max_length=8, say=print)


@pytest.mark.ray
@pytest.mark.slow
def test_a_ray_that_needs_a_token_is_refused_without_one(tmp_path):
    pytest.importorskip("ray")
    program = (
        "import socket; from veriloop.pipeline.sampling.ray_servers import _connected; "
        "listener = socket.create_server(('127.0.0.1', 0)); "
        "_connected(f'127.0.0.1:{listener.getsockname()[1]}')"
    )
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "HOME": str(tmp_path)}
    environment = {k: v for k, v in environment.items() if not k.startswith("RAY_AUTH_TOKEN")}
    words = [sys.executable, "-c", program]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert "RecipeError: cluster.ray='127.0.0.1:" in ran.stderr
    assert "need the same RAY_AUTH_MODE and token" in ran.stderr


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"samplers": {"count": 2}}, r"samplers.count=2 without cluster.ray"),
        ({"ray": "auto"}, r"cluster.ray='auto' with cluster.samplers.count=0"),
        (
            {"ray": "auto", "samplers": {"count": 1, "urls": ["http://a:1"]}},
            r"urls=\('http://a:1',\) and count=1",
        ),
    ],
)
def test_servers_come_from_ray_or_by_address(values, told):
    with pytest.raises(ValueError, match=told):
        ClusterConfig.model_validate(values)


def test_the_arguments_of_a_server_follow_from_the_recipe():
    config = SamplerConfig(max_batch=8, cache_gib=0.5, dtype="bfloat16", graphs=False)
    words = server_arguments(config, "start", max_length=96, gpus=2)
    pairs = dict(itertools.pairwise(words))
    assert pairs["--model"] == "start" and pairs["--dtype"] == "bfloat16"
    assert (pairs["--max-model-len"], pairs["--max-num-seqs"]) == ("96", "8")
    assert pairs["--kv-cache-memory-bytes"] == str(2**29)
    assert pairs["--tensor-parallel-size"] == "2" and "--enforce-eager" in words
    assert "--disable-uvicorn-access-log" in words  # or a log grows by a line for each response
    assert not {"--no-enable-chunked-prefill", "--block-size"} & {*words}
    on_cpu = server_arguments(config, "start", max_length=20_000, gpus=0)
    pairs = dict(itertools.pairwise(on_cpu))
    assert pairs["--max-num-batched-tokens"] == "20000" and pairs["--block-size"] == "32"
    assert "--tensor-parallel-size" not in on_cpu and "--enforce-eager" in on_cpu
