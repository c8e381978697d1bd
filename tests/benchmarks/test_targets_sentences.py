"""The page of results has a sentence for each missed target."""

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sentences(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("targets").sentences


@pytest.mark.parametrize(
    ("name", "failure", "sentence"),
    [
        ("against_trl", "10M: 2.10 x TRL at its best in float32, wanted 3.5",
         "A GRPO step of a model of 10M has 2.10 times the tokens per second of TRL at its best "
         "settings in float32; the target is 3.5."),
        ("whole", "seed 2: seconds: 791.2 > 660",
         "With seed 2 the whole recipe took 791.2 s; the target is 660 s."),
        ("whole", "seed 0, busy: seconds: 1100.5 > 1020",
         "With seed 0 the whole recipe took 1100.5 s beside a busy process; the target is 1020 s."),
        ("gpu", "update of 1.5B: mfu 0.36, aim 0.4",
         "An update of a model of 1.5B reaches 0.36 of the GPU's dense bfloat16 peak; the target "
         "is 0.4."),
        ("published_trl", "0.70 x the time of TRL, wanted 0.67",
         "GRPO of SmolLM2-135M takes 0.70 times the wall time of TRL with searched settings to the "
         "same reward; the target is 0.67."),
        ("published_gains", "greedy/svamp: GRPO less further SFT -0.010, -0.050 to +0.030 (95 %)",
         "On `svamp` the greedy accuracy after GRPO should exceed that after further SFT. The "
         "difference is -0.010 (-0.050 to +0.030, 95 %)."),
        ("published_whole", "ended with 130",
         "The list of stages did not run to its end (exit code 130)."),
        ("tuning_speed", "dpo: 1.43 x TRL at its best, wanted 2.0; with its matrix products alone "
         "it would be 2.53 x",
         "A DPO step has 1.43 times the tokens per second of TRL at its best settings; the target "
         "is 2.0. Its matrix products alone would have 2.53 times."),
        ("sync", "what no sentence is known for", "what no sentence is known for"),
    ],
)  # fmt: skip
def test_a_missed_target_is_a_sentence(sentences, name, failure, sentence):
    assert sentences(name, [failure]) == [sentence]


def test_the_controls_whose_accuracy_changed_are_one_sentence(sentences):
    failed = [
        "random-0: pass@1 moved from 0.209 to 0.167, out of the noise",
        "seed-1: after 0.800 < 0.9",
        "random-0: greedy moved from 0.482 to 0.395, out of the noise",
        "shuffled_groups-2: greedy moved from 0.422 to 0.242, out of the noise",
    ]
    other, controls = sentences("zero_seeds", failed)
    assert other == "seed-1: after 0.800 < 0.9"
    assert controls.endswith(
        "for random rewards, seed 0 (pass@1 0.209 → 0.167, greedy 0.482 → 0.395); shuffled groups, "
        "seed 2 (greedy 0.422 → 0.242)."
    )


def test_every_missed_target_has_a_sentence_on_the_page(sentences):
    missed = importlib.import_module("targets").missed
    results, page = ROOT / "benchmarks/results", (ROOT / "docs/results.md").read_text()
    for path in results.rglob("*.json"):
        name = path.relative_to(results).with_suffix("").as_posix()
        failed = missed(name, json.loads(path.read_text()))
        shown = sentences(name, failed)
        assert not {*failed} & {*shown}, name
        assert all(f"- `benchmarks/{name}.py`: {sentence}\n" in page for sentence in shown), name
        assert len(shown) == len(failed) or name == "zero_seeds"


def test_a_result_is_held_against_the_bars_of_today(sentences, monkeypatch):
    missed = importlib.import_module("targets").missed
    published = json.loads((ROOT / "benchmarks/results/overlap.json").read_text())
    overlap = importlib.import_module("overlap")
    monkeypatch.setattr(overlap, "MARGIN", 1.0)
    assert missed("overlap", published) == []
    monkeypatch.setattr(overlap, "BAR", 9.0)
    (first, *_) = missed("overlap", published)
    assert first.endswith("x one core with sampling ahead, wanted 9.0")
    assert missed("no script", {"failed": ["as it was told"]}) == ["as it was told"]


def test_a_run_beside_a_busy_process_is_named_apart_from_the_others(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    tables = importlib.import_module("recipe_tables")
    published = json.loads((ROOT / "benchmarks/results/whole.json").read_text())["results"]
    result = [run for run in published if not run.get("busy_loops")]
    busy = result[0] | {"seconds": 9999.0, "peak_gib": 99.0, "busy_loops": 1}
    both = [*result, busy]
    assert tables.quiet(both) == result and tables.whole(both) == tables.whole(result)
    what, figure = tables._whole(both)
    plain = tables._whole(result)
    assert what == plain[0]
    assert figure.replace(" (9999 s beside a busy process)", "") == plain[1] != figure
