"""How runs end: by signals, by the death of a child, beside a second command on their folder."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.forked import ForkedGroup
from veriloop.pipeline.rl.metrics import reproducible
from veriloop.stages.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_engines")]
STEPS = 12  # of which some are left when a signal arrives, on a busy machine too
LIMIT_S = 300  # for a command to end; no test measures time


@pytest.fixture(scope="module")
def words(tiny_checkpoint, tmp_path_factory):
    """Function: what runs a small recipe that samples ahead into a folder."""
    values = {
        "stage": "zero",
        "name": "test",
        "start": str(tiny_checkpoint()),
        "steps": STEPS,
        "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12, "ahead": 1},
        "optimizer": {"learning_rate": 0.01},
        "algorithm": {"minibatches": 2, "reference_every": 4},
        "reward": {"control": "random"},
        "sampler": {"engine": "torch", "tolerance": 0.1},
        "evaluation": {"problems": 4, "samples": 2},
        "checkpoint": {"every": 2},
        "tensorboard": False,
    }
    recipe = tmp_path_factory.mktemp("recipes") / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(values))
    return lambda folder, *more: ["zero", str(recipe), "--output", str(folder), *more]


@pytest.fixture(scope="module")
def whole(words, tmp_path_factory):
    """The result of a run that nothing disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    code, said = ForkedGroup(words(folder / "run"), folder).ended(LIMIT_S)
    assert code == 0, said
    return result(folder / "run")


def lines(folder):
    path = folder / "zero" / "metrics.jsonl"
    rows = path.read_text().splitlines() if path.exists() else []
    return [reproducible(json.loads(r)) for r in rows if r[-1:] == "}"]


def result(folder):
    weights = folder / f"zero/checkpoints/step_{STEPS:06d}/model.safetensors"
    return lines(folder), weights.read_bytes()


def wait_for_steps(process, folder, count):
    while len(lines(folder)) < count:
        assert process.code is None, process.said
        time.sleep(0.005)


def children(pid):
    """Process id and command line of each child."""
    ids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for task in Path(f"/proc/{pid}/task").iterdir():
        ids += (task / "children").read_text().split()
    return {int(i): Path(f"/proc/{i}/cmdline").read_text() for i in ids}


def child(pid, part):
    return next(i for i, command in children(pid).items() if part in command)


def in_time(condition):
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def to_main(number):
    return lambda process: process.signal(number)


def to_group(number):
    return lambda process: process.signal(number, group=True)


def kill_engine(process):
    os.kill(child(process.pid, "engine_process"), signal.SIGKILL)


def kill_worker(process):
    os.kill(child(process.pid, "spawn_main"), signal.SIGKILL)


STOPS = {
    "interrupt": (to_group(signal.SIGINT), 130),  # as a terminal sends it
    "term": (to_main(signal.SIGTERM), 130),  # as a scheduler does
    "kill": (to_main(signal.SIGKILL), -signal.SIGKILL),
    "killed engine": (kill_engine, 1),
    "killed worker": (kill_worker, 0),
}


@pytest.mark.parametrize("name", STOPS)
def test_a_run_ends_in_order_or_resumes_bit_for_bit(words, whole, tmp_path, one_pool, name):
    del one_pool
    (stop, expected), folder = STOPS[name], tmp_path / "run"
    process = ForkedGroup(words(folder), tmp_path)
    wait_for_steps(process, folder, 1)
    left = children(process.pid)
    stop(process)
    code, said = process.ended(LIMIT_S)
    assert code == expected, said
    assert ("--resume" in said) == (expected == 130), said
    in_time(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))
    if expected:
        assert len(lines(folder)) < STEPS
        assert main(words(folder, "--resume")) == 0
    assert result(folder) == whole


def test_a_second_signal_ends_a_run_with_a_stuck_engine_at_once(words, tmp_path):
    process = ForkedGroup(words(tmp_path / "run"), tmp_path)
    wait_for_steps(process, tmp_path / "run", 1)
    left = children(process.pid)
    os.kill(child(process.pid, "engine_process"), signal.SIGSTOP)
    process.signal(signal.SIGTERM)
    time.sleep(0.5)
    # A run that has stopped in order by then is taking its interpreter down, without handlers, or
    # is gone.
    with suppress(ProcessLookupError):
        process.signal(signal.SIGTERM)
    code, said = process.ended(LIMIT_S)
    assert code == 130 or (code == -signal.SIGTERM and "go on with" in said), said
    in_time(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))


def test_a_stuck_engine_fails_the_run_at_its_deadline(words, tmp_path, one_pool):
    del one_pool
    process = ForkedGroup(words(tmp_path / "run", "--sampler.deadline-s", "20"), tmp_path)
    wait_for_steps(process, tmp_path / "run", 1)
    engine = child(process.pid, "engine_process")
    os.kill(engine, signal.SIGSTOP)
    code, said = process.ended(LIMIT_S)
    assert code == 1 and f"(pid {engine}) was silent for 20 s" in said
    stage = json.loads((tmp_path / "run" / "run.json").read_text())["stages"][-1]
    assert stage["status"] == "failed"
    assert main(words(tmp_path / "run", "--resume")) == 0


@pytest.mark.parametrize("steps", [0, 2], ids="after_{}_steps".format)
def test_of_two_commands_on_one_folder_one_is_refused_and_the_other_is_whole(
    words, whole, tmp_path, steps
):
    first = ForkedGroup(words(tmp_path / "run", "--resume"), tmp_path)
    wait_for_steps(first, tmp_path / "run", steps)
    if steps:
        first.signal(signal.SIGSTOP)  # or it may be done before the second has begun
    second = ForkedGroup(words(tmp_path / "run", "--resume"), tmp_path)
    last = second.ended(LIMIT_S) if steps else None
    first.signal(signal.SIGCONT)
    ends = [first.ended(LIMIT_S), last or second.ended(LIMIT_S)]
    codes = [code for code, _ in ends]
    assert sorted(codes) == [0, 2], ends
    refusal = ends[codes.index(2)][1]
    winner = (first, second)[codes.index(0)]
    assert f"process {winner.pid} on " in refusal and "since" in refusal
    assert result(tmp_path / "run") == whole
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["resumed"] == [] and run["stages"][-1]["status"] == "done"
