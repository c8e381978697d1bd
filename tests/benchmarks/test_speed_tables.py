"""The tables of docs/speed.md hold each figure against the right one of TRL's."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("speed_tables").TABLES


def test_rates_are_over_the_best_of_trl_at_the_same_task(tables):
    rows = [
        {"task": task, "name": name, "s": 1.0, "tokens_per_s": rate, "peak_gib": 1.0}
        for task, name, rate in [
            ("sft", "TRL", 1000.0), ("sft", "TRL, packed", 2000.0), ("sft", "ours", 5000.0),
            ("dpo", "TRL", 100.0), ("dpo", "ours", 150.0),
        ]
    ]  # fmt: skip
    lines = tables["tuning_speed"](rows)
    assert lines[4] == "| sft | ours | 1.00 | 5,000 | 2.50 | 1.00 |"
    assert lines[6] == "| dpo | ours | 1.00 | 150 | 1.50 | 1.00 |"


def test_what_products_alone_take_has_a_column_where_it_was_measured(tables):
    row = {"task": "sft", "name": "TRL", "s": 2.0, "tokens_per_s": 10.0, "peak_gib": 1.0}
    lines = tables["tuning_speed"]([row | {"products_s": 1.25}])
    assert lines[0].endswith("| GiB | its products alone, s |")
    assert lines[2] == "| sft | TRL | 2.00 | 10 | 1.00 | 1.00 | 1.25 |"


def test_gaps_of_curves_and_ways_of_two_cores_are_reported_as_measured(tables):
    runs = [{"side": "ours", "seed": 0, "rewards": [n / 40 for n in range(1, 41)]}]
    lines = tables["trl_curves"]({"runs": runs, "gaps": {"ours, all steps": [0.0125, 0.03]}})
    assert lines[2] == "| ours | 0 | 0.12 | 0.25 | 0.38 | 0.50 | 0.62 | 0.75 | 0.88 | 1.00 |"
    assert lines[-1] == "ours, all steps: less TRL's +0.013 ± 0.030 (95 %)."
    way = {"size": "1M", "name": "one core", "s": 2.0, "tokens_per_s": 1000.0, "times": 1.0}
    two = way | {"name": "two cores, in turn", "tokens_per_s": 1250.0, "times": 1.25}
    run = {"seed": 1, "ahead": 0, "pass@1": 0.5}
    told = tables["overlap"](
        {"speed": [way, two], "runs": [run], "difference": -0.01, "noise": 0.05}
    )
    assert told[2] == "| 1M | one core | 2.00 | 1,000 | 1.00 | 0.80 |"
    assert told[3] == "| 1M | two cores, in turn | 2.00 | 1,250 | 1.25 | 1.00 |"
    assert "| 1 | 0 | 0.500 |" in told
    assert told[-1] == "Ahead minus in turn: -0.010 ± 0.050 (95 %)."


def test_what_an_update_holds_is_distinguished_from_what_its_head_keeps(tables):
    row = {"vocabulary": 8192, "tokens": 2048, "answers": 16}
    row |= {"peak_mib": 500.0, "update_mib": 100.4, "head_mib": 6.0, "rest_mib": 94.4}
    lines = tables["memory"]({"vocabulary": [row], "length": [row | {"answers": 1}]})
    assert lines[2:] == [
        "| 8,192 | 2,048 | 16 | 100 | 6 | 94 |",
        "| 8,192 | 2,048 | 1 | 100 | 6 | 94 |",
    ]


def test_peaks_are_over_the_least_of_trl_for_as_many_at_once(tables):
    rows = [
        {"at_once": n, "name": name, "peak_gib": peak, "loaded_gib": 0.5, "s": 2.0}
        for n, name, peak in [
            (16, "TRL", 4.0), (16, "TRL, float32", 8.0), (16, "ours", 1.0),
            (1, "TRL", 2.0), (1, "ours", 0.75),
        ]
    ]  # fmt: skip
    lines = tables["grpo_memory"](rows)
    assert lines[4] == "| ours | 0.50 | 1.00 | 0.25 | 2.00 |"
    assert lines[6].startswith("| ours | 0.50 | 0.75 | 0.38 |")


def test_growth_has_a_row_for_each_point_and_for_each_power(tables):
    parts = {"s": 4.0, "sample": 1.0, "verify": 0.5, "update": 2.0, "sync": 0.25}
    result = {
        "rows": [{"axis": "parameters", "value": "1M", "tokens": 4000.0, **parts}],
        "powers": {"parameters": dict.fromkeys(parts, 0.5)},
    }
    lines = tables["scaling"](result)
    assert "| parameters | 1M | 4,000 | 4 | 1 | 0.5 | 2 | 0.25 |" in lines
    assert lines[-1] == "| parameters | 0.50 | 0.50 | 0.50 | 0.50 | 0.50 |"


def test_waiting_for_verdicts_is_reported_as_a_share_of_its_own_step(tables):
    row = {"size": "10M", "name": "mathematics", "s": 8.0, "verify": 0.0123, "share": 0.0015}
    (_, _, line) = tables["verify_share"]([row])
    assert line == "| 10M | mathematics | 8.00 | 0.012 | 0.15% |"


def test_a_group_is_compared_with_as_many_prompts(tables):
    seconds = {"one answer": 1.0, "a group": 2.0, "16 prompts": 14.0}
    header, _, line = tables["prefix"]([{"sampler": "torch", "seconds": seconds, "share": 1 / 7}])
    asked = "| sampler | one answer, s | a group, s | 16 prompts, s |"
    assert header == f"{asked} the group over 16 prompts |"
    assert line == "| torch | 1.00 | 2.00 | 14.00 | 0.14 |"


def test_the_time_ahead_is_over_that_in_turn_of_the_same_seed(tables):
    of = {"in turn": (0, 0), "4, corrected": (4, 3)}
    runs = [
        {"way": way, "ahead": ahead, "seed": seed, "wall": wall, "pass@1": 0.5 + seed / 10,
         "late": 0.4 + seed / 5, "oldest": oldest, "staleness": 1.5}
        for way, (ahead, oldest) in of.items()
        for seed, wall in enumerate((50.0, 20.0) if ahead else (100.0, 80.0))
    ]  # fmt: skip
    gaps = {"4, corrected": {"pass@1": [-0.01, 0.02], "late": [-0.03, 0.04]}}
    lines = tables["staleness"]({"runs": runs, "gaps": gaps})
    assert lines[2] == "| in turn | 1.00 | 0.550 |  | 0.500 |  | 0 | 1.50 |"
    ahead = "| 4, corrected | 0.38 | 0.550 | -0.010 ± 0.020 | 0.500 | -0.030 ± 0.040 | 3 | 1.50 |"
    assert lines[3] == ahead
    _, figures, _ = importlib.import_module("speed_tables").proofs(
        {"staleness": {"runs": runs, "gaps": gaps}}
    )[0]
    assert figures == "0.38 ×; -0.010 ± 0.020; 3"


def test_the_simulated_fleet_stands_beside_its_measured_run(tables):
    two = {"asks": 8, "tokens": 4000, "measured_s": 10.04, "simulated_s": 9.5}
    one = {"servers": 1, "sync_s": 0.0, "groups_s": 2.5, "sampling_s": 22.5, "driver_s": 0.0,
           "tokens": 100.0, "share": 1.0}  # fmt: skip
    many = {"servers": 1000, "sync_s": 15.0, "groups_s": 2.5, "sampling_s": 30.0,
            "driver_s": 4.25, "tokens": 100_000.0, "share": 0.914}  # fmt: skip
    result = {"two_servers": two, "turns": [one, many], "breaks": ["a", "b"]}
    lines = tables["cluster_sim"](result)
    assert lines[0] == "Two servers, 8 asks, 4,000 tokens: 10.0 s measured, 9.5 s simulated."
    assert lines[4].endswith("| 1.00 | 1.00 | 1.00 |")
    by_files, by_groups = 22.5 / 45, 25 / 32.5
    assert lines[5] == (
        f"| 1,000 | 15.0 | 2.5 | 30.0 | 4.2 | 0.91 | {by_files:.2f} | {by_groups:.2f} |"
    )
    assert lines[-1] == "These take a tenth of a step first, in this order: a; b."


def test_a_published_model_is_compared_with_the_faster_generate(tables):
    rates = {"ours": 300.0, "generate, bfloat16": 75.0, "generate, float32": 60.0}
    seconds = {
        "the first answers are graded": 5.0,
        "those of the first step are graded": 31.4,
        "the first optimizer step is done": 40.0,
        "the longest silence until then": 7.6,
    }
    result = {"tokens_per_second": rates, "seconds": seconds}
    assert "| generate, bfloat16 | 75 | 4.00 |" in tables["published_speed"](result)
    _, figures, _ = importlib.import_module("speed_tables").proofs({"published_speed": result})[0]
    assert figures == "4.0 ×; 5 s, 31 s; 8 s"


def test_a_gpu_has_a_row_for_what_was_measured_and_none_for_what_was_left_out():
    tables = importlib.import_module("speed_tables")
    update = {"model": "1.5B", "seconds": 2.0, "tokens_s": 32000.0, "length": 8192, "mfu": 0.25}
    update |= {"kinds": {"attention": 0.5}, "peak_gib": 30.0, "predicted_gib": 40.0}
    sampler = {"model": "0.5B", "graphs": True, "sequences": 256, "tokens_s": 9000.0}
    result = {
        "update:1.5B": update,
        "update:7B": {"left_out": "needs 119 GiB, there are 80"},
        "torch:graphs": sampler | {"mean_nats": 0.0125},
        "ipc": {"model": "1.5B", "gib": 2.875, "send_s": 0.05},
        "sampler:graphs": {"left_out": "vLLM is not installed"},
    }
    lines = tables.gpu(result)
    assert len(lines) == 9  # two of them are the header
    assert "| of its time: attention | 25% |" in lines
    assert "| peak memory; as predicted | 30.0 GiB; 40.0 GiB |" in lines
    assert lines[-1] == "| weights of 1.5B (2.9 GiB) to another process | 0.05 s |"
    (row,) = tables.proofs({"gpu": result})
    assert row[1:] == ("0.25, 0.75; 9,000", "gpu")


def test_the_settings_of_trl_that_were_tried_are_listed(tables):
    def row(name, rate, **more):
        step = {"size": "1M", "s": 1.0, "tokens_per_s": rate, "peak_gib": 2.0}
        return {"name": name, **step, **more}

    same = {"bf16": False, "gradient_checkpointing": False}
    trials = [
        {**same, "micro_batch": 128, "tokens_per_s": 0.0},
        {**same, "micro_batch": 16, "tokens_per_s": 10.0},
        {**same, "micro_batch": 16, "as_intel": True, "tokens_per_s": 20.0},
    ]
    searched = row("TRL, searched, float32", 20.0, precision="float32", trials=trials)
    ours = row("ours", 30.0, steps=[{"update": 0.25}, {"update": 0.75}, {"update": 0.5}])
    lines = tables["against_trl"]([ours, searched])
    assert lines[2].split(" | ")[4] == "1.50"
    assert "1M, ours: the update takes 0.5 of 1.0 s." in lines
    assert lines[-3:] == [
        "| 1M, float32 | `micro_batch: 128` | does not run |",
        "| 1M, float32 | `micro_batch: 16` | 10 |",
        "| 1M, float32 | `micro_batch: 16`, `as_intel` | 20 |",
    ]
    assert len(tables["against_trl"]([row("TRL", 1.0)])) == 3
