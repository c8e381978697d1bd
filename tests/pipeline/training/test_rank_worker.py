"""Ranks but the first, on a GPU: they run ahead of rank 0 by no collective."""

from types import SimpleNamespace

import pytest
import torch

from veriloop.pipeline.model.sharded import gathered
from veriloop.pipeline.training import rank_worker
from veriloop.pipeline.training.rank_worker import RankWorker

GPU = torch.device("cuda", 1)


@pytest.fixture
def noted(monkeypatch):
    """Collectives that were begun, and devices that were waited for."""
    events = []
    monkeypatch.setattr(torch.cuda, "synchronize", events.append)
    return events


def test_a_rank_waits_for_each_weight_before_it_begins_the_next(noted, monkeypatch):
    def weights(model):
        for number in range(3):
            noted.append(number)
            yield f"{model}.{number}", SimpleNamespace(device=GPU)

    monkeypatch.setattr(rank_worker, "plain_weights", weights)
    RankWorker(None, "model", None).send_weights()
    assert noted == [0, GPU, 1, GPU, 2, GPU]


def test_a_rank_waits_for_each_tensor_of_a_state_that_rank_0_gathers(noted):
    class Sharded:
        def detach(self):
            return self

        def full_tensor(self):
            noted.append("gather")
            return SimpleNamespace(device=GPU)

    state = {"a": [Sharded(), 1], "b": Sharded()}
    assert gathered(state, keep=False) == {"a": [None, 1], "b": None}
    assert noted == ["gather", GPU, "gather", GPU]
