"""A stage that samples on servers, from start to end; the servers are stand-ins without vLLM."""

import json
import re
import signal
import sys

import httpx2
import pytest
import yaml

from tests import vllm_stand_in
from tests.vllm_stand_in import StandIn, serving
from veriloop.pipeline.config.load import validate
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs.record import read_metrics
from veriloop.pipeline.sampling import ray_servers
from veriloop.pipeline.sampling.torch_engine import TorchSampler
from veriloop.stages.cli import main

URLS = ("http://a:8000", "http://b:8000")


def values(start="nowhere", **more):
    return {
        "stage": "zero",
        "name": "test",
        "start": str(start),
        "steps": 3,
        "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12},
        "optimizer": {"learning_rate": 0.01},
        "reward": {"control": "random"},  # an untrained model earns nothing else
        "evaluation": {"problems": 4, "samples": 2},
        "tensorboard": False,
        **more,
    }


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_a_stage_samples_on_two_servers_and_proves_every_sync(ahead, tiny_checkpoint, tmp_path):
    start = tiny_checkpoint()
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(values(start)))
    servers = [StandIn(TorchSampler(str(start))) for _ in range(2)]
    with serving(servers[0]) as one, serving(servers[1]) as two:
        words = ["zero", str(recipe), "--output", str(tmp_path / "run")]
        words += ["--cluster.samplers.urls", one.url, two.url, "--rollout.ahead", str(ahead)]
        words += ["--algorithm.old-logp", "trainer"]
        assert main(words) == 0
    rows = read_metrics(tmp_path / "run/zero/metrics.jsonl")
    assert len(rows) == 3 and all(row["sync/max"] <= 1e-4 for row in rows)
    assert all(len(server.told) == 4 for server in servers)  # before each step and at the end
    sampled = [
        [row[f"system/sampled/{server.url.removeprefix('http://')}"] for server in servers]
        for row in rows
    ]
    assert min(map(sum, zip(*sampled, strict=True))) > 0
    if not ahead:  # the first has also the tokens of the evaluation
        assert sum(sampled[1]) == 16 * rows[1]["completions/mean_length"]
    assert min(len(server.asked) for server in servers) > 50
    assert not (tmp_path / "run/zero/sent").exists()


@pytest.mark.slow
def test_pairs_are_collected_on_two_servers(tiny_checkpoint, tiny_classifier, tmp_path, capsys):
    start = tiny_checkpoint()
    recipe = tmp_path / "recipe.yaml"
    label = {"by": "reward_model", "reward_model": str(tiny_classifier)}
    rollout = {"prompts": 4, "per_prompt": 3, "max_tokens": 24, "stop": [*"aeiou0123456789"]}
    collected = {"stage": "collect_preferences", "name": "test", "start": str(start)}
    collected |= {"questions": 8, "rollout": rollout, "label": label}
    recipe.write_text(yaml.safe_dump(collected))
    servers = [StandIn(TorchSampler(str(start))) for _ in range(2)]
    with serving(servers[0]) as one, serving(servers[1]) as two:
        words = ["collect-preferences", str(recipe), "--output", str(tmp_path / "run")]
        words += ["--cluster.samplers.urls", one.url, two.url]
        assert main([*words, "--dry-run"]) == 0
        assert f"2 vLLM: {one.url}, {two.url}" in capsys.readouterr().out
        assert main(words) == 0
        servers[0].asked.clear()
        (run,) = json.loads((tmp_path / "run/run.json").read_text())["stages"]
        assert run["sampler"] == "served" and run["after"]["pairs"] >= 1
        assert all(len(server.told) == 1 for server in servers)
        assert main([*words, "--resume"]) == 0 and not servers[0].asked
    rows = (tmp_path / "run/collect_preferences/data.jsonl").read_text().splitlines()
    for row in map(json.loads, rows):
        for text in (row["chosen"], row["rejected"]):
            assert set("aeiou0123456789") & set(text)  # where it was cut
    assert servers[1].asked


@pytest.mark.ray
@pytest.mark.slow
def test_a_stage_samples_on_servers_that_ray_starts(tiny_checkpoint, tmp_path, monkeypatch, capsys):
    ray = pytest.importorskip("ray")
    stand_in = sys.executable, vllm_stand_in.__file__, "--torch"
    monkeypatch.setattr(ray_servers, "SERVER", stand_in)
    recipe = tmp_path / "recipe.yaml"
    samplers = {"ray": "local", "samplers": {"count": 2, "gpus": 0}}
    recipe.write_text(yaml.safe_dump(values(tiny_checkpoint(), cluster=samplers)))
    handlers = [signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)]
    try:
        assert main(["zero", str(recipe), "--output", str(tmp_path / "run")]) == 0
    finally:
        ray.shutdown()
    assert [signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)] == handlers
    rows = read_metrics(tmp_path / "run/zero/metrics.jsonl")
    assert len(rows) == 3 and all(row["sync/max"] <= 1e-4 for row in rows)
    urls = re.findall(r"the server (http\S+) samples", capsys.readouterr().out)
    assert len(set(urls)) == 2
    for url in urls:
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{url}/health", trust_env=False)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sampler": {"engine": "torch"}}, "sampler.engine=torch with servers in cluster.samplers"),
        ({"sampler": {"apart": True}}, "sampler.apart=True with servers in cluster.samplers"),
        ({"sampler": {"sleep": True}}, "sampler.sleep=True with servers in cluster.samplers"),
        ({"sampler": {"device": "cpu"}}, "sampler.device=cpu with servers .* set auto"),
        ({"sampler": {"deadline_s": 5}}, "sampler.deadline_s=5.0 with servers .* set 3600"),
    ],
)
def test_settings_of_an_own_engine_are_refused_beside_servers(changes, told):
    with pytest.raises(RecipeError, match=told):
        validate(values(cluster={"samplers": {"urls": URLS}}, **changes), "recipe")


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ({"samplers": {"weights": "gloo"}}, "cluster.samplers.weights='gloo' without urls or"),
        ({"samplers": {"folder": "/shared"}}, "cluster.samplers.folder='/shared' without urls or"),
        ({"samplers": {"gpus": 4}}, "cluster.samplers.gpus=4 without urls or count"),
        ({"samplers": {"urls": URLS, "gpus": 4}}, "cluster.samplers.gpus=4 with urls"),
        (
            {"samplers": {"count": 2, "gpus": 2}, "ray": "auto"},
            "cluster.samplers.gpus=2 with sampler.dtype=bfloat16: .* set gpus: 1, or dtype: float3",
        ),
        (
            {
                "samplers": {"urls": URLS, "weights": "gloo"},
                "trainer": {"ranks": 2},
                "deadlines": {"sync_s": 600},
            },
            "sync_s=600 and rank_s=600 with cluster.samplers.weights=gloo: .* sync_s below rank_s",
        ),
    ],
)
def test_settings_of_servers_that_nothing_reads_or_that_cannot_work_are_refused(cluster, told):
    with pytest.raises(RecipeError, match=told):
        validate(values(cluster=cluster, sampler={"dtype": "bfloat16"}), "recipe")


@pytest.mark.parametrize(
    ("samplers", "told"),
    [
        ({"urls": ["a:8000"]}, "'a:8000' is no address of a server"),
        ({"urls": ["http://a:8000", "http://a:8000/"]}, "http://a:8000 is named twice"),
        ({"urls": URLS, "weights": "rdma"}, "rdma"),
        ({"urls": URLS, "weights": "nccl"}, r"weights=nccl with trainer\.device=cpu: .* set gloo"),
        ({"urls": URLS, "weights": "gloo", "folder": "/shared"}, "weights=gloo with .*'/shared'"),
    ],
)
def test_urls_that_name_no_servers_and_unknown_transfers_are_refused(samplers, told):
    with pytest.raises(RecipeError, match=told):
        validate(values(cluster={"samplers": samplers}, trainer={"device": "cpu"}), "recipe")


def test_a_url_is_taken_without_its_last_slash():
    recipe = validate(values(cluster={"samplers": {"urls": ["http://a:8000/"]}}), "recipe")
    assert recipe.cluster.samplers.urls == ("http://a:8000",)
