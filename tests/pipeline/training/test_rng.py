"""A restored generator goes on exactly where it was caught."""

import random
from contextlib import suppress

import numpy as np
import pytest
import torch

from veriloop.pipeline.training import rng


@pytest.fixture(autouse=True)
def _leave_the_generators_as_they_were():
    before = rng.capture()
    yield
    rng.restore(before)


def draws():
    return (
        [random.random() for _ in range(3)],
        random.gauss(0, 1),
        np.random.rand(3).tolist(),
        float(np.random.randn()),
        torch.rand(3).tolist(),
        float(torch.randn(())),
    )


def test_one_seed_seeds_every_generator():
    rng.seed(5)
    expected = draws()
    rng.seed(5)
    assert draws() == expected
    rng.seed(2**32 + 5)
    assert draws()[0] != expected[0]


def test_every_generator_repeats_itself_after_a_round_trip_through_a_file(tmp_path):
    random.seed(1), np.random.seed(2), torch.manual_seed(3)
    draws()  # leaves python and numpy with half a gaussian pair in hand
    torch.save(rng.capture(), tmp_path / "rng.pt")
    expected = draws()
    draws()
    rng.restore(torch.load(tmp_path / "rng.pt", weights_only=True))
    assert draws() == expected


@pytest.mark.parametrize("part", ["python", "numpy", "torch"])
def test_each_part_matters(part):
    state = rng.capture()
    expected = draws()
    later = rng.capture()
    rng.restore(state | {part: later[part]})
    changed = [a != b for a, b in zip(draws(), expected, strict=True)]
    at = {"python": 0, "numpy": 2, "torch": 4}[part]
    assert all(changed[at : at + 2]) and sum(changed) == 2


def test_capturing_draws_nothing():
    state = rng.capture()
    rng.capture()
    expected = draws()
    rng.restore(state)
    assert draws() == expected


def test_a_missing_part_is_named():
    state = rng.capture()
    del state["numpy"]
    with pytest.raises(ValueError, match=r"lacks \['numpy'\]"):
        rng.restore(state)


def test_a_gpu_state_goes_back_without_it_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    state = rng.capture()
    assert state["cuda"] is None
    expected = draws()
    rng.restore(state | {"cuda": torch.zeros(16, dtype=torch.uint8)})
    assert draws() == expected


def test_a_gpu_that_this_process_does_not_use_is_not_started_for_its_state(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: pytest.fail("it was started"))
    assert rng.capture()["cuda"] is None


def test_a_gpu_state_goes_back_to_the_gpu(monkeypatch):
    held = [torch.arange(16, dtype=torch.uint8)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: held[-1].clone())
    monkeypatch.setattr(torch.cuda, "set_rng_state", held.append)
    state = rng.capture()
    held.append(torch.zeros(16, dtype=torch.uint8))
    rng.restore(state)
    assert torch.equal(held[-1], torch.arange(16, dtype=torch.uint8))


def test_a_seeded_block_draws_the_same_and_leaves_no_trace():
    first = draws()
    with rng.seeded(7):
        inside = draws()
    before, expected = rng.capture(), draws()
    rng.restore(before)
    with suppress(KeyError), rng.seeded(7):
        assert draws() == inside
        raise KeyError
    assert draws() == expected and inside not in (first, expected)
