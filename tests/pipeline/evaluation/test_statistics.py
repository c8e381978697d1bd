"""Estimators of evaluation, against enumeration and against numbers worked by hand."""

import math
from collections import Counter
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop.pipeline.evaluation.statistics import (
    Z,
    estimate,
    mean_change,
    pass_at_k,
    vote_at_k,
)


@pytest.mark.parametrize("samples", range(1, 7))
def test_pass_at_k_is_the_share_of_all_subsets_with_a_right_one(samples):
    for right in range(samples + 1):
        marks = [i < right for i in range(samples)]
        for k in range(1, samples + 1):
            subsets = list(combinations(marks, k))
            assert pass_at_k(samples, right, k) == pytest.approx(
                sum(map(any, subsets)) / len(subsets)
            )


def test_pass_at_k_by_hand():
    assert pass_at_k(4, 1, 1) == 0.25 and pass_at_k(4, 1, 2) == 0.5
    assert pass_at_k(4, 2, 2) == pytest.approx(1 - 1 / 6)
    assert pass_at_k(4, 0, 4) == 0.0 and pass_at_k(4, 3, 2) == 1.0


@pytest.mark.parametrize(("samples", "right", "k"), [(4, 1, 5), (4, 1, 0), (4, 5, 2), (4, -1, 2)])
def test_pass_at_k_of_more_than_there_is_is_refused(samples, right, k):
    with pytest.raises(ValueError, match=f"pass@{k} of {right} right among {samples} samples"):
        pass_at_k(samples, right, k)


def outcome(drawn):
    """The outcome of a vote of these samples by enumeration; None names no answer."""
    votes = Counter(answer for answer in drawn if answer is not None)
    winners = [answer for answer, count in votes.items() if count == max(votes.values())]
    return ("right" in winners) / len(winners) if winners else 0.0


@pytest.mark.slow
@given(
    right=st.integers(0, 4),
    wrong=st.lists(st.integers(0, 4), max_size=4),
    silent=st.integers(0, 2),
    data=st.data(),
)
def test_a_vote_of_k_is_the_mean_of_the_votes_of_all_subsets(right, wrong, silent, data):
    answers = ["right"] * right + [None] * silent
    answers += [str(i) for i, count in enumerate(wrong) for _ in range(count)]
    if not answers:
        return
    k = data.draw(st.integers(1, min(len(answers), 6)))
    votes = [outcome(drawn) for drawn in combinations(answers, k)]
    assert vote_at_k(right, wrong, silent, k) == pytest.approx(sum(votes) / len(votes))


def test_a_vote_by_hand():
    assert vote_at_k(2, [1], 0, 3) == 1.0 and vote_at_k(1, [2], 0, 3) == 0.0
    assert vote_at_k(2, [2, 2], 1, 7) == pytest.approx(1 / 3)  # a tie of three
    # of 3 pairs out of right, right, wrong: one is unanimous and two are ties
    assert vote_at_k(2, [1], 0, 2) == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert vote_at_k(1, [], 3, 4) == 1.0  # who says nothing has no vote
    assert vote_at_k(0, [], 4, 2) == 0.0
    assert vote_at_k(1, [1, 1], 0, 3) == pytest.approx(1 / 3)
    assert vote_at_k(2, [2, 1], 0, 5) == 0.5 and vote_at_k(0, [1], 2, 3) == 0.0


def test_a_vote_of_one_is_the_share_of_right_samples():
    assert vote_at_k(3, [4, 1], 2, 1) == pytest.approx(0.3)


def test_a_vote_of_64_with_many_ties_is_quick_and_exact():
    """Each of 64 answers once: whatever is drawn ties, and the right one is there with k / 64."""
    for k in (8, 32, 64):
        assert vote_at_k(1, [1] * 63, 0, k) == pytest.approx(1 / 64)


@pytest.mark.parametrize("case", [(1, [1], 0, 3), (1, [1], 0, 0), (-1, [1], 2, 1), (1, [-1], 2, 1)])
def test_a_vote_of_more_than_there_is_is_refused(case):
    with pytest.raises(ValueError, match="is not defined"):
        vote_at_k(*case)


def test_wilsons_interval_of_one_half_by_hand():
    """8 of 16: centre 0.5; half-width z sqrt(1/64 + z^2/1024) / (1 + z^2/16)."""
    z2 = 1.959964**2
    half = 1.959964 * math.sqrt(0.25 / 16 + z2 / (4 * 256)) / (1 + z2 / 16)
    got = estimate([1.0, 0.0] * 8)
    assert (got.value, got.n) == (0.5, 16)
    assert (got.low, got.high) == (pytest.approx(0.5 - half), pytest.approx(0.5 + half))
    assert got.low == pytest.approx(0.27999, abs=1e-4)


def test_wilsons_interval_of_a_published_example():
    """1 of 10: 0.0179 to 0.4042 (Newcombe 1998's method 3)."""
    got = estimate([1.0] + [0.0] * 9)
    assert (got.low, got.high) == (
        pytest.approx(0.01788, abs=1e-4),
        pytest.approx(0.40415, abs=1e-4),
    )


def test_two_problems_that_differ_little_count_as_more_trials():
    """Shares of 1/4 and 3/4: variance of the mean 1/16, as of 4 trials of which 2 succeed."""
    got, four = estimate([0.25, 0.75]), estimate([1.0, 0.0, 1.0, 0.0])
    assert (got.value, got.n) == (0.5, 2)
    assert (got.low, got.high) == (pytest.approx(four.low), pytest.approx(four.high))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_unanimous_problems_still_leave_room_for_doubt(value):
    got = estimate([value] * 20)
    bound = Z * Z / (20 + Z * Z)
    expected = (0.0, bound) if value == 0.0 else (1 - bound, 1.0)
    assert (got.low, got.high) == (pytest.approx(expected[0], abs=1e-9), pytest.approx(expected[1]))
    assert 0.0 <= got.low <= got.high <= 1.0


def test_equal_shares_leave_room_for_doubt_however_they_are_rounded():
    """The mean of three 0.1 is 0.1 plus rounding, which is no variance between problems."""
    for share in (0.1, 0.25):
        got = estimate([share] * 3)
        assert got.value == pytest.approx(share) and got.high - got.low > 0.3


def test_shares_are_worth_as_many_trials_as_their_spread_between_problems_tells():
    """Shares of 1/4 and 3/4: s^2 = 1/12 over 4 problems, so variance 1/48, that of 12 trials."""
    got = estimate([0.25, 0.75, 0.25, 0.75])
    same = estimate([1.0, 0.0] * 6)
    assert (got.low, got.high) == (pytest.approx(same.low), pytest.approx(same.high))
    assert got.n == 4


def test_samples_of_one_problem_are_not_counted_as_new_ones():
    """Every problem all right or all wrong: the interval is that of the problems alone."""
    assert estimate([1.0, 0.0, 0.0]) == estimate([4 / 4, 0 / 4, 0 / 4])
    once = estimate([1.0, 0.0, 0.0])
    assert once.high - once.low > 0.6


def test_the_interval_narrows_with_problems():
    widths = [e.high - e.low for e in (estimate([1.0, 0.0] * n) for n in (2, 8, 32, 128))]
    assert widths == sorted(widths, reverse=True)
    assert widths[3] == pytest.approx(2 * Z * 0.5 / math.sqrt(256 + Z * Z))


def test_a_single_problem_has_a_wide_interval_and_none_at_all_is_refused():
    one = estimate([1.0])
    assert one.low == pytest.approx(1 / (1 + Z * Z)) and one.high == pytest.approx(1.0)
    with pytest.raises(ValueError, match="at least one problem"):
        estimate([])


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    random, inside = Random(0), 0
    for _ in range(1000):
        got = estimate([float(random.random() < 0.3) for _ in range(60)])
        inside += got.low <= 0.3 <= got.high
    assert 0.93 < inside / 1000 < 0.975


def test_the_interval_of_a_change_is_that_of_agresti_and_min():
    """Of 20 pairs 7 turn right, 2 turn wrong: (b - c) / (n + 2), b and c each with a half more."""
    change = mean_change([1.0] * 7 + [-1.0] * 2 + [0.0] * 11)
    right, wrong, n = 7.5, 2.5, 22
    spread = Z * math.sqrt((right + wrong) / n - ((right - wrong) / n) ** 2) / math.sqrt(n)
    assert change.value == 0.25 and change.n == 20
    assert change.low == pytest.approx((right - wrong) / n - spread)
    assert change.high == pytest.approx((right - wrong) / n + spread)


def test_an_unchanged_policy_has_no_clear_gain():
    change = mean_change([0.0] * 900)
    assert change.value == 0 and -0.01 < change.low < 0 < change.high < 0.01


def test_bounds_stay_between_minus_one_and_one():
    change = mean_change([1.0])
    assert change.high == 1 and change.low < 0
    assert mean_change([-1.0]).low == -1
    with pytest.raises(ValueError, match="at least one problem"):
        mean_change([])


def test_the_interval_covers_the_true_change():
    """Shares of two samples, whose true mean rise is 0.1, in 95 of 100 evaluations."""
    random, covered = Random(0), 0
    for _ in range(1000):
        changes = []
        for _ in range(60):
            skill = random.random() * 0.9
            first, last = (
                sum(random.random() < p for _ in range(2)) / 2 for p in (skill, skill + 0.1)
            )
            changes.append(last - first)
        change = mean_change(changes)
        covered += change.low <= 0.1 <= change.high
    assert 930 <= covered <= 970
