"""The table at the end of a run, against one laid out by hand."""

import json

from stages.summary import stage_table, table


def stage(name, seconds, sampler, before, after):
    return {"name": name, "seconds": seconds, "sampler": sampler, "before": before, "after": after}


def shown(tmp_path, *stages):
    (tmp_path / "run.json").write_text(json.dumps({"stages": stages}))
    return table(tmp_path).splitlines()


def test_a_run_laid_out_by_hand(tmp_path):
    before = {"pass@1": 0.04125, "pass@4": 0.125, "maj@4": 0.05, "greedy": 0.0, "format": 0.5,
              "mean_length": 61.26, "pass@1 95%": [0.03, 0.05], "samples": 4}  # fmt: skip
    after = before | {"pass@1": 0.75, "greedy": 1.0, "mean_length": 1234.4, "format": 1 / 3}
    lines = shown(
        tmp_path,
        stage("base", 127.6, None, {}, {"loss": 1.2}),
        stage("zero", 0.4, "vllm", before, after),
    )
    assert lines == [
        "stage  seconds  sampler         pass@1  greedy        maj@4         pass@4       format"
        "  mean_length",
        "base       128        -              -       -            -              -            -"
        "            -",
        "zero         0     vllm  0.0413 > 0.75   0 > 1  0.05 > 0.05  0.125 > 0.125  0.5 > 0.333"
        "  61.3 > 1234",
    ]


def test_each_k_that_was_measured_has_its_columns(tmp_path):
    header, zero, other = shown(
        tmp_path,
        stage("zero", 1, "torch", {"pass@16": 0.5}, {"pass@16": 0.6, "maj@16": 0.25}),
        stage("cold_start", 1, "torch", {}, {"pass@2": 0.125}),
    )
    assert header.split()[3:] == ["pass@1", "greedy", "pass@2", "maj@16", "pass@16", "format",
                                  "mean_length"]  # fmt: skip
    assert zero.endswith("  -       -          -  - > 0.25  0.5 > 0.6       -            -")
    assert "- > 0.125" in other


def test_each_of_several_sources_has_a_column(tmp_path):
    before = {"pass@1": 0.5, "pass@1/math500": 0.25, "pass@1/gsm8k": 0.75, "pass@4": 0.5}
    before |= {"pass@1/gsm8k 95%": [0.7, 0.8]}
    header, zero = shown(tmp_path, stage("zero", 1, "torch", before, before))
    assert header.split()[3:] == [
        *("pass@1", "greedy", "pass@1/gsm8k", "pass@1/math500", "pass@4"),
        *("format", "mean_length"),
    ]
    assert "0.75 > 0.75     0.25 > 0.25  0.5 > 0.5" in zero


def test_long_names_keep_the_columns_straight(tmp_path):
    lines = shown(
        tmp_path,
        stage("rejection_sampling", 123456, "torch", {"greedy": 0.5}, {}),
        stage("zero", 1, None, {}, {}),
    )
    assert len({len(line) for line in lines}) == 1
    assert "rejection_sampling   123456    torch" in lines[1] and "0.5 > -" in lines[1]


def test_a_run_without_stages_is_a_header(tmp_path):
    assert len(shown(tmp_path)) == 1


def test_a_whole_run_has_its_figures_and_what_became_of_its_goals(tmp_path):
    before = {"pass@1": 0.2, "greedy": 0.5, "format": 0.4, "mean_length": 16.5}
    after = {"pass@1": 0.963, "format": 0.986, "mean_length": 26.8, "language": 0.5, "general": 0}
    base = stage("base", 190.7, None, {}, {"step_accuracy": 0.8}) | {"status": "done"}
    zero = stage("zero", 271, "vllm", before, after) | {"status": "done"}
    sft = stage("cold_start", 0, None, {}, {}) | {"status": "running"}
    base["goals"] = {"step_accuracy": {"at_least": 0.7, "value": 0.8, "met": True}}
    zero["goals"] = {
        "pass@1": {"at_least": 0.97, "value": 0.963, "met": False},
        "mean_length": {"at_least": 20, "at_most": 60, "value": 26.8, "met": True},
        "pass@9": {"at_least": 0.5, "value": None, "met": False},
    }
    plain = stage("reward_model", 3, None, {}, {}) | {"status": "done", "goals": {}}
    (tmp_path / "run.json").write_text(json.dumps({"stages": [base, zero, plain, sft]}))
    rows = [line.split("  ") for line in stage_table(tmp_path).splitlines()]
    assert [[cell.strip() for cell in row if cell] for row in rows] == [
        ["stage", "seconds", "accuracy", "format", "length", "language", "general", "goals"],
        ["base", "191", "-", "-", "-", "-", "-", "met: step_accuracy 0.8 >= 0.7"],
        ["zero", "271", "0.2 > 0.963", "0.4 > 0.986", "16.5 > 26.8", "- > 0.5", "- > 0",
         "MISSED: pass@1 0.963 >= 0.97, mean_length 26.8 >= 20 <= 60, pass@9 - >= 0.5"],
        ["reward_model", "3", "-", "-", "-", "-", "-", "-"],
        ["cold_start", "0", "-", "-", "-", "-", "-", "running"],
    ]  # fmt: skip
