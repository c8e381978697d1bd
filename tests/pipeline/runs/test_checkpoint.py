"""A checkpoint comes back as it was saved, or says which file is not what it was."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from veriloop.pipeline.runs import checkpoint_files
from veriloop.pipeline.runs.checkpoint import (
    complete,
    latest,
    load_latest,
    load_state,
    of_step,
    save,
)
from veriloop.pipeline.runs.checkpoint_files import DamagedCheckpointError
from veriloop.pipeline.training import rng


def model(mark):
    def write(folder):
        (folder / "model.safetensors").write_bytes(mark.encode() * 50)
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer" / "vocab.txt").write_text(mark)

    return write


def put(directory, step, mark="m", keep=9):
    return save(directory, step, write_model=model(mark), state={"mark": mark}, keep=keep)


def steps(directory):
    return sorted(path.name for path in (directory / "checkpoints").iterdir())


def test_the_checkpoint_of_a_step_is_the_newest_one(tmp_path):
    assert of_step(tmp_path, 2) is None
    first = put(tmp_path, 2)
    assert of_step(tmp_path, 2) == first and of_step(tmp_path, 3) is None
    second = put(tmp_path, 3)
    assert of_step(tmp_path, 3) == second and of_step(tmp_path, 2) is None
    (second / "model.safetensors").write_bytes(b"cut")
    assert of_step(tmp_path, 3) is None


def test_the_checkpoint_that_a_stage_ends_with_is_complete(tmp_path):
    path = put(tmp_path, 10)
    put(tmp_path, 20)
    assert complete(tmp_path, 10) == path == tmp_path / "checkpoints/step_000010"
    (path / "model.safetensors").unlink()
    with pytest.raises(DamagedCheckpointError, match=r"model\.safetensors"):
        complete(tmp_path, 10)


def test_a_checkpoint_comes_back_as_it_was_saved(tmp_path):
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    state = {
        "step": 10,
        "optimizer": optimizer.state_dict(),
        "rng": rng.capture(),
        "stream": {"position": (3, 4), "names": ["a", None], "on": True, 7: 0.5},
    }
    stage = tmp_path / "run" / "stage"  # not there yet
    path = save(stage, 10, write_model=model("m"), state=state, keep=1)
    assert path == stage / "checkpoints" / "step_000010" == latest(stage)
    loaded = load_state(path)
    assert loaded["stream"] == state["stream"] and loaded["rng"]["python"] == state["rng"]["python"]
    fresh = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(2))], lr=9.0)
    fresh.load_state_dict(loaded["optimizer"])
    assert fresh.param_groups[0]["lr"] == 0.1
    [moments] = fresh.state.values()
    assert torch.equal(moments["exp_avg"], optimizer.state[weight]["exp_avg"])


def test_a_mapped_state_is_the_same_and_takes_no_memory_before_it_is_read(tmp_path):
    state = {"moments": torch.arange(2**24, dtype=torch.float32), "step": torch.tensor(3.0)}
    path = save(tmp_path, 1, write_model=model("m"), state=state, keep=1)
    script = f"""
import re, sys
from pathlib import Path
from veriloop.pipeline.runs.checkpoint import load_state

def anonymous_mib():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

def held(mapped):
    before = anonymous_mib()
    state = load_state(Path({str(path)!r}), mapped=mapped)
    moments = state["moments"]
    assert moments[-5:].tolist() == [2.0**24 - n for n in range(5, 0, -1)] and state["step"] == 3
    shard = moments[: len(moments) // 4].clone()
    return anonymous_mib() - before

print(held(True), held(False))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    mapped, read = map(float, ran.stdout.split())
    assert 16 <= mapped < 24 and read > 76  # MiB: a quarter, and with it the whole


def test_only_what_is_asked_for_as_mapped_stays_in_its_file(tmp_path, monkeypatch):
    path, load, asked = put(tmp_path, 1), torch.load, []

    def noted(*arguments, **options):
        asked.append(options["mmap"])
        return load(*arguments, **options)

    monkeypatch.setattr(torch, "load", noted)
    load_state(path)
    load_latest(tmp_path)
    load_latest(tmp_path, mapped=True)
    assert asked == [False, False, True]


@pytest.mark.parametrize("read", [latest, load_latest])
def test_reading_removes_nothing_and_writing_removes_what_a_dead_process_left(tmp_path, read):
    put(tmp_path, 10)
    left = tmp_path / "checkpoints" / ".tmp-step_000020"
    left.mkdir()
    assert read(tmp_path) is not None and left.is_dir()
    put(tmp_path, 30)
    assert steps(tmp_path) == ["step_000010", "step_000030"]


@pytest.mark.parametrize("read", [latest, load_latest])
@pytest.mark.parametrize("number", ["", "-1", f"-{os.getpid()}"], ids=["none", "first", "own"])
def test_reading_restores_a_step_that_was_being_replaced_though_its_process_id_lives_again(
    tmp_path, read, number
):
    put(tmp_path, 10)
    path = put(tmp_path, 20)
    path.rename(path.with_name(f".old-step_000020{number}"))  # earlier versions added an id
    found = read(tmp_path)
    assert (found if read is latest else found[0]) == path
    assert steps(tmp_path) == ["step_000010", "step_000020"]


def test_the_folder_itself_is_a_model_that_transformers_loads(tmp_path):
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=11,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    policy = LlamaForCausalLM(config)
    path = save(tmp_path, 3, write_model=policy.save_pretrained, state={}, keep=1)
    loaded = AutoModelForCausalLM.from_pretrained(path)
    for name, value in policy.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def test_the_manifest_names_every_file_with_its_size_and_hash(tmp_path):
    path = put(tmp_path, 10)
    told = json.loads((path / "manifest.json").read_text())
    assert told["step"] == 10
    assert set(told["files"]) == {"model.safetensors", "tokenizer/vocab.txt", "trainer_state.pt"}
    assert told["files"]["tokenizer/vocab.txt"] == {
        "size": 1,
        "sha256": "62c66a7a5dd70c3146618063c344e531e6d4b59e379808443ce962b3abd63c5a",  # of "m"
    }


def test_without_checkpoints_there_is_none(tmp_path):
    assert latest(tmp_path) is None and load_latest(tmp_path) is None
    assert os.listdir(tmp_path) == []


def test_only_the_newest_stay_by_number_and_not_by_name(tmp_path):
    for step in (5, 999_999, 1_000_000, 1_000_001):
        put(tmp_path, step, keep=2)
    assert steps(tmp_path) == ["step_1000000", "step_1000001"]
    assert latest(tmp_path).name == "step_1000001"


def test_the_one_just_written_stays_even_when_it_is_not_the_newest(tmp_path):
    for step in (10, 20, 30):
        put(tmp_path, step)
    put(tmp_path, 5, keep=1)
    assert steps(tmp_path) == ["step_000005", "step_000030"]


def test_a_damaged_checkpoint_takes_no_complete_ones_place(tmp_path):
    for step in (10, 20, 30):
        put(tmp_path, step)
    (tmp_path / "checkpoints" / "step_000020" / "manifest.json").unlink()
    put(tmp_path, 40, keep=2)
    assert steps(tmp_path) == ["step_000020", "step_000030", "step_000040"]


def test_keeping_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="keep=0: must be at least 1"):
        put(tmp_path, 1, keep=0)
    assert os.listdir(tmp_path) == []


def test_the_same_step_is_replaced(tmp_path):
    put(tmp_path, 10, "a")
    put(tmp_path, 10, "b")
    assert steps(tmp_path) == ["step_000010"] and load_state(latest(tmp_path)) == {"mark": "b"}


@pytest.mark.parametrize("name", ["trainer_state.pt", "manifest.json"])
def test_a_model_cannot_take_the_names_of_our_own_files(tmp_path, name):
    with pytest.raises(ValueError, match=f"wrote '{name}'"):
        save(tmp_path, 1, write_model=lambda f: (f / name).touch(), state={}, keep=1)
    assert steps(tmp_path) == []


@pytest.mark.parametrize(
    ("state", "where"),
    [
        ({"a": [1, {"b": {1, 2}}]}, r"state\['a'\]\[1\]\['b'\] is a builtins.set"),
        ({"rng": torch.zeros(2).numpy()}, r"state\['rng'\] is a numpy.ndarray"),
        ({"loss": torch.zeros(1).numpy()[0].astype(float)}, r"state\['loss'\] is a numpy.float64"),
        ({"path": Path("x")}, r"state\['path'\] is a pathlib.PosixPath"),
        ({"m": {b"k": 1}}, r"a key of state\['m'\] is a builtins.bytes"),
        ({"u": os.uname()}, r"state\['u'\] is a posix.uname_result"),
    ],
)
def test_a_state_that_would_not_load_is_refused_by_its_place_before_writing(tmp_path, state, where):
    with pytest.raises(ValueError, match=where):
        save(tmp_path, 1, write_model=model("m"), state=state, keep=1)
    assert os.listdir(tmp_path) == []


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def grow(path):
    path.write_bytes(path.read_bytes() + b"+")


def flip(path):
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)


def rewrite(text):
    return lambda path: path.write_text(text)


SEEN_BY_SIZE = [
    ("model.safetensors", truncate, "has 49 bytes, saved with 50"),
    ("model.safetensors", grow, "has 51 bytes, saved with 50"),
    ("trainer_state.pt", truncate, "trainer_state.pt has"),
    ("model.safetensors", Path.unlink, "model.safetensors is missing"),
    ("manifest.json", Path.unlink, "manifest.json cannot be read"),
    ("manifest.json", rewrite('{"step": 20, "fil'), "is not a valid"),
    ("manifest.json", rewrite("[]"), "is not a valid manifest"),
    ("manifest.json", rewrite('{"step": 20, "files": {"a": {}}}'), "is not a valid"),
    (
        "manifest.json",
        rewrite('{"step": 20, "files": {"a": {"size": 1, "sha256": 1.5}}}'),
        "is not a",
    ),
    (
        "manifest.json",
        rewrite('{"step": 20, "files": {"a": {"size": "1", "sha256": ""}}}'),
        "is not a",
    ),
    ("manifest.json", rewrite('{"step": 10, "files": {}}'), "is of step 10, not 20"),
]
SEEN_BY_HASH = [
    ("model.safetensors", flip, r"model.safetensors has sha256 \w+…, saved with"),
    ("tokenizer/vocab.txt", flip, "tokenizer/vocab.txt has sha256"),
    ("trainer_state.pt", flip, "trainer_state.pt has sha256"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("file", "harm", "told"), SEEN_BY_SIZE)
def test_an_incomplete_newest_one_is_reported_and_the_one_before_is_used(
    tmp_path, caplog, file, harm, told
):
    good, bad = put(tmp_path, 10, "a"), put(tmp_path, 20, "b")
    harm(bad / file)
    with caplog.at_level(logging.WARNING):
        assert latest(tmp_path) == good
    [said] = caplog.messages
    assert "step_000020 is damaged" in said and file in said and "trying the previous one" in said
    assert load_latest(tmp_path) == (good, {"mark": "a"})


@pytest.mark.parametrize(("file", "harm", "told"), SEEN_BY_HASH)
def test_a_flipped_bit_is_a_named_error_and_the_one_before_is_used(
    tmp_path, caplog, file, harm, told
):
    good, bad = put(tmp_path, 10, "a"), put(tmp_path, 20, "b")
    harm(bad / file)
    with pytest.raises(DamagedCheckpointError, match=told) as error:
        load_state(bad)
    assert "or delete step_000020 to resume from an earlier one" in str(error.value)
    with caplog.at_level(logging.WARNING):
        assert load_latest(tmp_path) == (good, {"mark": "a"})
    assert len(caplog.messages) == 1 and "step_000020 is damaged" in caplog.messages[0]


def test_of_a_verified_checkpoint_a_rank_compares_the_sizes_alone(tmp_path, monkeypatch):
    path = put(tmp_path, 20, "b")
    flip(path / "model.safetensors")
    monkeypatch.setattr(checkpoint_files, "_hash", None)  # which reads all of a file
    assert load_state(path, verified=True) == {"mark": "b"}
    truncate(path / "model.safetensors")
    with pytest.raises(DamagedCheckpointError, match="has 49 bytes, saved with 50"):
        load_state(path, verified=True)


@pytest.mark.slow
@pytest.mark.parametrize(("file", "harm", "told"), SEEN_BY_SIZE + SEEN_BY_HASH)
def test_when_all_are_damaged_nothing_starts_afresh_in_silence(tmp_path, file, harm, told):
    harm(put(tmp_path, 20) / file)
    with pytest.raises(DamagedCheckpointError, match=told):
        load_latest(tmp_path)


def test_a_state_that_is_whole_but_no_longer_loads_is_named(tmp_path, monkeypatch):
    path = put(tmp_path, 10)

    def fail(*_, **options):
        assert options["weights_only"] is True and options["map_location"] == "cpu"
        raise RuntimeError("unknown format")

    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(
        DamagedCheckpointError, match=r"trainer_state\.pt does not load: unknown format"
    ):
        load_state(path)


def test_names_that_are_no_checkpoints_are_left_alone(tmp_path):
    put(tmp_path, 10)
    for name in ("step_best", "notes", ".tmp-notes", ".old-step_x-1"):
        (tmp_path / "checkpoints" / name).mkdir()
    assert latest(tmp_path).name == "step_000010"
    put(tmp_path, 20, keep=1)
    assert steps(tmp_path) == [".old-step_x-1", ".tmp-notes", "notes", "step_000020", "step_best"]
