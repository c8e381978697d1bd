"""Tensors that are sharded: divided from a state, written by some ranks, read by others."""

import os
import pickle
import subprocess
import sys
import textwrap
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.distributed.checkpoint import _state_dict_stager

from veriloop.pipeline.runs import checkpoint, tensor_store
from veriloop.pipeline.runs.checkpoint_files import DamagedCheckpointError, write_manifest

ROOT = Path(__file__).parents[3]


class Sharded(torch.Tensor):
    """Has a mesh, as torch's DTensor has."""

    device_mesh = "a mesh"


def sharded(*values):
    return torch.tensor(values).as_subclass(Sharded)


STATE = {"done": 3, "optimizer": [{"state": {0: {"exp_avg": None}}}], "rng": (1, "b")}


def test_only_tensors_that_are_sharded_or_on_a_gpu_are_taken_out_by_the_keys_that_lead_there():
    first, second, own = sharded(1.0), sharded(2.0), torch.ones(1)
    state = {"a": OrderedDict(b=[own, {7: first}]), "c": (second, 0.5, None)}
    rest, tensors = tensor_store.divided(state)
    assert set(tensors) == {"a.b.1.7", "c.0"}
    assert tensors["a.b.1.7"].item() == 1.0 and tensors["c.0"].item() == 2.0
    assert type(rest["a"]) is OrderedDict and rest["a"]["b"][0] is own
    assert rest["c"][1:] == (0.5, None)
    whole = tensor_store.joined(rest, {"a.b.1.7": "first", "c.0": "second"})
    assert whole == {"a": OrderedDict(b=[own, {7: "first"}]), "c": ("second", 0.5, None)}


def test_a_state_without_such_tensors_stays_as_it_is():
    assert tensor_store.divided(STATE) == (STATE, {})
    assert tensor_store.joined(STATE, {}) == STATE


def test_two_tensors_of_one_name_are_a_mistake():
    with pytest.raises(AssertionError, match=r"two tensors of the state are called a\.b"):
        tensor_store.divided({"a": {"b": sharded(1.0)}, "a.b": sharded(2.0)})


def put(directory, weight):
    return checkpoint.save_divided(
        directory,
        4,
        write_model=lambda folder: (folder / "model").touch(),
        rest=tensor_store.divided({"weights": {"w": sharded(0.0)}, "step": 4})[0],
        tensors={"weights.w": weight},
        keep=1,
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_a_checkpoint_brings_them_back_bit_for_bit_in_their_place(tmp_path, dtype):
    weight = torch.randn(5, 3).mul(100).to(dtype)
    state = checkpoint.load_state(put(tmp_path, weight))
    assert state["step"] == 4 and state["weights"]["w"].dtype == dtype
    assert torch.equal(state["weights"]["w"], weight)


def test_they_are_read_into_the_place_that_is_given(tmp_path):
    asked = []

    def place(*of):
        asked.append(of)
        return mine

    mine = torch.zeros(2, 2)
    state = checkpoint.load_state(put(tmp_path, torch.ones(2, 2)), place)
    assert asked == [("weights.w", torch.Size([2, 2]), torch.float32)]
    assert state["weights"]["w"] is mine and mine.sum() == 4


def test_every_file_of_theirs_is_hashed_and_none_may_be_missing(tmp_path):
    path = put(tmp_path, torch.ones(40))
    files = [file for file in (path / "trainer_state").iterdir() if file.is_file()]
    assert len(files) == 2
    for file in files:
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(DamagedCheckpointError, match=rf"trainer_state/{file.name} has sha256"):
            checkpoint.load_state(path)
        file.unlink()
        with pytest.raises(DamagedCheckpointError, match=rf"trainer_state/{file.name} is missing"):
            checkpoint.load_state(path)
        file.write_bytes(whole)
    assert checkpoint.load_state(path)["weights"]["w"].sum() == 40


class Calls:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("call", [(os.mkdir, "made"), (torch.load, "made"), (eval, "1")])
def test_metadata_that_would_run_code_are_refused_and_do_not_run(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    path = put(tmp_path, torch.ones(4))
    (path / "trainer_state/.metadata").write_bytes(pickle.dumps(Calls(*call)))
    (path / "manifest.json").unlink()
    write_manifest(path, 4)
    with pytest.raises(DamagedCheckpointError, match=r"names [\w.]+, which DCP never does"):
        checkpoint.load_state(path)
    assert not Path("made").exists()


def test_metadata_that_another_python_has_written_are_read(tmp_path):
    """Python 3.13 names the class of a path by another module, of which only 3.13 knows."""
    path = put(tmp_path, torch.ones(4))
    file = path / "trainer_state/.metadata"
    start, (own, other) = file.read_bytes(), ("pathlib", "pathlib._local")
    if start.count(f"\x8c{chr(len(other))}{other}".encode("latin-1")):  # this is Python 3.13
        own, other = other, own
    names = [f"\x8c{chr(len(name))}{name}".encode("latin-1") for name in (own, other)]
    length = int.from_bytes(start[3:11], "little") + len(other) - len(own)  # of the only frame
    written = start[:3] + length.to_bytes(8, "little") + start[11:].replace(*names)
    assert written != start
    file.write_bytes(written)
    (path / "manifest.json").unlink()
    write_manifest(path, 4)
    assert checkpoint.load_state(path)["weights"]["w"].sum() == 4


RANK = """
    import sys
    from datetime import timedelta
    from pathlib import Path

    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor, zeros

    from veriloop.pipeline.runs import tensor_store
    from veriloop.pipeline.training.stop import ProcessEnd

    end = ProcessEnd()
    verb, folder = sys.argv[1], Path(sys.argv[2])
    dist.init_process_group("gloo", timeout=timedelta(seconds=60 if verb != "alone" else 10))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(35.0).view(7, 5)
    if verb == "write":
        state = {"weights": {"w": distribute_tensor(whole, mesh, [Shard(0)])}, "step": 1}
        rest, tensors = tensor_store.divided(state)
        assert list(tensors) == ["weights.w"] and rest["step"] == 1
        tensor_store.write(folder, tensors)
    elif verb == "alone":
        if dist.get_rank() == 0:
            tensor_store.write(folder, {"w": whole})
            assert torch.equal(tensor_store.read(folder)["w"], whole)
        dist.barrier()
    else:
        def place(name, size, dtype):
            assert (name, size) == ("weights.w", (7, 5))
            return zeros(size, dtype=dtype, device_mesh=mesh, placements=[Shard(0)])

        read = tensor_store.read(folder, place)["weights.w"]
        assert torch.equal(read.full_tensor(), whole)
        assert read.to_local().shape[0] < 7
    dist.destroy_process_group()
    end.code = 0
"""


def ranks(count, verb, folder):
    script = folder.parent / "rank.py"
    script.write_text(textwrap.dedent(RANK))
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    words += [f"--nproc-per-node={count}", str(script), verb, str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_two_ranks_write_is_read_by_three_and_by_one(tmp_path):
    folder = tmp_path / "trainer_state"
    ranks(2, "write", folder)
    assert {path.name for path in folder.iterdir()} >= {"__0_0.distcp", "__1_0.distcp"}
    ranks(3, "read", folder)
    whole = tensor_store.read(folder)["weights.w"]
    assert torch.equal(whole, torch.arange(35.0).view(7, 5))


@pytest.mark.slow
def test_one_of_two_ranks_writes_and_reads_whole_tensors_without_the_other(tmp_path):
    ranks(2, "alone", tmp_path / "trainer_state")


def test_every_copy_has_the_tensors_of_its_time_in_memory_that_is_kept():
    stage, weight = tensor_store.stager(), torch.ones(3)
    places = set()
    for turn in range(3):
        weight.fill_(turn)
        copied = stage({"weights": {"w": weight}, "state": {}})["weights"]["w"]
        assert copied.tolist() == [turn] * 3 and copied.data_ptr() != weight.data_ptr()
        places.add(copied.data_ptr())
    assert len(places) == 1


def test_copies_are_awaited_on_the_gpu_of_the_tensors_whichever_is_the_current_one(monkeypatch):
    waited = []
    copies = SimpleNamespace(stage=lambda tensors, *, non_blocking: ("staged", non_blocking))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: waited.append(device))
    monkeypatch.setattr(_state_dict_stager, "StateDictStager", lambda **_: copies)
    weight = SimpleNamespace(device=torch.device("cuda", 1))
    stage = tensor_store.stager()
    assert stage({"weights": {"w": weight, "v": weight}, "state": {}}) == ("staged", True)
    assert waited == [weight.device]
    stage({"weights": {"w": torch.ones(1)}, "state": {}})
    assert waited == [weight.device]
