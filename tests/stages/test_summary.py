"""The table at the end of a run, against one laid out by hand."""

import json

from veriloop.stages.summary import WIDTH, stage_table, table, text_table


def stage(name, seconds, sampler, before, after):
    return {"name": name, "seconds": seconds, "sampler": sampler, "before": before, "after": after}


def shown(tmp_path, *stages, render=table):
    (tmp_path / "run.json").write_text(json.dumps({"stages": stages}))
    return render(tmp_path).splitlines()


def metrics(lines):
    """The column `metric` of a table, by the place of its title."""
    at = lines[0].index("metric")
    return [line[at:].split()[0] for line in lines[1:]]


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
        "stage  sampler  metric       seconds  before  after",
        "base   -        loss             128       -    1.2",
        "zero   vllm     pass@1             0  0.0413   0.75",
        "                greedy                     0      1",
        "                maj@4                   0.05   0.05",
        "                pass@4                 0.125  0.125",
        "                format                   0.5  0.333",
        "                mean_length             61.3   1234",
    ]


def test_a_stage_without_the_main_metrics_shows_all_it_has(tmp_path):
    before = {"accuracy": 0.5, "accuracy 95%": [0.4, 0.6], "margin": -0.25, "kind": "pairs"}
    after = {"accuracy": 0.75, "loss": 0.5}
    lines = shown(tmp_path, stage("reward_model", 1, None, before, after))
    assert metrics(lines) == ["accuracy", "loss", "margin"]
    assert [line.split()[-2:] for line in lines[1:]] == [
        ["0.5", "0.75"],
        ["-", "0.5"],
        ["-0.25", "-"],
    ]


def test_each_k_that_was_measured_has_its_row(tmp_path):
    zero = stage("zero", 1, "torch", {"pass@16": 0.5}, {"pass@16": 0.6, "maj@16": 0.25})
    lines = shown(tmp_path, zero, stage("cold_start", 1, "torch", {}, {"pass@2": 0.125}))
    assert metrics(lines) == ["maj@16", "pass@16", "pass@2"]
    assert [line.split()[-2:] for line in lines[1:]] == [
        ["-", "0.25"],
        ["0.5", "0.6"],
        ["-", "0.125"],
    ]


def test_each_of_several_sources_has_a_row(tmp_path):
    before = {"pass@1": 0.5, "pass@1/math500": 0.25, "pass@1/gsm8k": 0.75, "pass@4": 0.5}
    before |= {"pass@1/gsm8k 95%": [0.7, 0.8]}
    lines = shown(tmp_path, stage("zero", 1, "torch", before, before))
    assert metrics(lines) == ["pass@1", "pass@1/gsm8k", "pass@1/math500", "pass@4"]
    assert lines[2].split() == ["pass@1/gsm8k", "0.75", "0.75"]


def test_a_run_without_stages_is_a_header(tmp_path):
    assert len(shown(tmp_path)) == 1


def test_a_whole_run_has_its_metrics_and_the_outcome_of_its_goals(tmp_path):
    before = {"pass@1": 0.2, "greedy": 0.5, "format": 0.4, "mean_length": 16.5}
    after = {"pass@1": 0.963, "format": 0.986, "mean_length": 26.8, "language": 0.5, "general": 0}
    base = stage("base", 190.7, None, {}, {"step_accuracy": 0.8}) | {"status": "done"}
    zero = stage("zero", 271, "vllm", before, after) | {"status": "done"}
    sft = stage("cold_start", 0, None, {}, {}) | {"status": "running"}
    base["goals"] = {"step_accuracy": {"at_least": 0.7, "value": 0.8, "met": True}}
    zero["goals"] = {
        "pass@1": {"at_least": 0.97, "value": 0.963, "met": False},
        "mean_length": {"at_least": 20, "at_most": 60, "value": 26.8, "met": True},
        "format": {"gain": 0.5, "value": 0.986, "met": True},
        "pass@9": {"at_least": 0.5, "value": None, "met": False},
    }
    plain = stage("reward_model", 3, None, {}, {}) | {"status": "done", "goals": {}}
    assert shown(tmp_path, base, zero, plain, sft, render=stage_table) == [
        "stage         sampler  metric         goal             seconds  before  after",
        "base          -        step_accuracy  >= 0.7 met           191       -    0.8",
        "zero          vllm     pass@1         >= 0.97 MISSED       271     0.2  0.963",
        "                       format         gain >= 0.5 met              0.4  0.986",
        "                       mean_length    >= 20 <= 60 met             16.5   26.8",
        "                       language                                      -    0.5",
        "                       general                                       -      0",
        "                       pass@9         >= 0.5 MISSED                  -      -",
        "reward_model  -                                              3       -      -",
        "cold_start    -        running                               0       -      -",
    ]


def test_text_is_folded_and_numbers_are_whole_where_a_table_is_wide(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    rendered = text_table(["name", "first", "second"], [["[red]" + "x" * 150, "1234567", "89"]])
    assert max(map(len, rendered.splitlines())) <= WIDTH
    assert "1234567" in rendered and "89" in rendered and "\x1b" not in rendered
    assert rendered.replace("\n", "").count("x") == 150 and "…" not in rendered


def test_a_table_with_long_names_and_goals_fits_and_shows_changes_in_two_columns(tmp_path):
    before = {f"pass@1/{'long' * 8}_{n}": 0.234 for n in range(2)} | {"pass@1": 0.234}
    after = {name: 0.754 for name in before}
    long = stage("a_stage_of_a_long_name_" * 2, 12345.0, "vllm", before, after)
    long["goals"] = {"pass@1": {"at_least": 0.7512, "at_most": None, "met": True, "value": 0.754}}
    for render in (table, stage_table):
        lines = shown(tmp_path, long, render=render)
        assert max(map(len, lines)) <= WIDTH == 100
        assert not any(" > " in line for line in lines)
        assert next(line.split()[-2:] for line in lines if "0.234" in line) == ["0.234", "0.754"]
