"""Advantages against numbers worked by hand, and against what must hold for any groups."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from pipeline.losses.advantages import group_advantages, praised_failures, zero_variance

NAN = math.nan


def advantages(rewards, groups=None, scored=None, dtype=torch.float64, **options):
    rewards = torch.tensor(rewards, dtype=dtype)
    groups = torch.tensor(groups if groups is not None else [0] * len(rewards))
    scored = torch.tensor(scored if scored is not None else [True] * len(rewards))
    return group_advantages(rewards, groups, scored, **options)


def check(got, expected, **tolerance):
    assert_close(got, torch.tensor(expected, dtype=got.dtype), **tolerance)


def test_one_right_of_four_by_the_std_over_g():
    check(advantages([1, 0, 0, 0]), [math.sqrt(3), *[-1 / math.sqrt(3)] * 3])
    check(advantages([1, 0, 0, 0]), [1.7321, *[-0.57735] * 3], atol=1e-4, rtol=0)


def test_one_right_of_four_by_the_std_over_g_minus_one():
    check(advantages([1, 0, 0, 0], correction=1), [1.5, -0.5, -0.5, -0.5])


def test_without_scaling_hard_and_easy_questions_weigh_the_same():
    check(advantages([1, 0, 0, 0], scale="none"), [0.75, -0.25, -0.25, -0.25])
    hard, easy = [1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0]
    both, groups = hard + easy, [0] * 8 + [1] * 8
    plain = advantages(both, groups, scale="none").abs()
    scaled = advantages(both, groups, scale="group").abs()
    assert scaled[0] / plain[0] > 1.5 * scaled[8] / plain[8]


@pytest.mark.parametrize("correction", [0, 1])
def test_batch_scale_divides_by_one_std_over_all_centred_rewards(correction):
    rewards, groups = [1, 0, 0, 0, 5, 3, 2, 2, 9], [0, 0, 0, 0, 1, 1, 2, 2, 3]
    centred = torch.tensor([0.75, -0.25, -0.25, -0.25, 1, -1, 0, 0, 0], dtype=torch.float64)
    expected = centred / centred.std(correction=correction)
    assert_close(advantages(rewards, groups, scale="batch", correction=correction), expected)


def test_the_defaults_are_the_papers_group_std_over_g():
    rewards, groups = [1.0, 0.0, 0.0, 2.0, 5.0, 1.0], [0, 0, 0, 1, 1, 1]
    explicit = advantages(rewards, groups, scale="group", correction=0, leave_one_out=False)
    assert torch.equal(advantages(rewards, groups), explicit)
    assert not torch.allclose(explicit, advantages(rewards, groups, scale="batch"))


def test_leave_one_out_compares_with_the_mean_of_the_others():
    check(advantages([1, 0, 0, 0], scale="none", leave_one_out=True), [1, *[-1 / 3] * 3])
    rewards = [4.0, 1.0, 9.0, 2.0, 7.0]
    others = [r - (sum(rewards[:3]) - r) / 2 for r in rewards[:3]] + [2 - 7.0, 7 - 2.0]
    check(advantages(rewards, [0, 0, 0, 1, 1], scale="none", leave_one_out=True), others)


@pytest.mark.parametrize("scale", ["group", "batch"])
def test_leave_one_out_with_a_std_is_refused_with_the_reason(scale):
    with pytest.raises(ValueError, match=rf"scale='{scale}'.*outlier.*use scale='none'"):
        advantages([1, 0], scale=scale, leave_one_out=True)


@pytest.mark.parametrize("options", [{"scale": s} for s in ("group", "batch", "none")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("same", [0.35, 0.1, 1 / 3, 0.97, -0.35, 0.0, 2.0])
@pytest.mark.parametrize("size", [2, 3, 7, 16])
def test_a_tied_group_gets_exact_zeros_even_when_its_mean_rounds(size, same, dtype, options):
    rewards, groups = [same] * size + [1.0, 0.0], [3] * size + [1, 1]
    got = advantages(rewards, groups, dtype=dtype, **options)
    assert (got[:size] == 0).all() and (got[size:] != 0).all()


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_step_of_nothing_but_ties_is_all_zeros(scale):
    assert (advantages([0.35] * 7 + [1.0] * 3, [0] * 7 + [1] * 3, scale=scale) == 0).all()


@pytest.mark.parametrize("correction", [0, 1])
@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_group_of_one_gets_zero_and_not_its_reward(scale, leave_one_out, correction):
    if leave_one_out and scale != "none":
        return
    options = {"scale": scale, "leave_one_out": leave_one_out, "correction": correction}
    assert advantages([0.7], **options).tolist() == [0.0]
    filtered = advantages([0.7, 1.0, 0.0], [0, 0, 0], [True, False, False], **options)
    assert filtered.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "options",
    [
        {"scale": "group"},
        {"scale": "group", "correction": 1},
        {"scale": "batch"},
        {"scale": "batch", "correction": 1},
        {"scale": "none"},
        {"scale": "none", "leave_one_out": True},
    ],
)
@pytest.mark.parametrize("unread", [0.0, 100.0, NAN, math.inf])
def test_a_failed_verifier_is_as_if_the_rollout_were_not_there(unread, options):
    rewards = [1.0, unread, 0.0, 0.5, 2.0, unread, 5.0]
    groups, scored = [0, 0, 0, 0, 1, 1, 1], [True, False, True, True, True, False, True]
    got = advantages(rewards, groups, scored, **options)
    without = advantages([1.0, 0.0, 0.5, 2.0, 5.0], [0, 0, 0, 1, 1], **options)
    assert torch.equal(got[torch.tensor(scored)], without)
    assert (got[~torch.tensor(scored)] == 0).all()


def test_nothing_scored_is_all_zeros():
    assert advantages([NAN, NAN], [0, 1], [False, False]).tolist() == [0.0, 0.0]
    assert group_advantages(torch.zeros(0), torch.zeros(0), torch.zeros(0) > 0).tolist() == []


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_a_scored_reward_that_is_not_finite_is_refused_by_place_and_value(bad):
    with pytest.raises(ValueError, match=rf"rewards_N\[2\] is {bad}; .*finite"):
        advantages([1.0, 0.0, bad, bad])


def test_the_type_of_the_rewards_is_kept_and_small_differences_survive_it():
    got = advantages([1000.0, 1000.0625], dtype=torch.float32)
    assert got.dtype == torch.float32
    check(got, [-1.0, 1.0])


def test_a_large_group_of_float32_rewards_is_averaged_without_losing_digits():
    generator = torch.Generator().manual_seed(0)
    rewards = 1000 + torch.rand(5000, generator=generator)
    group, scored = torch.zeros(5000, dtype=torch.int64), rewards > 0
    exact = group_advantages(rewards.double(), group, scored, scale="none").float()
    assert_close(group_advantages(rewards, group, scored, scale="none"), exact, rtol=0, atol=0)


grouped = st.lists(
    st.tuples(st.sampled_from([0.0, 0.35, 1.0, 1.35, -2.0]), st.integers(0, 4), st.booleans()),
    min_size=1,
    max_size=24,
)
compositions = st.sampled_from(
    [{}, {"scale": "batch"}, {"scale": "none"}, {"scale": "none", "leave_one_out": True}]
)


@given(grouped, compositions, st.randoms(use_true_random=False))
def test_the_order_of_the_rollouts_does_not_matter(rows, options, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    before = advantages(*zip(*rows, strict=True), **options)
    after = advantages(*zip(*(rows[i] for i in order), strict=True), **options)
    assert_close(after, before[order])


@given(grouped, compositions)
def test_every_group_sums_to_zero_and_ranks_as_its_rewards_do(rows, options):
    rewards, groups, scored = (torch.tensor(x) for x in zip(*rows, strict=True))
    got = group_advantages(rewards.double(), groups, scored, **options)
    for group in groups.unique():
        member = (groups == group) & scored
        assert abs(got[member].sum()) < 1e-9
        assert torch.equal(got[member].argsort(stable=True), rewards[member].argsort(stable=True))


@given(grouped)
def test_group_scale_has_unit_variance_and_ignores_shift_and_scale_of_the_rewards(rows):
    rewards, groups, scored = (torch.tensor(x) for x in zip(*rows, strict=True))
    got = group_advantages(rewards.double(), groups, scored)
    assert_close(group_advantages(rewards.double() * 3 - 7, groups, scored), got)
    for group in groups.unique():
        member = (groups == group) & scored
        if len(rewards[member].unique()) > 1:
            assert got[member].square().mean().item() == pytest.approx(1.0)


def test_groups_are_told_apart_by_number_and_numbers_need_not_be_dense():
    twice_the_same_prompt = advantages([1, 0, 1, 1], [70, 70, -3, -3])
    check(twice_the_same_prompt, [1.0, -1.0, 0.0, 0.0])
    merged = advantages([1, 0, 1, 1], [0, 0, 0, 0])
    assert not torch.allclose(twice_the_same_prompt, merged)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"scale": "std"}, r"scale 'std' is not one of \('group', 'batch', 'none'\)"),
        ({"correction": 2}, r"correction must be 0 .* or 1 .*, got 2"),
        ({"groups": [0]}, r"must all be \[N\], got \[\(2,\), \(1,\), \(2,\)\]"),
        ({"scored": [True]}, r"must all be \[N\], got \[\(2,\), \(2,\), \(1,\)\]"),
        ({"rewards": [[1.0], [0.0]], "groups": [[0], [0]], "scored": [[True]] * 2}, r"\[N\]"),
        ({"dtype": torch.int64}, r"floating point, got torch.int64"),
        ({"scored": [1, 1]}, r"scored_N must be torch.bool, got torch.int64"),
    ],
)
def test_what_makes_no_sense_is_refused(broken, message):
    with pytest.raises(ValueError, match=message):
        advantages(**{"rewards": [1.0, 0.0], **broken})


def test_zero_variance_tells_all_right_from_all_wrong():
    rewards = torch.tensor([0.7, 0.7, 0.0, 0.0, 0.35, 0.35, 0.7, 0.0, NAN, 0.7, NAN])
    groups = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 5])
    got = zero_variance(rewards, groups, ~rewards.isnan(), lowest=0.0, highest=0.7)
    assert (got.tied, got.at_highest, got.at_lowest) == (4 / 5, 2 / 5, 1 / 5)


def test_an_all_wrong_batch_is_not_called_all_right():
    rewards, groups = torch.zeros(6), torch.tensor([0, 0, 1, 1, 2, 2])
    got = zero_variance(rewards, groups, rewards == 0, lowest=0.0, highest=1.0)
    assert (got.tied, got.at_highest, got.at_lowest) == (1.0, 0.0, 1.0)


def test_a_mixed_group_that_touches_both_extremes_is_not_tied():
    rewards = torch.tensor([1.0, 0.0])
    got = zero_variance(
        rewards, torch.zeros(2, dtype=torch.int64), rewards >= 0, lowest=0, highest=1
    )
    assert (got.tied, got.at_highest, got.at_lowest) == (0.0, 0.0, 0.0)


def test_one_group_alone_is_the_whole_share():
    rewards, one_group = torch.ones(3), torch.zeros(3, dtype=torch.int64)
    got = zero_variance(rewards, one_group, rewards == 1, lowest=0.0, highest=1.0)
    assert (got.tied, got.at_highest, got.at_lowest) == (1.0, 1.0, 0.0)


def test_zero_variance_of_nothing_scored_is_zero():
    nothing = torch.zeros(2, dtype=torch.bool)
    got = zero_variance(torch.zeros(2), torch.zeros(2).long(), nothing, lowest=0.0, highest=1.0)
    assert (got.tied, got.at_highest, got.at_lowest) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("solved", "share"), [(0.05, 0.440), (0.01, 0.851)])
def test_sixteen_rollouts_of_a_hard_question_are_mostly_tied(solved, share):
    generator = torch.Generator().manual_seed(0)
    rewards = (torch.rand(20_000 * 16, generator=generator) < solved).float()
    groups = torch.arange(20_000).repeat_interleave(16)
    got = zero_variance(rewards, groups, rewards >= 0, lowest=0.0, highest=1.0)
    assert got.tied == pytest.approx(share, abs=0.01)
    assert got.at_lowest == pytest.approx((1 - solved) ** 16, abs=0.01) and got.at_highest < 0.01


def test_an_additive_format_bonus_praises_a_wrong_answer_and_a_gated_one_does_not():
    accuracy, well_formed = torch.zeros(4), torch.tensor([1.0, 0.0, 0.0, 0.0])
    groups, all_scored = torch.zeros(4, dtype=torch.int64), accuracy == 0
    additive = group_advantages(accuracy + well_formed, groups, all_scored)
    gated = group_advantages(accuracy * well_formed, groups, all_scored)
    check(additive, [1.7321, *[-0.57735] * 3], atol=1e-4, rtol=0)
    assert praised_failures(additive, accuracy == 1) == 0.25
    assert (gated == 0).all() and praised_failures(gated, accuracy == 1) == 0.0


def test_praise_of_right_answers_and_blame_of_wrong_ones_raise_no_alarm():
    got = torch.tensor([2.0, -1.0, 0.0, 0.5, -1.0])
    assert praised_failures(got, torch.tensor([True, False, False, False, True])) == 1 / 5
    assert praised_failures(torch.zeros(0), torch.zeros(0, dtype=torch.bool)) == 0.0
    assert praised_failures(torch.ones(1), torch.zeros(1, dtype=torch.bool)) == 1.0
