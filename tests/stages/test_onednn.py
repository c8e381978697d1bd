"""The caches of oneDNN are small, so that a long process does not scatter its memory."""

import ctypes
import json
import os
import subprocess
import sys

import pytest

from veriloop.pipeline.model.fused_layers import ONEDNN_LINEAR
from veriloop.stages.onednn import CAPACITY, VARIABLES, limit_caches

# Products of many numbers of positions; prints the bytes that malloc holds for them afterwards.
WORK = """
import ctypes, json, sys
from veriloop.stages import onednn
if sys.argv[1] == "limited":
    onednn.limit_caches()
import torch
from veriloop.pipeline.model.fused_layers import linear_forward
fields = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in fields.split()]
mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Info
weight = torch.randn(96, 96)
first = linear_forward(torch.ones(1, 7, 96), weight).sum().item()
before = mallinfo().uordblks
for positions in range(8, 608):
    linear_forward(torch.ones(1, positions, 96), weight)
held = mallinfo().uordblks - before
print(json.dumps([held, first == linear_forward(torch.ones(1, 7, 96), weight).sum().item()]))
"""


def _held(way):
    """(bytes, whether a product that left the cache has the same bits) after many shapes."""
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    words = [sys.executable, "-c", WORK, way]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)


@pytest.mark.skipif(
    not (ONEDNN_LINEAR and hasattr(ctypes.CDLL(None), "mallinfo2")),
    reason="products are not oneDNN's, or malloc is not glibc's",
)
def test_products_of_many_shapes_hold_little_memory():
    (limited, same), (default, _) = _held("limited"), _held("default")
    assert same and 0 < limited < default / 3


@pytest.mark.parametrize("given", VARIABLES)
def test_a_capacity_in_the_environment_stays(monkeypatch, given):
    for variable in VARIABLES:
        monkeypatch.setenv(variable, "")  # or what is set here would stay
        monkeypatch.delenv(variable)
    monkeypatch.setenv(given, "1024")
    limit_caches()
    assert {v: os.environ[v] for v in VARIABLES} == {v: CAPACITY for v in VARIABLES} | {
        given: "1024"
    }
