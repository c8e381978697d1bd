"""What a rank other than the first sets for itself."""

from types import SimpleNamespace

import pytest
import torch

from veriloop.pipeline.config.load import read
from veriloop.stages import rank_worker


@pytest.mark.parametrize(("device", "told"), [("cuda:1", [True]), ("cpu", [])])
def test_its_allocator_grows_its_segments_as_that_of_rank_0_does(monkeypatch, device, told):
    set_to, ran = [], []
    worker = SimpleNamespace(run=lambda: ran.append(list(set_to)))
    monkeypatch.setattr(rank_worker, "choose_device", lambda _: torch.device(device))
    monkeypatch.setattr(rank_worker, "set_expandable_segments", set_to.append)
    monkeypatch.setattr(rank_worker, "_tuner", lambda *_: worker)
    threads = torch.get_num_threads()
    try:
        rank_worker._run(SimpleNamespace(rank=1), read("tiny/sft"), "start", None)
    finally:
        torch.set_num_threads(threads)
    assert ran == [told]
