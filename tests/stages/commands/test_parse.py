"""Options of commands: their bounds and outputs are checked before any work."""

import pytest

from veriloop.stages.cli import main
from veriloop.stages.commands.benchmark_options import Options as BenchmarkOptions
from veriloop.stages.commands.parse import parse_options

FILE, JUDGED = "rows.jsonl", ("--workers", "--limit-s", "--memory-mb")


@pytest.mark.parametrize(
    ("words", "flag", "value"),
    [
        *((("verify", FILE), flag, "0") for flag in JUDGED),
        *((("rescore", "run", "--verifier", "number"), flag, "0") for flag in JUDGED),
        *((("serve",), flag, "0") for flag in (*JUDGED, "--slots")),
        *((("data", "check", FILE), flag, "0") for flag in (*JUDGED[:2], "--solutions")),
        *((("verify", FILE), "--limit-s", value) for value in ("-1.0", "nan", "inf")),
        *((("evaluate", "model"), flag, "-5") for flag in (
            "--max-tokens", "--max-prompt", "--problems", "--samples")),
        (("evaluate", "model", "--set", "gsm8k"), "--max-tokens", "-5"),
        (("data", "show", "gsm8k"), "--rows", "-1"),
        (("replay", "run", "--from-step", "0"), "--steps", "-1"),
    ],
    ids=str,
)  # fmt: skip
def test_a_number_out_of_its_bounds_is_refused_by_its_flag(words, flag, value, capsys):
    assert main([*words, flag, value]) == 2
    refused = capsys.readouterr().err
    assert f"{flag} {value}" in refused and "Input should be " in refused and "://" not in refused


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", "model"),
        ("evaluate", "model", "--set", "gsm8k"),
        ("data", "check", FILE),
        ("rescore", "run", "--verifier", "number"),
        ("doctor",),
        ("profile", "tiny/zero"),
        ("verifier", "check", "number"),
        ("sandbox", "check"),
    ],
    ids=str,
)
def test_an_output_that_cannot_be_written_is_refused_first(words, tmp_path, capsys):
    assert main([*words, "--json", str(tmp_path / "none/x.json")]) == 2
    assert f"--json {tmp_path}/none/x.json: {tmp_path}/none is no folder" in capsys.readouterr().err
    assert main([*words, "--json", str(tmp_path)]) == 2
    assert "is a folder, not a file" in capsys.readouterr().err


def test_a_section_of_options_is_checked_as_in_a_recipe(capsys):
    assert main(["evaluate", "model", "--sampler.cache-gib", "-1"]) == 2
    refused = capsys.readouterr().err
    assert "--sampler:\n  cache_gib: Input should be greater than 0, got -1.0" in refused


@pytest.mark.parametrize("none", ["none", "null", "None"])
def test_an_option_without_a_value_is_none(none):
    words = ["evaluate", "model", "--set", "gsm8k", "--limit", none, "--max-tokens", none]
    options = parse_options(BenchmarkOptions, words)
    assert options.limit is None and options.max_tokens is None
    with pytest.raises(SystemExit):
        parse_options(BenchmarkOptions, [*words, "--limit", "nothing"])


def test_a_reader_of_answers_that_is_mistyped_is_named_with_the_nearest(capsys):
    assert main(["data", "show", FILE, "--read", "nmber"]) == 2
    refused = capsys.readouterr().err
    assert "read='nmber' is not one of" in refused and "Did you mean 'number'?" in refused
    assert "://" not in refused
