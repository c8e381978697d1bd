"""Numbers out of lines that anybody may have written."""

import json

import pytest

from veriloop.pipeline.watch.stage import parse_evaluation, parse_metrics


def test_a_row_is_its_step_and_its_finite_numbers():
    line = b'{"step": 3, "reward": 0.5, "n": 7, "bad": NaN, "far": Infinity, "t": "x", "b": true}'
    assert parse_metrics(line) == (3, {"reward": 0.5, "n": 7})


@pytest.mark.parametrize(
    "line",
    [
        None,
        b"",
        b"junk",
        b"[]",
        b'{"reward": 1}',
        b'{"step": "3"}',
        b'{"step": 3.0}',
        b'{"step": true}',
        b'{"step": -1}',
        b'{"step": 9007199254740992}',
        b"[" * 100_000,
        b'\xff{"step": 1}',
        b'{"step": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_row_is_refused(line):
    with pytest.raises(ValueError, match=r"\w"):
        parse_metrics(line)
    with pytest.raises(ValueError, match=r"\w"):
        parse_evaluation(line)


def test_numbers_that_a_browser_cannot_hold_are_left_out():
    line = json.dumps({"step": 1, "large": 10**400, "small": -(10**400)}).encode()
    assert parse_metrics(line) == (1, {})


def test_an_evaluation_is_its_figures_and_intervals():
    line = b"""{"step": 5, "pass@1": 0.5, "pass@1 95%": [0.4, 0.6], "greedy": 1.0,
               "greedy 95%": [null, 2], "other": {"deep": []}}"""
    assert parse_evaluation(line) == {
        "step": 5, "pass@1": 0.5, "pass@1 95%": [0.4, 0.6], "greedy": 1.0,
    }  # fmt: skip
    assert parse_evaluation(b'{"step": 5, "pass@1": "0.5", "greedy 95%": 3}') == {"step": 5}
