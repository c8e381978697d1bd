"""A checkpoint of ours behind vLLM's own server, asked over HTTP."""

import importlib
import shutil
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.slow
@pytest.mark.vllm
def test_vllm_serves_our_checkpoint_with_our_answers(tiny_checkpoint, tmp_path, monkeypatch):
    pytest.importorskip("vllm")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    homes, peers = (importlib.import_module(name) for name in ("peer_homes", "peers"))
    folder = shutil.copytree(tiny_checkpoint(ends=tuple(range(200, 220))), tmp_path / "made")
    importlib.import_module("peer_checkpoint").expect(folder)
    vllm = next(one for one in peers.PEERS if one.name == "vLLM")
    claims = homes.claims_of(vllm, homes.copy_of(tmp_path / "code", folder, None), {})
    assert [claim for claim in claims["claims"] if not claim["holds"]] == []
    assert len(claims["claims"]) == 4
