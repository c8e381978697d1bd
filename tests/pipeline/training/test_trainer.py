"""The frame of a training loop: which steps are saved, when it stops, what a checkpoint holds."""

import random
from types import SimpleNamespace

import pytest
import torch

from veriloop.pipeline.config.lora import LoraConfig
from veriloop.pipeline.config.sections import CheckpointConfig
from veriloop.pipeline.errors import Stopped
from veriloop.pipeline.model import lora
from veriloop.pipeline.model.policy import load_policy
from veriloop.pipeline.rl.metrics import reproducible
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.runs.record import StageRecord, read_metrics
from veriloop.pipeline.training import trainer
from veriloop.pipeline.training.trainer import Trainer, TrainerDeps


class CountingLoop:
    """Five steps that log a random number each."""

    def __init__(self, directory, every):
        self.step = 0
        recipe = SimpleNamespace(
            checkpoint=CheckpointConfig(every=every, keep=99), model_dump_json=lambda: "{}"
        )
        deps = TrainerDeps(
            tokenizer=None,
            record=StageRecord(directory, tensorboard=False),
            console=SimpleNamespace(step=lambda step, metrics: None),
            directory=directory,
            start=directory,
        )
        self.trainer = Trainer(self, recipe, torch.nn.Linear(1, 1), deps)

    @property
    def finished(self):
        return self.step == 5

    def progress(self):
        return f"step {self.step}"

    def state(self):
        return {"step": self.step}

    def load(self, state):
        self.step = state["step"]

    def steps(self, stop_at=None):
        while not self.finished:
            self.step += 1
            self.trainer.log({"number": random.random()})
            self.trainer._stop.requested = self.step == stop_at
            yield


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Factory of loops in `tmp_path`/name."""
    monkeypatch.setattr(
        trainer,
        "write_policy",
        lambda model, _, folder, *, weights: torch.save(weights, folder / "model.pt"),
    )
    random.seed(1)
    return lambda name="run", every=2: CountingLoop(tmp_path / name, every)


def saved_steps(folder):
    return sorted(int(p.name[-6:]) for p in (folder / "checkpoints").glob("step_*"))


def test_steps_are_saved_when_due_and_the_last_one_once(build, tmp_path):
    for every, steps in ((2, [2, 4, 5]), (5, [5]), (0, [5])):
        loop = build(f"every-{every}", every)
        loop.trainer.run(loop.steps(), lambda: 0.0)
        assert saved_steps(tmp_path / f"every-{every}") == steps


def test_the_last_step_can_be_left_to_the_caller(build, tmp_path):
    loop = build()
    loop.trainer.run(loop.steps(), lambda: 0.0, save_last=False)
    assert saved_steps(tmp_path / "run") == [2, 4]


def test_a_requested_stop_saves_the_step_and_a_resumed_run_repeats_the_rest(build, tmp_path):
    whole = build("whole")
    whole.trainer.run(whole.steps(), lambda: 0.0)
    random.seed(1)
    broken = build()
    with pytest.raises(Stopped, match="stopped after step 3"):
        broken.trainer.run(broken.steps(stop_at=3), lambda: 7.0)
    assert saved_steps(tmp_path / "run") == [2, 3]
    path, state = checkpoint.load_latest(tmp_path / "run")
    assert (state["step"], state["seconds"], state["recipe"]) == (3, 7.0, "{}")
    random.seed(2)
    resumed = build()
    resumed.trainer.resume(state, torch.load(path / "model.pt"))
    resumed.trainer.run(resumed.steps(), lambda: 9.0)
    whole_rows, rows = (
        [reproducible(row) for row in read_metrics(tmp_path / name / "metrics.jsonl")]
        for name in ("whole", "run")
    )
    assert rows == whole_rows and len(rows) == 5


def test_every_step_records_what_the_run_uses_of_the_machine(build, tmp_path):
    loop = build()
    loop.trainer.run(loop.steps(), lambda: 0.0)
    for row in read_metrics(tmp_path / "run" / "metrics.jsonl"):
        assert {"system/cpu/trainer", "system/memory/trainer", "system/disk_free"} <= row.keys()


def test_a_stop_in_the_last_step_is_the_end(build, tmp_path):
    loop = build()
    loop.trainer.run(loop.steps(stop_at=5), lambda: 0.0)
    assert saved_steps(tmp_path / "run") == [2, 4, 5]


def test_a_resumed_run_without_steps_left_saves_nothing(build, tmp_path):
    loop = build()
    loop.trainer.run(loop.steps(), lambda: 0.0)
    path, state = checkpoint.load_latest(tmp_path / "run")
    before = (path / "trainer_state.pt").stat().st_mtime_ns
    again = build()
    again.trainer.resume(state, torch.load(path / "model.pt"))
    again.trainer.run(again.steps(), lambda: 0.0)
    assert (path / "trainer_state.pt").stat().st_mtime_ns == before


@pytest.mark.slow
def test_weights_that_are_rounded_in_memory_alone_do_not_share_an_evaluation(
    tiny_checkpoint, tmp_path
):
    model = load_policy(tiny_checkpoint())
    deps = TrainerDeps(
        tokenizer=None, record=StageRecord(tmp_path / "run/zero", tensorboard=False),
        console=SimpleNamespace(note=print), directory=tmp_path / "run/zero", start=tmp_path,
    )  # fmt: skip
    assert deps.evaluations_of(model, "float32", 0) and deps.evaluations_of(model, "bfloat16", 0)
    vars(model)["_stored_as"] = torch.bfloat16
    assert deps.evaluations_of(model, "bfloat16", 0)
    assert deps.evaluations_of(model, "float32", 0) is None
    vars(model)["_stored_as"] = torch.float32
    lora.add(model, LoraConfig(rank=2, alpha=4.0))
    assert deps.evaluations_of(model, "float32", 0) is None
