"""The least times of a GRPO step follow from its products, and are added to an older result."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHAPES = [(4, 2), (4, 2), (8, 4)]  # the last is the head
PRODUCTS = {"update 4 2": 3.0, "sample 4 2": 1.0, "update 8 4": 30.0, "sample 8 4": 10.0}
STEPS = [
    {"s": 30.0, "cpu_s": 20.0, "tokens": 1000, "update": 9.0, "sample": 6.0},
    {"s": 20.0, "cpu_s": 10.0, "tokens": 1000, "update": 12.0, "sample": 8.0},
]


@pytest.fixture
def script(monkeypatch):
    """A benchmark as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def row(name, rate, **more):
    step = {"size": "1M", "name": name, "s": 2.0, "cpu_s": 2.0, "tokens": 1000, "peak_gib": 1.0}
    return {**step, "tokens_per_s": rate, "steps": STEPS, "precision": "float32", **more}


ROWS = [row("TRL, searched, float32", 10.0), row("ours, vLLM", 20.0), row("ours, torch", 15.0)]


def test_each_prompt_counts_once_and_the_head_passes_answers_only(script):
    work = script("grpo_bounds").Work(prompts=1600.0, tokens=9000.0)
    assert (work.update(head=True), work.update(head=False)) == (9000, 9000 + 1600 - 16)
    assert (work.sampling(head=True), work.sampling(head=False)) == (8888, 8872 + 1600)


def test_the_bounds_are_those_of_the_fastest_step_in_its_cpu_seconds(script):
    bounds = script("grpo_bounds")
    found = bounds.bound("bfloat16", STEPS, SHAPES, PRODUCTS, 1e12, 160.0)
    assert (found["our_update_s"], found["our_sample_s"], found["our_step_s"]) == (6, 4, 10)
    body = 2 * (1000 + 160 - 16)
    assert found["update_s"] == body * 3.0 + 1000 * 30.0
    operations = body * 6.0 * 8 + 1000 * 6.0 * 32
    assert found["update_gflops"] == pytest.approx(operations / found["update_s"] / 1e9)
    assert found["sample_s"] == 2 * (1000 - 128 + 160) * 1.0 + (1000 - 128 + 16) * 10.0
    slow = bounds.bound("bfloat16", STEPS, SHAPES, PRODUCTS, 0.1, 160.0)
    assert slow["sample_s"] == slow["reading_s"] == pytest.approx(80 * 48 * 2 / 0.1)


def test_the_fastest_of_ours_at_each_precision_has_bounds(script):
    rows = [*ROWS, row("ours, other", 99.0) | {"precision": None}]
    del rows[-1]["precision"]
    found = script("grpo_bounds").with_bounds(rows, lambda row: {"of": row["name"]})
    assert [one.get("bound") for one in found] == [None, {"of": "ours, vLLM"}, None, None]
    assert "bound" not in script("grpo_bounds").with_bounds(rows, lambda row: None)[1]


def test_what_the_bounds_allow_is_our_lead_times_our_distance_from_them(script):
    least = {"update_s": 3.0, "sample_s": 1.0, "our_update_s": 6.0, "our_sample_s": 4.0}
    rows = [ROWS[0], ROWS[1] | {"bound": {**least, "our_step_s": 12.0}}]
    (found,) = script("paired").over_bounds(rows)
    assert (found["update_times"], found["sample_times"], found["step_times"]) == (2, 4, 3)
    assert (found["ours"], found["at_most"]) == (2, 6)
    lines = script("speed_tables").TABLES["against_trl"](rows)
    assert lines[-1] == "| 1M, float32 | 3.00 | 2.00 | 1.00 | 4.00 | 3.00 | 2.00 | 6.00 |"


def test_bounds_are_added_to_an_older_result_with_their_own_commit(
    script, tmp_path, monkeypatch, capsys
):
    against = script("against_trl")
    older = {"command": "python benchmarks/against_trl.py", "git": {"commit": "a", "dirty": False}}
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps({**older, "results": ROWS, "failed": []}))
    path = ROOT / "benchmarks/against_trl.py"
    words = ["--bounds", before, "--json", after, "--quick", "--folder", tmp_path]
    monkeypatch.setattr(sys, "argv", [str(path), *map(str, words)])
    monkeypatch.setattr(against, "model_of", lambda path, shape: path)
    monkeypatch.setattr(against, "with_trl_template", lambda path: path)
    monkeypatch.setattr(against, "measured", lambda *_: pytest.fail("no step is measured"))
    least = {"update_s": 3.0, "sample_s": 1.0, "our_update_s": 6.0, "our_sample_s": 4.0}
    monkeypatch.setattr(against, "bounds", lambda *_, anew: {**least, "our_step_s": 12.0 * anew})
    assert against.main() == 0
    told = json.loads(after.read_text())
    assert told["command"] == older["command"] and told["git"] == older["git"]
    assert told["bounds"]["command"].endswith("against_trl.py --quick --bounds before.json")
    assert {"git", "machine", "versions"} <= {*told["bounds"]}
    assert [one.get("bound") for one in told["results"]][1] == {**least, "our_step_s": 12.0}
    assert [{**one, "bound": None} for one in told["results"]] == [
        {**one, "bound": None} for one in ROWS
    ]
    assert "at_most" in capsys.readouterr().out


def test_all_linear_layers_of_a_checkpoint_are_found_and_the_head_is_the_last(script, tmp_path):
    import torch
    from transformers import Qwen2Config

    Qwen2Config(
        vocab_size=32, hidden_size=8, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=False,
    ).save_pretrained(tmp_path)  # fmt: skip
    shapes = script("bound_turns").linear_shapes(tmp_path)
    assert shapes[-1] == (32, 8) and len(shapes) == 2 * 7 + 1
    assert sorted(shapes[:7]) == [(4, 8), (4, 8), (8, 8), (8, 8), (8, 16), (16, 8), (16, 8)]
    turns = script("bound_turns")
    assert turns.fastest([lambda: None] * 2) >= 0
    found = turns._of_a_layer(4, 8, torch.float32, 2)
    assert found["update"] > found["sample"] > 0
