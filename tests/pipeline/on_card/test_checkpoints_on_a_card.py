"""Checkpoints of a model on a GPU: staged, written beside training, published when whole."""

import threading
from types import SimpleNamespace

import pytest
import torch

from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model import lora
from veriloop.pipeline.model.policy import policy_weights, write_policy
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.sharded import gathered
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.runs.checkpoint_writer import CheckpointWriter


@pytest.fixture
def writer(tmp_path, staged):
    return CheckpointWriter(tmp_path, keep=2)


def keep_weights(folder, *, weights):
    torch.save(dict(weights), folder / "model.pt")


def test_training_continues_while_a_checkpoint_of_the_weights_at_that_time_is_written(card, writer):
    weight, moment = torch.ones(3).to("cuda:0"), torch.full((3,), 0.5).to("cuda:0")
    steps, go_on = torch.tensor(1.0), threading.Event()

    def slowly(folder, *, weights):
        assert go_on.wait(30)
        keep_weights(folder, weights=weights)

    state = {"optimizer": {"exp_avg": moment, "step": steps}}
    writer.begin(1, write_model=slowly, weights={"w": weight}, state=state)
    for tensor in (weight, moment, steps):  # the next optimizer step
        tensor.add_(1)
    assert checkpoint.latest(writer._directory) is None
    go_on.set()
    path = writer.finish()
    assert path == checkpoint.latest(writer._directory)
    assert torch.equal(torch.load(path / "model.pt")["w"], torch.ones(3))
    saved = checkpoint.load_state(path)["optimizer"]
    assert torch.equal(saved["exp_avg"], torch.full((3,), 0.5)) and saved["step"] == 1
    assert (path / "trainer_state").is_dir()


def test_a_failure_to_write_is_raised_by_the_next_checkpoint_and_at_the_end(card, writer):
    weights = {"w": torch.ones(3).to("cuda:0")}

    def full(folder, *, weights):
        raise OSError(28, "No space left on device", str(folder))

    def failing():
        writer.begin(1, write_model=full, weights=weights, state={})

    failing()
    with pytest.raises(OSError, match="No space left"):
        writer.begin(2, write_model=keep_weights, weights=weights, state={})
    with pytest.raises(OSError, match="No space left"), writer:
        pass
    with pytest.raises(KeyError, match="of training"), writer:
        raise KeyError("of training")
    assert checkpoint.latest(writer._directory) is None
    assert list((writer._directory / "checkpoints").iterdir()) == []


def test_leaving_waits_for_the_last_checkpoint(card, writer):
    with writer:
        for step in (1, 2, 3):
            weights = {"w": torch.full((2,), float(step)).to("cuda:0")}
            writer.begin(step, write_model=keep_weights, weights=weights, state={"step": step})
    path = checkpoint.latest(writer._directory)
    assert checkpoint.load_state(path) == {"step": 3}
    kept = {path.name for path in (writer._directory / "checkpoints").iterdir()}
    assert kept == {"step_000002", "step_000003"}


def test_on_the_cpu_nothing_is_copied_and_the_checkpoint_is_there_at_once(writer, staged):
    weight = torch.ones(2)
    seen = []
    writer.begin(
        1,
        write_model=lambda folder, *, weights: seen.append(weights["w"]),
        weights={"w": weight},
        state={"moment": torch.zeros(2)},
    )
    path = checkpoint.latest(writer._directory)
    assert seen == [weight] and seen[0] is weight and staged == []
    assert writer.finish() == path and not (path / "trainer_state").exists()


def test_what_ranks_gather_is_on_the_cpu_and_written_at_once(card, writer, staged):
    moment, steps = torch.zeros(2), torch.tensor(3.0).to("cuda:0")  # as of AdamW's fused step
    state = gathered({"optimizer": [{"state": {0: {"exp_avg": moment, "step": steps}}}]})
    held = state["optimizer"][0]["state"][0]
    assert held["step"].device.type == "cpu" and held["step"].item() == 3
    writer.begin(1, write_model=keep_weights, weights={"w": torch.ones(3)}, state=state)
    path = checkpoint.latest(writer._directory)
    assert path is not None and not (path / "trainer_state").exists() and staged == []


def test_on_the_cpu_a_failure_to_write_is_raised_at_once_and_leaving_waits_for_nothing(writer):
    def full(folder, *, weights):
        raise OSError(28, "No space left on device", str(folder))

    writer.begin(1, write_model=keep_weights, weights={"w": torch.ones(3)}, state={})
    with pytest.raises(OSError, match="No space left"), writer:
        writer.begin(2, write_model=full, weights={"w": torch.ones(3)}, state={})
    assert checkpoint.latest(writer._directory).name == "step_000001"


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_the_folder_of_the_policy_is_the_one_that_the_cpu_writes(
    card, writer, tiny_llama, tmp_path, rank
):
    tokenizer = SimpleNamespace(
        init_kwargs={}, save_pretrained=lambda folder: (folder / "tokenizer.json").write_text("{}")
    )
    files = {}
    for device in ("cpu", "cuda:0"):
        trainer = TrainerConfig.model_validate({"device": device, "lora": {"rank": rank}})
        model = prepare(tiny_llama(), trainer)
        if rank:
            with torch.no_grad():
                for name, weight in model.named_parameters():
                    if name.endswith("lora_B"):
                        weight.fill_(0.01)
        vars(model)["_stored_as"] = torch.bfloat16
        writer.begin(
            1,
            write_model=lambda folder, *, weights, model=model: write_policy(
                model, tokenizer, folder, weights=weights
            ),
            weights=policy_weights(model),
            state={"step": 1},
        )
        path = writer.finish()
        names = [p.relative_to(path).as_posix() for p in path.rglob("*.safetensors")]
        files[device] = {name: (path / name).read_bytes() for name in names}
    expected = {"model.safetensors", f"{lora.FOLDER}/{lora.WEIGHTS}" if rank else
                "masters/model.safetensors"}  # fmt: skip
    assert set(files["cpu"]) == expected and files["cuda:0"] == files["cpu"]
