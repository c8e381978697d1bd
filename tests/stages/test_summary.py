"""The table at the end of a run, against one laid out by hand."""

import json

from stages.summary import table


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
