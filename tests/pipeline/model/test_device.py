"""Which device a recipe means on which machine, and records that are brought there."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from veriloop.data.counts import counted
from veriloop.pipeline.cluster import rank_group
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model import device
from veriloop.pipeline.model.prepare import prepare


@pytest.fixture
def cards(monkeypatch):
    """Function: so many cards are here, of a torch built for CUDA; gives what was set."""
    chosen = []

    def there(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: f"card {i}")
        monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(device, "_own_gpu", 0)
        return chosen

    return there


@pytest.mark.parametrize(
    ("count", "asked", "meant"),
    [
        (0, "auto", "cpu"), (2, "auto", "cuda:0"), (2, "cpu", "cpu"), (1, "cuda", "cuda:0"),
        (2, "cuda:1", "cuda:1"),
    ],
)  # fmt: skip
def test_what_a_recipe_means(cards, count, asked, meant):
    set_to = cards(count)
    assert device.choose_device(asked) == torch.device(meant)
    assert set_to == ([] if meant == "cpu" else [int(meant[-1])])


@pytest.mark.parametrize("asked", ["auto", "cuda"])
def test_each_rank_prepares_its_models_for_the_gpu_of_its_number(cards, monkeypatch, asked):
    class JoinedError(Exception):
        pass

    def joining(*_, **__):
        raise JoinedError

    set_to = cards(4)
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(rank_group, "rendezvous", joining)
    with pytest.raises(JoinedError):
        rank_group.join(asked, 1.0)
    assert device.choose_device(asked) == torch.device("cuda:3")  # as `prepare` does
    assert set_to == [3, 3]


def test_a_card_that_is_not_here_is_refused_with_those_that_are(cards, monkeypatch):
    cards(1)
    with pytest.raises(RecipeError, match=r"device=cuda:1: torch sees cuda:0 \(card 0\); auto"):
        device.choose_device("cuda:1")
    cards(0)
    with pytest.raises(RecipeError, match=r"device=cuda: torch is built for CUDA 13.0 and sees no"):
        device.choose_device("cuda")
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(RecipeError, match=r"cuda: this torch \(.*\) is built without CUDA"):
        device.choose_device("cuda")


@pytest.mark.parametrize("asked", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "CPU", "mps"])
def test_other_names_are_refused_with_those_that_are_known(asked):
    with pytest.raises(
        ValueError, match=f"device='{asked}' is unknown.* Known: auto, cpu, cuda, cuda:N"
    ):
        TrainerConfig(device=asked)


def test_a_misspelled_name_is_answered_with_the_nearest_one():
    with pytest.raises(ValueError, match="Did you mean 'cpu'"):
        TrainerConfig(device="CPU")


def test_the_device_is_reported_in_words(monkeypatch):
    threads = counted(torch.get_num_threads(), "thread")
    assert device.describe(torch.device("cpu")) == f"CPU, {threads}"
    card = SimpleNamespace(name="H", total_memory=80 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    assert device.describe(torch.device("cuda", 0)) == "cuda:0 (H, 80 GiB)"


def test_bfloat16_on_a_card_without_it_is_refused(monkeypatch):
    card = SimpleNamespace(name="T4", total_memory=16 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    with pytest.raises(RecipeError, match=r"T4, 16 GiB\) has compute capability 7.5, .* 8.0"):
        device.require_bfloat16(torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    device.require_bfloat16(torch.device("cuda", 0))
    device.require_bfloat16(torch.device("cpu"))


def test_a_torch_without_the_heads_product_on_a_device_is_refused():
    """As that of processors is."""
    with pytest.raises(
        RecipeError, match=r"no product of bfloat16 .* \(mm with out_dtype\) on CPU"
    ):
        device.require_wide_product(torch.device("cpu"))


@pytest.mark.parametrize(
    ("own", "given"),
    [
        ({}, ["expandable_segments:True"]),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"},
         ["max_split_size_mb:64,expandable_segments:True"]),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments:False"}, []),
    ],
)  # fmt: skip
def test_segments_expand_unless_a_user_has_chosen(monkeypatch, own, given):
    told = []
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", told.append)
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(device, "_last_settings", [])
    device.set_expandable_segments(True)
    assert told == given
    assert device.allocator_settings() == (given or list(own.values()))[-1]


@dataclass(frozen=True)
class Held:
    there: Tensor
    here: Tensor
    name: str


def test_a_record_is_brought_whole_and_left_alone_where_it_is_there_already():
    one = Held(torch.ones(2, device="meta"), torch.ones(3), "x")
    moved = device.onto(Held(one.there, one.here.to("meta"), "x"), torch.device("meta"))
    assert {moved.there.device.type, moved.here.device.type} == {"meta"} and moved.name == "x"
    assert device.onto(moved, torch.device("meta")) is moved


def test_a_prepared_model_is_where_the_recipe_says(tiny_llama):
    model = prepare(tiny_llama(), TrainerConfig(device="cpu"))
    assert device.device_of(model) == device.CPU


def test_giving_back_touches_no_card_that_this_process_never_used(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: pytest.fail("a card was opened"))
    device.give_back_unused()


def resident_mib():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's heap is trimmed")
def test_free_pages_between_blocks_in_use_return_to_the_system():
    blocks = [bytearray(b"x" * 100_000) for _ in range(1_000)]  # too small for maps of their own
    kept = blocks[::20]
    del blocks
    before = resident_mib()
    device.trim_heap()
    assert resident_mib() < before - 50
    assert all(block[-1:] == b"x" for block in kept)


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(device.ctypes, "CDLL", lambda name: SimpleNamespace())
    device.trim_heap()
