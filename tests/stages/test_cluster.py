"""A stage under torchrun: two ranks on this machine, from start to end, stopped and resumed."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch.distributed.run import get_args_parser

from tests.forked import forked_ranks
from veriloop.pipeline.cluster import rank_group
from veriloop.pipeline.config.cluster import (
    ClusterConfig,
    ClusterTrainer,
    RanksConfig,
    launched_rank,
)
from veriloop.pipeline.config.load import read, validate
from veriloop.pipeline.config.r1_stages import steps
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.errors import RecipeError, Stopped
from veriloop.pipeline.model.sharded import CLOSE, LEAVE, OPEN
from veriloop.pipeline.runs.record import read_metrics
from veriloop.stages.cli import main

ROOT = Path(__file__).parents[2]
TWO = ("--cluster.trainer.ranks", "2")


@pytest.fixture
def words(tiny_checkpoint, tmp_path):
    """Function: the words of a small run into `tmp_path`/name."""
    values = {
        "stage": "zero",
        "name": "test",
        "start": str(tiny_checkpoint()),
        "steps": 4,
        "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12},
        "optimizer": {"learning_rate": 0.01},
        "algorithm": {"minibatches": 2, "reference_every": 4},
        "reward": {"control": "random"},  # an untrained model earns nothing else
        "sampler": {"engine": "torch"},
        "evaluation": {"problems": 4, "samples": 2},
        "checkpoint": {"every": 1, "keep": 9},
        "tensorboard": False,
    }
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(values))
    return lambda name, *more: ["zero", str(recipe), "--output", str(tmp_path / name), *more]


EXAMPLES = {
    "sft": {"data": {"source": "arithmetic", "rows": 48, "held_out": 8}},
    "preference": {"data": {"rows": 40, "held_out": 8}, "loss": {"name": "dpo"}},
    "reward-model": {"data": {"rows": 40, "held_out": 8}, "centring": 0.01},
    "distill": {"data": {"source": "arithmetic", "rows": 48, "held_out": 8}, "method": "logits"},
}


@pytest.fixture
def tuned(tiny_checkpoint, tmp_path, monkeypatch):
    """Function: the words of a small run of a stage that learns from examples."""
    monkeypatch.chdir(tmp_path)  # of the caches

    def words(stage, name, *more):
        start = str(tiny_checkpoint())
        values = {
            "stage": stage.replace("-", "_"),
            "name": "test",
            "start": start,
            "batch": 8,
            "optimizer": {"learning_rate": 0.001},
            "trainer": {"row": 64, "rows": 4},
            "checkpoint": {"every": 1, "keep": 9},
            "tensorboard": False,
            **EXAMPLES[stage],
        }
        if stage == "distill":
            values |= {"teacher": str(tiny_checkpoint(tied=True)), "top_k": 4, "examine": False}
        recipe = tmp_path / f"{stage}.yaml"
        recipe.write_text(yaml.safe_dump(values))
        return [stage, str(recipe), "--output", str(tmp_path / name), *more]

    return words


def started(words):
    """The command under torchrun, which can be signalled."""
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.Popen(
        [sys.executable, "-m", *torchrun, "-m", "veriloop", *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def weights(folder, step=4, stage="zero"):
    return load_file(folder / f"{stage}/checkpoints/step_{step:06d}/model.safetensors")


def rows(folder, stage="zero"):
    return read_metrics(folder / f"{stage}/metrics.jsonl")


def apart(one, other):
    """How far apart weights are, relative to their norm."""
    flat, other_flat = (torch.cat([w.flatten() for w in each.values()]) for each in (one, other))
    return ((flat - other_flat).norm() / flat.norm()).item()


def same(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


def test_only_the_rl_stages_take_servers_that_sample():
    values = {"stage": "sft", "name": "t", "start": "s", "data": {"source": "f"}}
    values |= {"optimizer": {"learning_rate": 0.1}}
    assert validate(values, "here").cluster == ClusterConfig()
    samplers = {"samplers": {"urls": ["http://127.0.0.1:8000"]}}
    with pytest.raises(
        RecipeError, match="only the RL stages and collect-preferences sample on servers"
    ):
        validate(values | {"cluster": samplers}, "here")


@pytest.mark.slow
def test_two_ranks_train_as_one_process_and_one_of_them_speaks(words, tmp_path, one_pool):
    del one_pool
    process = started(words("two", *TWO))
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said[-4000:]
    assert said.count("zero 4/4") == 1 and said.count("checkpoint: ") == 1
    assert main(words("one")) == 0
    one, two = rows(tmp_path / "one"), rows(tmp_path / "two")
    for name in ("loss", "kl", "entropy", "grad_norm", "reward", "sync/mean"):
        assert two[0][name] == pytest.approx(one[0][name], rel=1e-4, abs=1e-6), name
    assert two[0].keys() == one[0].keys()
    assert [row["step"] for row in two] == [1, 2, 3, 4]
    (stage,) = json.loads((tmp_path / "two/run.json").read_text())["stages"]
    assert stage["status"] == "done"
    first = weights(tmp_path / "one", 1), weights(tmp_path / "two", 1)
    for name, weight in first[0].items():
        assert torch.allclose(weight, first[1][name], atol=1e-5), name


@pytest.mark.slow
def test_a_stopped_run_goes_on_bit_for_bit_and_on_one_rank_too(words, tmp_path, one_pool):
    del one_pool
    forked_ranks(words("whole", *TWO), 2)
    process = started(words("broken", *TWO))
    while not (tmp_path / "broken/zero/checkpoints/step_000001").exists():
        assert process.poll() is None, process.communicate()[0][-4000:]
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=120)
    assert (
        "go on with: torchrun --nproc-per-node 2 -m -- veriloop zero" in said
        and process.returncode != 0
    )
    shutil.copytree(tmp_path / "broken", tmp_path / "alone")
    forked_ranks(words("broken", *TWO, "--resume"), 2)
    assert same(weights(tmp_path / "broken"), weights(tmp_path / "whole"))
    assert main(words("alone", "--resume")) == 0
    assert [row["step"] for row in rows(tmp_path / "alone")] == [1, 2, 3, 4]


def as_after(step, folder, copy):
    """A copy of a finished run as it was after an earlier step."""
    shutil.copytree(folder, copy)
    for path in copy.glob("*/checkpoints/step_*"):
        if int(path.name.removeprefix("step_")) > step:
            shutil.rmtree(path)
    run = json.loads((copy / "run.json").read_text())
    run["stages"][-1]["status"] = "running"
    (copy / "run.json").write_text(json.dumps(run))


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 3)])
def test_a_run_goes_on_with_another_number_of_ranks(words, tmp_path, one_pool, before, after):
    del one_pool

    def run(name, ranks, *more):
        flags = ("--steps", "7", "--optimizer.learning-rate", "0.001")
        all_words = words(name, *flags, "--cluster.trainer.ranks", str(ranks), *more)
        if ranks == 1:
            assert main(all_words) == 0
        else:
            forked_ranks(all_words, ranks)

    run("whole", before)
    as_after(2, tmp_path / "whole", tmp_path / "resumed")
    run("resumed", after, "--resume")
    assert apart(*(weights(tmp_path / name, 7) for name in ("whole", "resumed"))) <= 1e-6
    metrics, found = (rows(tmp_path / name)[2:] for name in ("whole", "resumed"))
    assert [row["step"] for row in found] == [3, 4, 5, 6, 7]
    for row, again in zip(metrics, found, strict=True):
        for name in ("loss", "kl", "entropy", "grad_norm", "reward", "completions/mean_length"):
            # Loss and KL are small differences of numbers near 1, whose float32 spacing is 1.2e-7.
            assert again[name] == pytest.approx(row[name], rel=1e-6, abs=4.8e-7), name


@pytest.mark.slow
@pytest.mark.parametrize("stage", EXAMPLES)
def test_a_stage_that_learns_from_examples_runs_on_two_ranks(tuned, tmp_path, stage):
    forked_ranks(tuned(stage, "two", *TWO), 2, cwd=tmp_path)
    as_after(2, tmp_path / "two", tmp_path / "resumed")
    forked_ranks(tuned(stage, "resumed", *TWO, "--resume"), 2, cwd=tmp_path)
    folder = stage.replace("-", "_")
    resumed, two = (weights(tmp_path / name, 5, folder) for name in ("resumed", "two"))
    assert same(resumed, two)
    assert main(tuned(stage, "one")) == 0
    assert apart(weights(tmp_path / "one", 5, folder), two) <= 1e-6
    for one, other in zip(*(rows(tmp_path / name, folder) for name in ("one", "two")), strict=True):
        learned, others = (
            {name: row[name] for name in row if not name.startswith(("system/", "time"))}
            for row in (one, other)
        )
        assert others == pytest.approx(learned, rel=1e-5, abs=1e-5)
    ends = [json.loads((tmp_path / name / "run.json").read_text()) for name in ("one", "two")]
    for end in ("before", "after"):
        one, two = (run["stages"][0][end] for run in ends)
        assert two.keys() == one.keys()
        for name, value in one.items():
            assert two[name] == pytest.approx(value, rel=1e-5, abs=1e-5), name


ROLLOUT = {"prompts": 4, "per_prompt": 4, "max_tokens": 12}
SAMPLING = {
    "distill": {
        "method": "on_policy",
        "steps": 4,
        "divergence": "jsd",
        "rollout": ROLLOUT,
        "minibatches": 2,
    },
    "preference": {
        "schedule": {"name": "online", "rounds": 4},
        "data": {"rows": 4, "held_out": 4},
        "problems": {"arithmetic": 1.0},
        "rollout": ROLLOUT,
        "batch": 4,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("stage", SAMPLING)
def test_a_stage_that_samples_from_its_model_goes_on_with_two_ranks(
    tiny_checkpoint, tiny_classifier, tmp_path, monkeypatch, one_pool, stage
):
    del one_pool
    monkeypatch.chdir(tmp_path)  # of the caches
    values = {
        "stage": stage,
        "name": "test",
        "start": str(tiny_checkpoint()),
        "optimizer": {"learning_rate": 0.001},
        "sampler": {"engine": "torch"},
        "evaluation": {"problems": 4, "samples": 2},
        "checkpoint": {"every": 1, "keep": 9},
        "tensorboard": False,
        **SAMPLING[stage],
    }
    if stage == "distill":
        values["teacher"] = str(tiny_checkpoint(tied=True))
    else:  # an untrained model earns no verifier's reward
        values["label"] = {"by": "reward_model", "reward_model": str(tiny_classifier)}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(values))

    def words(name, *more):
        return [stage, str(recipe), "--output", str(tmp_path / name), *more]

    assert main(words("one")) == 0
    as_after(2, tmp_path / "one", tmp_path / "two")
    forked_ranks(words("two", *TWO, "--resume"), 2, cwd=tmp_path)
    one, two = (weights(tmp_path / name, stage=stage) for name in ("one", "two"))
    assert apart(one, two) <= 1e-6
    assert [row["step"] for row in rows(tmp_path / "two", stage)] == [1, 2, 3, 4]


def whole_run(folder, checkpoint):
    """The recipe of a whole run whose second stage trains on rank 0 alone."""
    kept = {"checkpoint": {"every": 1, "keep": 9}, "tensorboard": False, "name": "test"}
    recipes = {
        "dpo": {
            "stage": "preference",
            "start": str(checkpoint),
            "batch": 4,
            "data": {"rows": 8, "held_out": 4},
            "optimizer": {"learning_rate": 0.001},
        },
        "judge": {
            "stage": "reward_model",
            "start": "taken",
            "batch": 8,
            "data": {"rows": 16, "held_out": 8},
            "optimizer": {"learning_rate": 0.001},
        },
        "zero": {
            "stage": "zero",
            "start": "taken",
            "steps": 4,
            "rollout": ROLLOUT,
            "optimizer": {"learning_rate": 0.001},
            "reward": {"control": "random"},
            "sampler": {"engine": "torch"},
            "evaluation": {"problems": 4, "samples": 2},
        },
    }
    for name, values in recipes.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(kept | values))
    alone = {"cluster.trainer.ranks": 1}
    take = {"start": "dpo.checkpoint"}
    stages = [
        {"name": "dpo", "recipe": "dpo.yaml"},
        {"name": "judge", "recipe": "judge.yaml", "take": take, "set": alone},
        {"name": "zero", "recipe": "zero.yaml", "take": take},
    ]
    recipe = {"stage": "r1", "name": "whole", "stages": stages}
    (folder / "r1.yaml").write_text(yaml.safe_dump(recipe))
    return "r1.yaml"


@pytest.mark.slow
def test_a_whole_run_divides_its_stages_and_goes_on_with_one_rank(
    tiny_checkpoint, tmp_path, monkeypatch, one_pool
):
    del one_pool
    monkeypatch.chdir(tmp_path)
    recipe = whole_run(tmp_path, tiny_checkpoint())
    said = forked_ranks(["r1", recipe, "--output", "two", *TWO], 2, cwd=tmp_path)
    assert said.count("[3/3] zero:") == 1 and said.count("checkpoint: two/zero") == 1
    stages = json.loads(Path("two/run.json").read_text())["stages"]
    ranks = [stage["inputs"]["recipe"]["cluster"]["trainer"]["ranks"] for stage in stages]
    assert ranks == [2, 1, 2] and {stage["status"] for stage in stages} == {"done"}
    as_after(2, Path("two"), Path("one"))
    assert main(["r1", recipe, "--output", "one", "--resume"]) == 0
    assert apart(weights(Path("one")), weights(Path("two"))) <= 1e-6


def test_a_whole_run_and_its_stages_agree_about_ranks_and_device(tiny_checkpoint, here):
    recipe = whole_run(here, tiny_checkpoint())
    asked = read(recipe)
    two = asked.model_copy(update={"cluster": RanksConfig(trainer=ClusterTrainer(ranks=2))})
    assert [step.recipe.cluster.ranks for step in steps(two)] == [2, 1, 2]
    assert [step.recipe.cluster.ranks for step in steps(asked)] == [1, 1, 1]
    with pytest.raises(RecipeError, match=r"stage zero: cluster\.trainer asks for 3 ranks"):
        steps(two, {"zero": {"cluster.trainer.ranks": 3}})
    with pytest.raises(RecipeError, match="one device, not auto of dpo, cpu of zero"):
        steps(two, {"zero": {"trainer.device": "cpu"}})


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_the_run(words, tmp_path):
    process = started(words("killed", *TWO))
    while not (tmp_path / "killed/zero/checkpoints/step_000001").exists():
        assert process.poll() is None, process.communicate()[0][-4000:]
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    said, _ = process.communicate(timeout=120)
    assert process.returncode != 0 and "SIGKILL" in said
    forked_ranks(words("killed", *TWO, "--resume"), 2)


def recipe(**cluster):
    return ZeroRecipe.model_validate(
        {
            "name": "t",
            "start": "given",
            "steps": 1,
            "rollout": {"prompts": 2, "per_prompt": 2, "max_tokens": 8},
            "optimizer": {"learning_rate": 0.1},
            "cluster": {"trainer": cluster},
        }
    )


@pytest.mark.parametrize(
    ("commands", "failure", "sent"),
    [
        ((), None, [LEAVE]),
        ((OPEN, "learn"), None, [OPEN, "learn", CLOSE, LEAVE]),
        ((OPEN, "learn"), Stopped, [OPEN, "learn", CLOSE, LEAVE]),
        ((OPEN, "learn"), KeyboardInterrupt, [OPEN, "learn"]),  # in the middle of a collective
    ],
)
def test_ranks_are_dismissed_when_no_stage_is_open(monkeypatch, commands, failure, sent):
    heard = []
    monkeypatch.setattr(rank_group.dist, "monitored_barrier", lambda *_, **__: None)
    broadcast = lambda message, **_: heard.append(message[0][0])  # noqa: E731
    monkeypatch.setattr(rank_group.dist, "broadcast_object_list", broadcast)
    group = object.__new__(rank_group.RankGroup)
    group._commands, group._deadline, group._in_stage = None, None, False
    for name in commands:
        group.command(name)
    if commands:
        group.close(failure)
    group.dismiss(failure)
    assert heard == sent


def test_the_rank_is_torchruns(monkeypatch):
    assert launched_rank(recipe()) == 0
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    assert launched_rank(recipe(nodes=2, ranks=2)) == 3


def test_an_empty_variable_of_torchrun_is_none_and_a_word_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "")
    assert launched_rank(recipe()) == 0
    monkeypatch.setenv("WORLD_SIZE", "four")
    with pytest.raises(RecipeError, match="WORLD_SIZE='four' in the environment is no number"):
        launched_rank(recipe())


def test_torchrun_reads_no_flag_of_the_command_that_a_run_is_started_with():
    words = shlex.split(f"{recipe(ranks=2).cluster.launcher} zero tiny/zero --start models/mine")
    read = get_args_parser().parse_args(words[1:])
    assert read.nproc_per_node == "2" and read.training_script == "veriloop"
    assert read.training_script_args == ["zero", "tiny/zero", "--start", "models/mine"]


def test_another_number_of_ranks_is_refused(monkeypatch, capsys):
    with pytest.raises(RecipeError, match="torchrun --nnodes 2 --nproc-per-node 3 -m -- veriloop"):
        launched_rank(recipe(nodes=2, ranks=3))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RecipeError, match="1 x 1 = 1 ranks, but WORLD_SIZE=2"):
        launched_rank(recipe())
    for words in (["base", "tiny/base"], ["collect-preferences", "tiny/collect_preferences"]):
        assert main(words) == 2
        said = f"the stage '{words[0].replace('-', '_')}' runs in one process; start it without"
        assert said in " ".join(capsys.readouterr().err.split())


def test_a_command_without_ranks_refuses_a_recipe_that_asks_for_them(tiny_checkpoint, tmp_path):
    from contextlib import ExitStack

    from veriloop.stages import rl, zero

    asked = recipe(ranks=2)
    with ExitStack() as stack, pytest.raises(RecipeError, match="asks for 2 ranks, this command"):
        rl.open_loop(stack, asked, zero.task(asked), tmp_path, tiny_checkpoint(), None)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"trainer": {"device": "cuda:1"}}, "each rank takes the GPU of its number"),
        (
            {"algorithm": {"objective": "natural_gradient", "trust_region": 0.01}},
            "its step is computed in one process; set another objective or ranks: 1",
        ),
    ],
)
def test_settings_for_one_process_are_refused_on_several_ranks(settings, reason):
    several = {"cluster": {"trainer": {"ranks": 2}}}
    alone = validate(recipe().model_dump() | settings, "here")
    assert alone.cluster == ClusterConfig()
    with pytest.raises(RecipeError, match=reason):
        validate(recipe().model_dump() | settings | several, "here")
