"""From how each test ended to the one verdict: what is ours is none, and the rest counts."""

import pytest

from veriloop.verifiers.code.outcome import (
    MAX_ANSWER,
    NO_PROGRAM,
    OUT_OF_TIME,
    Outcome,
    components,
    to_verdict,
)


def verdict(*ends, tests=None, scoring="share", answer="x"):
    outcomes = [Outcome(ended, "so it was" if ended == "broken" else "") for ended in ends]
    return to_verdict(outcomes, tests=tests or len(ends), scoring=scoring, answer=answer)


@pytest.mark.parametrize(
    ("ends", "score_of_all", "share"),
    [
        (["passed"] * 4, 1.0, 1.0),
        (["passed"] * 3 + ["wrong"], 0.0, 0.75),
        (["wrong"] * 2, 0.0, 0.0),
        (["passed", "cpu"], 0.0, 0.5),
        (["passed", "signal", "memory", "output"], 0.0, 0.25),
    ],
)
def test_all_is_all_or_nothing_and_share_is_a_share(ends, score_of_all, share):
    assert (verdict(*ends, scoring="all").score, verdict(*ends).score) == (score_of_all, share)
    assert verdict(*ends).status == verdict(*ends, scoring="all").status == "graded"


def test_tests_that_were_never_begun_have_not_passed():
    result = verdict("passed", tests=4)
    assert (result.score, result.components["all_passed"]) == (0.25, 0.0)
    assert verdict("passed", tests=4, scoring="all").score == 0.0
    assert result.detail == "1 of 4 tests passed"


def test_one_failure_of_ours_is_no_verdict_whatever_the_others_did():
    for ends in (["passed", "broken"], ["broken", "cpu"], ["wrong", "broken", "sandbox_error"]):
        result = verdict(*ends)
        assert (result.score, result.status, result.answer) == (None, "error", "x")
        assert result.detail.startswith("broken: so it was; ")
    assert verdict("cpu", "sandbox_error").detail.startswith("sandbox_error: ; 0 of 2")


def test_only_when_everything_is_late_it_is_a_timeout():
    assert frozenset({"cpu", "wall", "no_time"}) == OUT_OF_TIME
    for ends in (["cpu"], ["wall", "no_time"], ["cpu", "cpu", "wall"], ["cpu", "wall", "no_time"]):
        result = verdict(*ends, answer="y")
        assert (result.score, result.status, result.answer) == (0.0, "timeout", "y")
        assert result.detail.startswith(f"0 of {len(ends)} tests passed; ended otherwise: ")
        assert result.components["share_out_of_time"] == 1.0
    assert verdict("cpu", "wrong").status == verdict("cpu", "passed").status == "graded"
    for scoring, status in (("all", "timeout"), ("share", "graded")):
        assert verdict("passed", "wall", scoring=scoring).status == status
        assert verdict("passed", "wall", "wrong", scoring=scoring).status == "graded"
        assert verdict("passed", "cpu", "wall", scoring=scoring).status == "graded"
    assert verdict("passed", scoring="all").status == "graded"
    assert verdict(tests=3).status == "graded" and verdict(tests=3).score == 0.0


def test_the_detail_counts_every_end_once_in_the_order_of_its_coming():
    result = verdict("wrong", "passed", "cpu", "wrong", "passed", "passed")
    assert result.detail == "3 of 6 tests passed; ended otherwise: 2 wrong, 1 cpu"
    assert verdict("passed").detail == "1 of 1 tests passed"


def test_components_are_shares_of_all_tests_with_the_same_keys():
    ends = ["passed", "wrong", "wrong", "cpu", "wall", "no_time", "signal", "error", "output"]
    result = verdict(*ends, tests=20).components
    assert result == {
        "all_passed": 0.0, "share_passed": 1 / 20, "share_out_of_time": 3 / 20,
        "share_crashed": 3 / 20,
    }  # fmt: skip
    ours = verdict("broken", "sandbox_error", "passed", "error").components
    assert (ours["share_crashed"], ours["share_passed"], ours["all_passed"]) == (0.25, 0.25, 0.0)
    assert components({"passed": 2}, 2)["all_passed"] == 1.0
    assert set(NO_PROGRAM) == set(result) and not any(NO_PROGRAM.values())


def test_long_programs_are_cut_and_short_ones_are_whole():
    assert verdict("passed", answer="a" * 5_000).answer == "a" * MAX_ANSWER
    assert MAX_ANSWER == 4_000 and verdict("cpu", answer="ab" * 3_000).answer == "ab" * 2_000
    assert verdict("passed", answer="abc").answer == "abc"
