"""Servers that sample by URL: stand-ins that are honest, lie, hang and die."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
import torch

from tests import vllm_stand_in
from tests.vllm_stand_in import StandIn, serving
from veriloop.pipeline.config.cluster import ClusterConfig
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.model.policy import load_policy, load_tokenizer
from veriloop.pipeline.sampling.sampler import Sampling, Unfinished
from veriloop.pipeline.sampling.served import NamedServers, ServedSampler
from veriloop.pipeline.sampling.sync import SyncError, WeightSync
from veriloop.pipeline.sampling.torch_engine import TorchSampler
from veriloop.pipeline.sampling.transfer.files import WeightFiles

PROMPTS = [(1, 40, 41, 42), (1, 50), (1, 60, 61, 62, 63)]
MANY = [(1, *range(2, 2 + n)) for n in range(24)]
SAMPLING = Sampling(per_prompt=4, temperature=1.0, max_tokens=8, seed=3)
WEIGHTS = [("a", torch.ones(2, 3)), ("b", torch.zeros(1))]


@pytest.fixture
def fleet(tiny_checkpoint, tmp_path):
    """Function: a sampler of these servers, and what it says."""
    with ExitStack() as stack:

        def build(*servers, room=8, deadlines=(), **samplers):
            for server in servers:
                if isinstance(server, StandIn) and not server.url:
                    stack.enter_context(serving(server))
            said = []
            urls = [server.url for server in servers]
            cluster = ClusterConfig.model_validate(
                {
                    "samplers": {"urls": urls, **samplers},
                    "deadlines": {"answer_s": 20, "sync_s": 20, **dict(deadlines)},
                }
            )
            sampler = ServedSampler(
                cluster,
                SamplerConfig(max_batch=room),
                str(tiny_checkpoint()),
                tmp_path,
                max_length=96,
                say=said.append,
            )
            stack.callback(sampler.close)
            return sampler, said

        yield build


@pytest.fixture
def honest(tiny_checkpoint):
    """Function: a stand-in with the model itself."""
    return lambda: StandIn(TorchSampler(str(tiny_checkpoint())))


def expected(prompts, sampling):
    """What the stand-ins without a model answer."""
    first = sampling.seed * 1_000_003
    return [
        [((first + i * sampling.per_prompt + k) % 389, len(prompt)) for k in range(4)]
        for i, prompt in enumerate(prompts)
    ]


def shake(policy, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * 0.05)


def ids(groups):
    return [[one.ids for one in group] for group in groups]


@pytest.mark.slow
@pytest.mark.parametrize("extension", [vllm_stand_in.EXTENSION, ""])
def test_weights_are_loaded_and_proved_on_each_server(extension, honest, fleet, tiny_checkpoint):
    servers = honest(), honest()
    for server in servers:
        server.extension = extension
    sampler, said = fleet(*servers)
    policy = load_policy(tiny_checkpoint())
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    for version in range(2):
        report = sync(version, PROMPTS)
        assert report.max <= 1e-4 and sampler.version == version
        assert all(len(server.asked) == (version + 1) * len(PROMPTS) for server in servers)
        assert bool(report.warnings) == (not extension and version == 0)  # no digests
        shake(policy, version)
    assert sorted(said) == sorted(f"the server {server.url} samples" for server in servers)
    assert not any(folder.exists() for server in servers for folder in server.told)


def test_the_tokens_of_answers_are_counted_by_server_until_they_are_taken(fleet):
    servers = StandIn(), StandIn()
    sampler, _ = fleet(*servers, room=2)
    first, second = sampler.fleet.open
    assert sampler.take_tokens() == {first: 0, second: 0}
    sampler.load_weights(WEIGHTS, 0)
    sampler.sample_of_each(PROMPTS, SAMPLING)  # which proves a sync
    sampler.sample(PROMPTS, SAMPLING)
    tokens = {url: 2 * count for url, count in sampler.fleet.answered.items()}  # of a stand-in
    assert sampler.take_tokens() == tokens and sum(tokens.values()) == 24
    sampler.sample(PROMPTS[:1], SAMPLING)
    sampler.load_weights(WEIGHTS, 1)
    sampler._source = NamedServers([second])
    sampler.load_weights(WEIGHTS, 2)  # the first one is lost before they are taken
    left = sampler.take_tokens()
    assert list(left) == [second, first] and sum(left.values()) == 8
    assert sampler.take_tokens() == {second: 0}


@pytest.mark.slow
def test_answers_do_not_depend_on_the_server(honest, fleet, tiny_checkpoint):
    one, _ = fleet(honest())
    two, _ = fleet(honest(), honest(), room=2)
    weights = list(load_policy(tiny_checkpoint()).named_parameters())
    heard = {}
    one.load_weights(weights, 0)
    two.load_weights(weights, 0)
    groups = two.sample(PROMPTS, SAMPLING, lambda index, found: heard.update({index: found}))
    assert ids(groups) == ids(one.sample(PROMPTS, SAMPLING))
    assert heard == dict(enumerate(groups)) and len(set(ids(groups)[0])) > 1
    assert min(two.fleet.answered.values()) > 0


@pytest.mark.slow
def test_an_answer_goes_on_after_a_sync_on_whichever_server(honest, fleet, tiny_checkpoint):
    one, _ = fleet(honest())
    two, _ = fleet(honest(), honest(), room=2)
    policy = load_policy(tiny_checkpoint())
    fresh = [Unfinished(prompt=prompt, ids=(), logp=(), until=3) for prompt in MANY]
    found = []
    for version in range(2):
        weights = list(policy.named_parameters())
        heard = {}
        one.load_weights(weights, version)
        two.load_weights(weights, version)
        found = two.extend(fresh, SAMPLING, heard.__setitem__)
        assert found == one.extend(fresh, SAMPLING) == [heard[place] for place in range(len(fresh))]
        for before, after in zip(fresh, found, strict=True):
            assert after.ids[: len(before.ids)] == before.ids
            assert after.logp[: len(before.logp)] == before.logp
            assert len(after.ids) == len(after.logp) <= before.until
            assert after.finish == "stop" or len(after.ids) == before.until
        pairs = [pair for pair in zip(fresh, found, strict=True) if pair[1].finish == "length"]
        fresh = [
            Unfinished(prompt=before.prompt, ids=after.ids, logp=after.logp, until=3 * version + 6)
            for before, after in pairs
        ]
        assert len(fresh) > 5
        shake(policy, version)
    assert min(two.fleet.answered.values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("extension", [vllm_stand_in.EXTENSION, ""])
def test_a_server_that_lies_about_its_weights_is_named_at_the_first_proof(
    extension, honest, fleet, tiny_checkpoint
):
    right, liar = honest(), honest()
    right.extension = liar.extension = extension
    sampler, _ = fleet(right, liar)
    policy = load_policy(tiny_checkpoint())
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    sync(0, PROMPTS)
    shake(policy, 1)
    liar.loads = False
    wrong = "holds other weights" if extension else "and the trainer disagree"
    with pytest.raises(SyncError, match=rf"1 optimizer steps the served \({liar.url}\).*{wrong}"):
        sync(1, PROMPTS)


@pytest.mark.slow
def test_a_server_that_hangs_is_replaced_at_its_deadline(fleet):
    good, bad = StandIn(), StandIn()
    sampler, said = fleet(good, bad, deadlines={"answer_s": 3})
    sampler.load_weights(WEIGHTS, 0)
    bad.hangs = True
    assert ids(sampler.sample(MANY, SAMPLING)) == expected(MANY, SAMPLING)
    assert bad.asked and set(sampler.fleet.left_out) == {bad.url}
    assert "no answer within 3 s (cluster.deadlines.answer_s)" in said[-1]
    bad.hangs = False
    sampler.load_weights(WEIGHTS, 1)  # it is back with new weights, not before
    assert not sampler.fleet.left_out and said[-1] == f"the server {bad.url} samples"


def started(*port):
    """A stand-in in a process of its own; it has `url` and `pid`."""
    process = subprocess.Popen(
        [sys.executable, vllm_stand_in.__file__, *(["--port", *port] if port else [])],
        stdout=subprocess.PIPE,
        text=True,
    )
    process.url = process.stdout.readline().strip()
    return process


@pytest.fixture
def processes():
    found = [started(), started()]
    yield found
    for process in found:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_killed_server_s_asks_are_answered_once_each_by_another(processes, fleet):
    sampler, said = fleet(*processes)
    sampler.load_weights(WEIGHTS, 0)
    heard = []

    def told(index, completions):
        heard.append(index)
        if len(heard) == 3:
            os.kill(processes[0].pid, signal.SIGKILL)

    groups = sampler.sample(MANY, SAMPLING, told)
    assert ids(groups) == expected(MANY, SAMPLING)
    assert sorted(heard) == list(range(len(MANY)))
    assert sum(sampler.fleet.answered.values()) == len(MANY) * SAMPLING.per_prompt
    assert said[-1].startswith(f"WARNING: the server {processes[0].url} is left out")
    os.kill(processes[1].pid, signal.SIGKILL)
    with pytest.raises(StageError, match="no server") as failure:
        sampler.sample(MANY, SAMPLING)
    assert all(process.url in str(failure.value) for process in processes)


@pytest.mark.slow
def test_a_killed_server_that_was_started_again_samples_after_the_next_sync(processes, fleet):
    sampler, said = fleet(*processes)
    sampler.load_weights(WEIGHTS, 0)
    os.kill(processes[0].pid, signal.SIGKILL)
    processes[0].wait()
    again = started(processes[0].url.rpartition(":")[2])
    processes.append(again)
    assert again.url == processes[0].url
    assert ids(sampler.sample(MANY, SAMPLING)) == expected(MANY, SAMPLING)
    assert "weights labelled ['default']" in said[-1]  # a version is not taken on trust
    before = sampler.fleet.answered[again.url]
    sampler.load_weights(WEIGHTS, 1)
    assert said[-1] == f"the server {again.url} samples"
    assert ids(sampler.sample(MANY, SAMPLING)) == expected(MANY, SAMPLING)
    assert sampler.fleet.answered[again.url] > before


@pytest.mark.slow
def test_a_server_restarted_between_asks_is_left_out(fleet):
    good, bad = StandIn(), StandIn()
    sampler, said = fleet(good, bad)
    sampler.load_weights(WEIGHTS, 0)
    bad.label = "default"  # what a new process says
    assert ids(sampler.sample(MANY, SAMPLING)) == expected(MANY, SAMPLING)
    assert "weights labelled ['default']" in said[-1] and bad.url in said[-1]


@pytest.mark.slow
def test_a_server_that_is_not_there_is_left_out_and_named(processes, fleet):
    os.kill(processes[0].pid, signal.SIGKILL)
    processes[0].wait()
    sampler, said = fleet(*processes, deadlines={"sync_s": 4})
    sampler.load_weights(WEIGHTS, 0)
    assert f"{processes[0].url} is left out until the next sync: /health: ConnectError" in said[-1]
    assert ids(sampler.sample(MANY, SAMPLING)) == expected(MANY, SAMPLING)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("route", "reply", "reason"),
    [
        ("on_server_info", {"vllm_config": "text"}, "without vllm_config.model_config.dtype"),
        ("on_reset_prefix_cache", None, "without success: None"),
        ("on_collective_rpc", {"result": []}, "without results"),
    ],
)
def test_a_server_with_replies_of_another_version_is_left_out_and_named(
    route, reply, reason, fleet
):
    good, other = StandIn(), StandIn()
    setattr(other, route, lambda _: (200, reply))
    sampler, said = fleet(good, other)
    sampler.load_weights(WEIGHTS, 0)
    [warning] = [line for line in said if line.startswith("WARNING")]
    assert other.url in warning and reason in warning
    assert ids(sampler.sample(MANY, SAMPLING)) == expected(MANY, SAMPLING)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ([], "not enough values"),
        ([{"finish_reason": "stop", "logprobs": {"content": []}}], "missing required field"),
        ([{"token_ids": ["1"], "logprobs": {"content": []}, "finish_reason": "stop"}], "got `str`"),
        ([{"token_ids": [1], "logprobs": {"content": []}, "finish_reason": None}], "labelled []"),
    ],
)
def test_a_server_with_an_answer_that_makes_no_sense_is_left_out(choices, reason, fleet):
    good, other = StandIn(), StandIn()
    other.on_generate = lambda _: (200, {"choices": choices})
    sampler, said = fleet(good, other)
    sampler.load_weights(WEIGHTS, 0)
    assert ids(sampler.sample(MANY, SAMPLING)) == expected(MANY, SAMPLING)
    assert other.url in said[-1] and reason in said[-1]


def test_without_weights_no_server_is_asked(fleet):
    server = StandIn()
    sampler, _ = fleet(server)
    with pytest.raises(StageError, match=f"{server.url}: it holds no weights of this run"):
        sampler.sample(PROMPTS, SAMPLING)
    assert not server.asked


def test_a_stop_string_ends_an_answer_at_the_token_that_completes_it(
    fleet, honest, tiny_checkpoint
):
    engine = TorchSampler(str(tiny_checkpoint()))
    sampler, _ = fleet(honest(), honest())
    sampler.load_weights(load_policy(tiny_checkpoint()).named_parameters(), 0)
    long = replace(SAMPLING, max_tokens=24)
    whole = [one for group in sampler.sample(PROMPTS, long) for one in group]
    decode = load_tokenizer(tiny_checkpoint()).decode
    text = decode(whole[0].ids)
    stopping = replace(long, stop=(text[-4:-1], text[9:11]))
    cut = [one for group in sampler.sample(PROMPTS, stopping) for one in group]
    for place, (one, other) in enumerate(zip(cut, whole, strict=True)):
        seed = long.seed * 1_000_003 + place
        alone = replace(stopping, per_prompt=1, seed=seed)
        ((expected,),) = engine.sample([PROMPTS[place // 4]], alone)
        assert (one.ids, one.finish) == (expected.ids, expected.finish)
        assert one.logp == other.logp[: len(one.ids)] and one.ids == other.ids[: len(one.ids)]
    assert len(cut[0].ids) < len(whole[0].ids) and cut[0].finish == "stop"
    assert any(text in decode(cut[0].ids) for text in stopping.stop)


@pytest.mark.slow
@pytest.mark.parametrize("refuses_too", [True, False])
def test_a_request_that_every_server_would_refuse_ends_the_run(refuses_too, fleet):
    server, other = StandIn(), StandIn()
    sampler, _ = fleet(server, other)
    sampler.load_weights(WEIGHTS, 0)
    server.refuses, other.refuses = True, refuses_too
    other.delay_s = 0.5  # its requests are under way when the run ends
    with pytest.raises(StageError, match=r"refused a request.*no such parameter"):
        sampler.sample(PROMPTS, SAMPLING)
    assert not sampler.fleet.left_out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("dtype", "torch.bfloat16", "--dtype bfloat16; the recipe needs float32"),
        ("logprobs_mode", "raw_logprobs", "raw_logprobs; the recipe needs processed_logprobs"),
        ("room", 64, "--max-model-len 64; the recipe needs 96"),
    ],
)
def test_a_server_with_other_settings_is_refused_by_name(name, value, told, fleet):
    server = StandIn()
    setattr(server, name, value)
    sampler, _ = fleet(server)
    with pytest.raises(StageError, match=f"the server {server.url} runs with .*{told}"):
        sampler.load_weights(WEIGHTS, 0)


class ClosesLate(httpx2.AsyncBaseTransport):
    """Three servers, of which one answers. The first fails at its second request; its other one is
    cancelled and fails on the way, as where a connection cannot be closed. The last fails late."""

    def __init__(self):
        self.stand_in, self.asked = StandIn(), []

    async def handle_async_request(self, request):
        host, path = request.url.host, request.url.path
        if path == "/inference/v1/generate":
            self.asked.append(host)
            await self.fails(host, self.asked.count(host))
        content = await request.aread()
        status, reply = self.stand_in.answer(path, json.loads(content) if content else None)
        return httpx2.Response(status, json=reply)

    async def fails(self, host, number):
        if host == "first":
            try:
                await asyncio.sleep(0 if number == 2 else 3600)
            except asyncio.CancelledError:
                raise httpx2.ReadError("not closed") from None
            raise httpx2.ReadError("gone")
        await asyncio.sleep(0.2 if host == "good" else 0.05)
        if host == "last":
            raise httpx2.ReadError("gone as well")


@pytest.mark.slow
def test_an_ask_can_lose_its_server_again_and_again(tiny_checkpoint, tmp_path):
    network, said = ClosesLate(), []
    urls = ["http://first", "http://good", "http://last"]
    sampler = ServedSampler(
        ClusterConfig.model_validate({"samplers": {"urls": urls}}),
        SamplerConfig(max_batch=8),
        str(tiny_checkpoint()),
        tmp_path,
        max_length=96,
        say=said.append,
        transport=network,
    )
    sampler.load_weights(WEIGHTS, 1)
    (answers,) = sampler.sample(PROMPTS[:1], SAMPLING)
    assert [answer.ids for answer in answers] == expected(PROMPTS, SAMPLING)[0]
    moved = ["good", "last", "good", "good"]  # the first ask from `first` to `last` to `good`
    assert network.asked == ["first", "good", "last", "first", *moved]
    assert [line.partition(" is left out")[0] for line in said[3:]] == [
        "WARNING: the server http://first:80",
        "WARNING: the server http://last:80",
    ]


@pytest.mark.slow
def test_a_prompt_that_leaves_no_room_is_refused_by_number(fleet):
    sampler, _ = fleet(StandIn())
    sampler.load_weights(WEIGHTS, 0)
    with pytest.raises(ValueError, match="prompt 1 has 96 tokens; with max_tokens=8"):
        sampler.sample([PROMPTS[0], (1,) * 96], SAMPLING)


@pytest.mark.slow
def test_closing_ends_a_request_in_another_thread(fleet):
    server = StandIn()
    sampler, _ = fleet(server)
    sampler.load_weights(WEIGHTS, 0)
    server.hangs, failures = True, []

    def sample():
        try:
            sampler.sample(PROMPTS, SAMPLING)
        except StageError as failure:
            failures.append(str(failure))

    thread = threading.Thread(target=sample)
    thread.start()
    while not server.asked:
        thread.join(0.01)
    sampler.close()
    thread.join(20)
    assert failures == ["the sampler was closed while it worked"]


def test_a_run_that_goes_on_elsewhere_keeps_its_folder_and_other_runs_have_others(tmp_path):
    shared, run = str(tmp_path / "shared"), tmp_path / "run"
    files = WeightFiles(shared, run)
    with files.written(WEIGHTS, "l") as left:
        assert WeightFiles(shared, run).folder == files.folder  # on any host
        assert not left.exists()
    copy = shutil.copytree(run, tmp_path / "copy")
    shutil.rmtree(run)  # the same path on a machine of its own
    others = [WeightFiles(shared, folder).folder for folder in (copy, run)]
    assert len({files.folder, *others}) == 3
    assert WeightFiles("", run).folder == run / "sent"


def test_large_weights_are_in_several_files_and_what_a_killed_run_left_goes(
    fleet, tmp_path, monkeypatch
):
    from veriloop.pipeline.sampling.transfer import files

    monkeypatch.setattr(files, "FILE_BYTES", 20)
    left = Path(tmp_path / "sent" / "old")
    left.mkdir(parents=True)
    sampler, _ = fleet(StandIn())
    assert not left.exists()
    with sampler._files.written(iter(WEIGHTS), "label") as folder:
        assert [path.name for path in sorted(folder.iterdir())] == [
            "model-00000.safetensors",
            "model-00001.safetensors",
        ]
    assert not folder.exists()
