"""The benchmark of pre-training in both precisions: its claims and its table."""

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("pretraining")
    sys.modules.pop("pretraining", None)


def rows(half, whole):
    figures = {"seed": 0, "loss": 0.5, "step_accuracy": 0.8, "program_accuracy": 0.9}
    return [
        {"model": model, "precision": precision, "cpu_s": seconds, **figures}
        for model in ("tiny/base_r1", "tiny/student")
        for precision, seconds in (("float32", whole), ("bfloat16", half))
    ]


@pytest.mark.parametrize(
    ("flags", "half", "failed"),
    [
        ({"avx512_bf16"}, 80.0, []),
        ({"avx512_bf16"}, 101.0, ["tiny/base_r1: bfloat16 101 CPU seconds, float32 100",
                                  "tiny/student: bfloat16 101 CPU seconds, float32 100"]),
        ({"avx2"}, 300.0, []),
    ],
)  # fmt: skip
def test_bfloat16_has_to_save_time_where_the_cpu_computes_in_it(
    script, monkeypatch, flags, half, failed
):
    monkeypatch.setattr(script, "cpu_flags", lambda: flags)
    assert script.missed(rows(half, 100.0)) == failed


def test_the_seeds_of_a_model_share_a_row_for_each_precision(script):
    _, _, first, *others = script.pretraining(rows(80.0, 100.0) * 2)
    assert (
        first == "| `tiny/base_r1` | float32 | 100, 100 | 0.500, 0.500 | 0.80, 0.80 | 0.90, 0.90 |"
    )
    assert len(others) == 3
