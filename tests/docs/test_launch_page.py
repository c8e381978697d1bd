"""Each command of the page on launching is a run that fits its machines."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.recipes.conftest import published  # noqa: F401 - a fixture
from veriloop.pipeline.dry_run import plan
from veriloop.stages.launch import parse

PAGE = (Path(__file__).parents[2] / "docs/launch.md").read_text()
JOB = yaml.safe_load(re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1])
SECTIONS = dict(zip(*[iter(re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)[1:])] * 2, strict=True))


def launch(text):
    """(torchrun's flags, words of the command) of a text."""
    words = shlex.split(re.search(r"torchrun .*?(?= &?$|$)", text, re.MULTILINE)[0])
    at = words.index("-m")
    flags = dict(zip(words[1:at:2], words[2:at:2], strict=True))
    assert words[at + 1] == "veriloop"
    return flags, words[at + 2 :]


LAUNCHES = {
    "One machine of eight GPUs": launch(SECTIONS["One machine of eight GPUs"]),
    "Slurm": launch(SECTIONS["Slurm"]),
    "KubeRay": launch(JOB["spec"]["entrypoint"]),
}


@pytest.mark.parametrize("name", SECTIONS)
def test_a_command_is_a_run_whose_ranks_and_memory_fit(name, published):  # noqa: F811
    flags, (stage, *words) = LAUNCHES[name]
    options = parse(stage, words)
    cluster = options.recipe.cluster
    assert options.resume and cluster.ray == "auto"
    assert int(flags.get("--nnodes", 1)) == cluster.trainer.nodes
    assert int(flags["--nproc-per-node"]) == cluster.trainer.ranks
    plan.require_memory_of(options.recipe)
    text = plan.plan(options.recipe)
    assert f"= {cluster.ranks} ranks" in text
    assert f"{cluster.samplers.count} vLLM, started by Ray (auto), 1 GPU each" in text


OWN = (Path(__file__).parents[2] / "docs/own.md").read_text()


@pytest.mark.parametrize(("section", "most"), [(0, 52.4), (1, 51.5)])
def test_own_recipes_fit_eight_cards_as_the_page_says(section, most, published):  # noqa: F811
    first, card, *more = re.findall(r"```yaml\n(.*?)```", OWN, re.DOTALL)
    own = first.replace("models/my-base", "models/Qwen2.5-7B")
    (published / "one_card.yaml").write_text(own + card)
    (published / "mine.yaml").write_text(own + more[section])
    (published / "questions.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    launches = re.findall(r"^ +(?:CUDA_VISIBLE_DEVICES=\S+ )?(torchrun .*)$", OWN, re.MULTILINE)
    flags, (stage, *words) = launch(launches[section])
    planned = parse(stage, words).recipe
    assert int(flags["--nproc-per-node"]) == planned.cluster.trainer.ranks
    text = plan.plan(planned)
    told = float(re.search(r"at most about ([\d.]+) GiB on the device of rank 0", text)[1])
    assert told == pytest.approx(most, abs=0.05)
    alone = plan.plan(parse("zero", ["one_card.yaml"]).recipe)
    assert "at most about 133.0" in alone
    servers = planned.cluster.samplers.count
    assert planned.cluster.trainer.ranks + servers * planned.cluster.samplers.gpus == 8


def test_the_script_for_slurm_is_one_of_bash():
    script = re.search(r"```bash\n(.*?)```", SECTIONS["Slurm"], re.DOTALL)[1]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    _, words = launch(script)
    nodes = int(re.search(r"--nodes=(\d+)", script)[1])
    joined = re.findall(
        r'^on "\$\{nodes\[(\d)\]\}" ray start (.*) --block &$', script, re.MULTILINE
    )
    cluster = parse("zero", words[1:]).recipe.cluster
    assert sorted(int(node) for node, _ in joined) == list(range(nodes))
    training = {int(node) for node, flags in joined if "--num-gpus 0" in flags}
    assert training == set(range(cluster.trainer.nodes))  # rank 0 may be on any of them
    gpus = int(re.search(r"--gpus-per-node=(\d+)", script)[1])
    assert cluster.samplers.count == gpus * (nodes - len(training))


def test_the_script_for_slurm_starts_its_job_again_at_the_end_of_its_time():
    script = re.search(r"```bash\n(.*?)```", SECTIONS["Slurm"], re.DOTALL)[1]
    (trap,) = re.findall(r"^trap '(.*)' TERM$", script, re.MULTILINE)
    done = [step.strip() for step in trap.split(";")]
    assert done == [
        "kill -TERM $training", "wait $training", 'scontrol requeue "$SLURM_JOB_ID"', "exit",
    ]  # fmt: skip


def test_one_machine_has_a_gpu_for_each_rank_and_each_server():
    cluster = parse("zero", LAUNCHES["One machine of eight GPUs"][1][1:]).recipe.cluster
    cards = [set(ids.split(",")) for ids in re.findall(r"CUDA_VISIBLE_DEVICES=(\S+)", PAGE)]
    assert [len(ids) for ids in cards] == [cluster.samplers.count, cluster.ranks]
    assert not cards[0] & cards[1]


def test_the_job_of_kubernetes_has_gpus_for_its_ranks_and_a_worker_for_each_server():
    cluster = parse("zero", LAUNCHES["KubeRay"][1][1:]).recipe.cluster
    spec = JOB["spec"]["rayClusterSpec"]
    (workers,) = spec["workerGroupSpecs"]
    head = spec["headGroupSpec"]
    assert JOB["kind"] == "RayJob" and head["rayStartParams"] == {"num-gpus": "0"}
    gpus = [
        group["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
        for group in (head, workers)
    ]
    assert gpus == [cluster.ranks, cluster.samplers.gpus]
    assert workers["replicas"] == cluster.samplers.count
    for group in (head, workers):
        pod = group["template"]["spec"]
        assert pod["containers"][0]["volumeMounts"] == [{"name": "shared", "mountPath": "/shared"}]
        assert pod["volumes"][0]["name"] == "shared"
    assert cluster.samplers.folder.startswith("/shared/")
