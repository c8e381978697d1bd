"""The loop over fixed examples: order, last batches, resuming to the same bits."""

from contextlib import ExitStack
from types import SimpleNamespace

import pytest
import torch

from veriloop.pipeline.config.sections import CheckpointConfig, OptimizerConfig, TrainerConfig
from veriloop.pipeline.errors import Stopped
from veriloop.pipeline.rl.metrics import reproducible
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.runs.console import StageConsole
from veriloop.pipeline.runs.record import StageRecord, read_metrics
from veriloop.pipeline.training import trainer
from veriloop.pipeline.training.epoch_loop import EpochLoop
from veriloop.pipeline.training.stop import StopRequest
from veriloop.pipeline.training.trainer import TrainerDeps


class Recipe(SimpleNamespace):
    def model_dump_json(self):
        return "{}"


def recipe(**changes):
    values = {
        "seed": 0,
        "epochs": 3,
        "batch": 4,
        "optimizer": OptimizerConfig(learning_rate=0.1, schedule="cosine", floor=0.1),
        "trainer": TrainerConfig(),
        "checkpoint": CheckpointConfig(every=2, keep=99),
    }
    return Recipe(**values | changes)


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Factory of loops on one weight; each loop with the batches it has seen."""
    monkeypatch.setattr(trainer, "write_policy", lambda model, _, folder, *, weights: torch.save(
        weights, folder / "model.pt"))  # fmt: skip
    with ExitStack() as stack:

        def build(asked, *, folder="run", count=10, evaluate=dict):
            torch.manual_seed(0)
            model, seen = torch.nn.Linear(1, 1), []

            def gradient(batch):
                seen.append(list(batch))
                loss = sum((model(torch.tensor([float(x)])) - 3 * x) ** 2 for x in batch)
                loss.sum().backward()
                return {"loss": loss.item()}

            directory = tmp_path / folder
            deps = TrainerDeps(
                tokenizer=None,
                record=stack.enter_context(StageRecord(directory, tensorboard=False)),
                console=StageConsole("test", 9),
                directory=directory,
                start=directory,
            )
            loop = EpochLoop(
                asked, range(count), model, deps, gradient, purpose="test", evaluate=evaluate
            )
            return loop, seen

        yield build


def test_every_example_is_seen_once_an_epoch_in_another_order_each(opened):
    loop, seen = opened(recipe())
    loop.run(lambda: 0.0)
    assert [len(batch) for batch in seen] == [4, 4, 2] * 3
    passes = [[x for batch in seen[i : i + 3] for x in batch] for i in (0, 3, 6)]
    assert all(sorted(one) == list(range(10)) for one in passes)
    assert passes[0] != passes[1] != passes[2] and passes[0] != list(range(10))
    again, same = opened(recipe(), folder="again")
    again.run(lambda: 0.0)
    other, different = opened(recipe(seed=1), folder="other")
    other.run(lambda: 0.0)
    assert same == seen and different != seen


def test_the_rate_falls_on_its_cosine_and_what_is_measured_ends_each_epoch(opened, tmp_path):
    loop, _ = opened(recipe(), evaluate=lambda: {"eval_loss": 0.5})
    loop.run(lambda: 0.0)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows if "eval_loss" in row] == [3, 6, 9]
    rates = [row["learning_rate"] for row in rows]
    assert rates[0] == 0.1 and rates == sorted(rates, reverse=True) and 0.01 < rates[-1] < 0.02


class StopAtOnce(StopRequest):
    def __enter__(self):
        opened = super().__enter__()
        self.requested = True
        return opened


def test_a_loop_that_stops_continues_to_the_same_bits(opened, tmp_path, monkeypatch):
    whole, seen = opened(recipe())
    whole.run(lambda: 0.0)
    with monkeypatch.context() as stopping:
        stopping.setattr(trainer, "StopRequest", StopAtOnce)
        broken, first = opened(recipe(), folder="broken")
        with pytest.raises(Stopped, match="stopped after step 1 of 9"):
            broken.run(lambda: 7.0)
    path, state = checkpoint.load_latest(tmp_path / "broken")
    assert state["seconds"] == 7.0 and state["done"] == 1
    resumed, rest = opened(recipe(), folder="broken")
    resumed.trainer.resume(state, torch.load(path / "model.pt"))
    resumed.run(lambda: 9.0)
    assert first + rest == seen
    for mine, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    whole_rows, rows = (
        [reproducible(row) for row in read_metrics(tmp_path / name / "metrics.jsonl")]
        for name in ("run", "broken")
    )
    assert rows == whole_rows and len(rows) == 9


def test_checkpoints_come_as_often_as_asked_and_the_last_is_the_stages(opened, tmp_path):
    loop, _ = opened(recipe())
    loop.run(lambda: 0.0)
    folders = tmp_path / "run" / "checkpoints"
    assert sorted(p.name[-1] for p in folders.glob("step_*")) == ["2", "4", "6", "8"]
    assert loop.trainer.save(1.0).name == "step_000009"
