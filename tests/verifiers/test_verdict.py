"""A verdict in a word."""

import pytest

from veriloop.verifiers.verdict import outcome


@pytest.mark.parametrize(
    ("status", "score", "word"),
    [
        ("graded", 1.0, "right"),
        ("graded", 0.4, "partial"),
        ("graded", 0.0, "wrong"),
        ("no_answer", 0.0, "no_answer"),
        ("timeout", 0.0, "timeout"),
        ("error", None, "error"),
    ],
)
def test_outcomes_of_a_verdict(status, score, word):
    assert outcome(status, score) == word
