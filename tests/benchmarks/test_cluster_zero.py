"""The benchmark of a cluster against one process: its runs, its figures and its targets."""

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from veriloop.stages.launch import parse

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def part(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.fixture
def script(part):
    return part("cluster_zero")


def run(script, way, seed, **changes):
    own = {"last": 1.9 + 0.001 * seed, "noise": 0.02, "sync_max": 1e-6, "rewards": [0.4, 1.9]}
    own |= {"shares": [], "seconds": 1.0, "before": 0.2, "after": 0.9}
    if way == script.CLUSTER:
        own |= {"shares": [0.48, 0.52], "nodes": [0, 1], "verdicts": [9]}
    return {"way": way, "seed": seed, **own, **changes}


def runs(script, one=(), cluster=()):
    ways = {script.ONE: dict(one), script.CLUSTER: dict(cluster)}
    return [run(script, way, seed, **own) for seed in range(3) for way, own in ways.items()]


@pytest.mark.parametrize(
    ("one", "cluster", "said"),
    [
        ({}, {}, []),
        ({}, {"last": 1.9215}, ["interval 1.9000 ± 0.0200 of", "interval 1.9010 ± 0.0200 of"]),
        ({"noise": 1.0}, {"last": 1.96}, ["is not within ±0.05"]),
        ({}, {"shares": [0.39, 0.61]}, ["servers sampled the shares [0.39, 0.61]"] * 3),
        ({}, {"shares": [1.0]}, ["servers sampled the shares [1.0]"] * 3),
        ({}, {"nodes": [0, 0]}, ["the servers ran on the nodes [0, 0]"] * 3),
        ({}, {"verdicts": [9, 0]}, ["the services gave [9, 0] verdicts"] * 3),
        ({"sync_max": 2e-4}, {}, ["one process, seed"] * 3),
        ({}, {"rewards": [1.7, 1.9]}, ["it learned nothing"] * 3),
    ],
)
def test_each_target_is_missed_by_its_own_failing(script, one, cluster, said):
    failed = script.missed(runs(script, one, cluster))
    assert len(failed) == len(said)
    assert all(part in line for part, line in zip(said, failed, strict=True))


def test_differences_are_of_the_runs_of_one_seed_in_whatever_order(script):
    made = runs(script, cluster={"last": 1.9})
    mean, noise = script.gap(made[::-1])
    assert mean == pytest.approx(-0.001) and noise == pytest.approx(4.303 * 0.001 / 3**0.5)
    assert "cluster less one process: -0.0010 ± 0.0025 (95 %)" in script.shown(made)


def test_the_unit_of_noise_is_the_question_and_shares_are_over_all_steps(script):
    rows = [("1/0", 0.0), ("1/0", 2.0), ("1/1", 2.0), ("1/1", None), ("2/0", 1.0)]
    rows = [{"group": group, "reward": reward} for group, reward in rows]
    assert script.group_means(rows) == [1.0, 2.0, 1.0]
    curve = [{"reward": 1.0, "system/sampled/a:1": 30.0, "system/sampled/b:1": 10.0}]
    curve.append({"reward": 1.0, "system/sampled/b:1": 40.0})
    assert script.shares(curve) == [0.375, 0.625]
    assert script.shares([{"reward": 1.0}]) == []


def test_a_run_is_read_from_its_records(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "LAST", 2)
    ends = {"before": {"pass@1": 0.2}, "after": {"pass@1": 0.8}}
    stages = {"stages": [{"sampler": "served", "seconds": 12.0, **ends}]}
    (tmp_path / "run.json").write_text(json.dumps(stages))
    curve = [{"step": n, "reward": 0.5 * n, "sync/max": 1e-6 * n} for n in (1, 2, 3)]
    monkeypatch.setattr(script, "read_metrics", lambda path: curve)
    read = []

    def read_rollouts(path):
        read.append(path.name)
        return [{"group": f"{path.name}/{k}", "reward": float(k)} for k in range(2)]

    monkeypatch.setattr(script, "read_rollouts", read_rollouts)
    told = script.summary(tmp_path)
    assert read == ["step_000002.parquet", "step_000003.parquet"]
    assert (told["last"], told["sync_max"], told["after"]) == (1.25, 3e-6, 0.8)
    assert told["noise"] == pytest.approx(1.96 * (1 / 3) ** 0.5 / 2)


def test_both_ways_have_the_same_words_but_for_the_cluster(script, tmp_path):
    (tmp_path / "base.yaml").write_text((BENCHMARKS.parent / "recipes/tiny/base.yaml").read_text())
    words = script.flags(2, tmp_path / "base.yaml", tmp_path / "run", script.QUICK)
    one = parse("zero", words[1:]).recipe
    more = script.clustered("127.0.0.1:6379", ["http://127.0.0.1:1"])
    cluster = parse("zero", [*words[1:], *more]).recipe
    assert (one.seed, one.steps, one.rollout.prompts) == (2, 2, 8)
    assert cluster.cluster.ranks == 2 and cluster.cluster.samplers.count == 2
    assert (
        cluster.model_copy(
            update={"cluster": one.cluster, "verifier_service": one.verifier_service}
        )
        == one
    )


def test_quick_makes_both_runs_of_one_seed(script, monkeypatch, tmp_path, capsys):
    made = []

    def way(name):
        def started(folder, seed, base, size):
            made.append((name, seed, base.name, size))
            return run(script, name, seed)

        return started

    monkeypatch.setattr(script, "run_one", way(script.ONE))
    monkeypatch.setattr(script, "run_cluster", way(script.CLUSTER))
    out = tmp_path / "out.json"
    words = ["cluster_zero.py", "--quick", "--folder", str(tmp_path), "--json", str(out)]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / words[0]), *words[1:]])
    assert script.main() == 0
    size = [*script.QUICK]
    assert made == [(way, 0, "base-0.yaml", size) for way in (script.ONE, script.CLUSTER)]
    assert len(json.loads(out.read_text())["results"]["runs"]) == 2
    assert "0.480 0.520" in capsys.readouterr().out


def test_the_page_shows_each_run_and_the_difference(script, part):
    lines = part("recipe_tables").cluster_zero({"runs": runs(script), "gap": [0.0, 0.0125]})
    assert lines[3] == (
        "| cluster, seed 0 | 0.40 | 1.900 ± 0.020 | 0.200 → 0.900 | 48.0%, 52.0% | 1.0e-06 | 1 |"
    )
    assert lines[-1] == "Cluster less one process, over the seeds: +0.000 ± 0.013 (95 %)."
    ((_, figure, name),) = part("recipe_tables").proofs(
        {"cluster_zero": {"runs": runs(script), "gap": [-0.01, 0.02]}}
    )
    assert (figure, name) == ("-0.010 ± 0.020; 48%", "cluster_zero")


def sleeper(environment):
    """A process whose child has lost it."""
    orphan = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
    words = [sys.executable, "-c", orphan, "import time; time.sleep(600)"]
    subprocess.run(words, env={**os.environ, **environment}, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("failure", [None, SystemExit, KeyboardInterrupt])
def test_what_has_the_mark_ends_with_the_block_however_it_ends(
    failure, part, monkeypatch, tmp_path
):
    nodes_of = part("ray_nodes")
    monkeypatch.setattr(nodes_of, "ENDS_S", 0.2)
    try:
        with nodes_of.ray_nodes(tmp_path, 0) as nodes:
            mark = nodes.mark
            sleeper(nodes.environment)
            end = time.monotonic() + 20
            while len(nodes_of.marked(mark)) != 1:  # its environment is there soon after it began
                assert time.monotonic() < end
            if failure:
                raise failure
    except (SystemExit, KeyboardInterrupt):
        assert failure
    end = time.monotonic() + 20
    while left := nodes_of.marked(mark):  # what was killed may take a moment to be gone
        assert time.monotonic() < end, left


def test_a_server_is_found_by_its_guardian_and_its_node_by_its_raylet(part, monkeypatch):
    module = part("ray_nodes")
    server = "python -m veriloop.pipeline.sampling.guardian python x --model m --host h --port {}"
    lines = {
        10: "ray start --head", 11: "/ray/raylet/raylet --a", 20: "ray start",
        21: "/ray/raylet/raylet --b", 30: server.format(5), 31: server.format(6),
        32: "python x --model m --host h --port 6",
    }  # fmt: skip
    parents = {11: [10], 21: [20], 30: [29, 21, 20], 31: [28, 11, 10], 32: [31, 28, 11, 10]}
    monkeypatch.setattr(module, "marked", lambda mark: lines)
    monkeypatch.setattr(module, "ancestors", lambda pid: iter(parents.get(pid, [])))
    nodes = module.RayNodes.__new__(module.RayNodes)
    nodes.mark = "m"
    nodes._nodes = {0: SimpleNamespace(pid=10), 1: SimpleNamespace(pid=20)}
    assert nodes.raylets() == {0: 11, 1: 21}
    assert nodes.servers() == {"http://h:5": 1, "http://h:6": 0}
