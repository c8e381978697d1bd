"""Advantages against numbers worked by hand, and against what must hold for any groups."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from veriloop.pipeline.losses.advantages import (
    Moments,
    RunningMean,
    batch_advantages,
    group_advantages,
    moments,
    praised_failures,
    running_advantages,
    whiten,
    zero_variance,
)

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


@pytest.mark.slow
@given(grouped, compositions, st.randoms(use_true_random=False))
def test_the_order_of_the_rollouts_does_not_matter(rows, options, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    before = advantages(*zip(*rows, strict=True), **options)
    after = advantages(*zip(*(rows[i] for i in order), strict=True), **options)
    assert_close(after, before[order])


@pytest.mark.slow
@given(grouped, compositions)
def test_every_group_sums_to_zero_and_ranks_as_its_rewards_do(rows, options):
    rewards, groups, scored = (torch.tensor(x) for x in zip(*rows, strict=True))
    got = group_advantages(rewards.double(), groups, scored, **options)
    for group in groups.unique():
        member = (groups == group) & scored
        assert abs(got[member].sum()) < 1e-9
        assert torch.equal(got[member].argsort(stable=True), rewards[member].argsort(stable=True))


@pytest.mark.slow
@given(grouped)
def test_group_scale_has_unit_variance_and_ignores_shift_and_scale_of_the_rewards(rows):
    rewards, groups, scored = (torch.tensor(x) for x in zip(*rows, strict=True))
    got = group_advantages(rewards.double(), groups, scored)
    assert_close(group_advantages(rewards.double() * 3 - 7, groups, scored), got)
    for group in groups.unique():
        member = (groups == group) & scored
        if len(rewards[member].unique()) > 1:
            assert got[member].square().mean().item() == pytest.approx(1.0)


def test_groups_are_distinguished_by_number_and_numbers_need_not_be_dense():
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


REWARDS = torch.tensor([1.0, NAN, 0.0, 0.0, 0.0], dtype=torch.float64)
SCORED = ~REWARDS.isnan()


def test_the_batch_mean_by_hand():
    check(batch_advantages(REWARDS, SCORED, normalise=False), [0.75, 0, -0.25, -0.25, -0.25])


def test_the_batch_normalised_by_either_std():
    third = 1 / math.sqrt(3)
    got = batch_advantages(REWARDS, SCORED, normalise=True)
    check(got, [math.sqrt(3), 0, -third, -third, -third])
    got = batch_advantages(REWARDS, SCORED, normalise=True, correction=1)
    check(got, [1.5, 0, -0.5, -0.5, -0.5])


@pytest.mark.parametrize("normalise", [True, False])
def test_equal_rewards_give_exact_zeros_and_the_order_does_not_matter(normalise):
    tied = torch.full((7,), 0.35)
    assert (batch_advantages(tied, tied > 0, normalise=normalise) == 0).all()
    rewards = torch.tensor([3.0, -1.0, 0.5, 2.0])
    order, every = torch.tensor([2, 0, 3, 1]), rewards > -9
    got = batch_advantages(rewards, every, normalise=normalise)
    assert_close(batch_advantages(rewards[order], every, normalise=normalise), got[order])


def test_the_running_mean_by_hand_over_three_steps():
    past = RunningMean()
    got, past = running_advantages(REWARDS, SCORED, past)
    check(got, [1.0, 0, 0, 0, 0])
    assert past == RunningMean(mean=0.25, count=4)
    got, past = running_advantages(torch.tensor([1.0, 1.0]), torch.tensor([True, True]), past)
    check(got, [0.75, 0.75])
    assert past == RunningMean(mean=0.5, count=6)
    got, past = running_advantages(torch.tensor([NAN]), torch.tensor([False]), past)
    assert got.tolist() == [0.0] and past == RunningMean(mean=0.5, count=6)


def test_a_step_never_sees_its_own_rewards_in_its_baseline():
    past = RunningMean(mean=0.25, count=100)
    alone, _ = running_advantages(torch.tensor([1.0]), torch.tensor([True]), past)
    among, _ = running_advantages(torch.tensor([1.0, 9.0, -4.0]), torch.ones(3) > 0, past)
    assert alone[0] == among[0] == 0.75


def test_the_mean_over_all_the_past_is_that_of_every_reward():
    generator = torch.Generator().manual_seed(0)
    rewards, past = torch.rand(60, generator=generator, dtype=torch.float64), RunningMean()
    for part in rewards.split([10, 25, 5, 20]):
        _, past = running_advantages(part, part >= 0, past)
    assert past.mean == pytest.approx(rewards.mean().item()) and past.count == 60


def test_the_first_reward_of_all_is_the_mean_and_nothing_scored_leaves_it_alone():
    nothing, past = running_advantages(torch.tensor([NAN]), torch.tensor([False]), RunningMean())
    assert nothing.tolist() == [0.0] and past == RunningMean(mean=0.0, count=0)
    got, past = running_advantages(torch.tensor([3.0]), torch.tensor([True]), past)
    assert got.tolist() == [3.0] and past == RunningMean(mean=3.0, count=1)


def test_large_rewards_keep_their_small_differences():
    """The baseline lies between two neighbours of float32."""
    past = RunningMean(mean=1e6 + 0.03125, count=9)
    got, _ = running_advantages(torch.tensor([1e6 + 0.0625]), torch.tensor([True]), past)
    assert got.tolist() == [0.03125]


def test_a_horizon_lets_the_past_fade():
    past, two = RunningMean(mean=0.0, count=8), torch.ones(2)
    _, past = running_advantages(two, two > 0, past, horizon=8)
    assert past == RunningMean(mean=0.25, count=8)
    _, past = running_advantages(two, two > 0, past, horizon=8)
    assert past == RunningMean(mean=0.25 + 2 * 0.75 / 8, count=8)
    _, young = running_advantages(two, two > 0, RunningMean(mean=0.0, count=2), horizon=8)
    assert young == RunningMean(mean=0.5, count=4)
    _, short = running_advantages(two, two > 0, RunningMean(mean=0.0, count=2), horizon=1)
    assert short == RunningMean(mean=1.0, count=2)


def test_the_type_of_the_rewards_is_kept():
    got, _ = running_advantages(torch.tensor([1.0]), torch.tensor([True]), RunningMean())
    assert got.dtype == torch.float32


@pytest.mark.parametrize("horizon", [0, -1.0, NAN])
def test_a_horizon_of_nothing_is_refused(horizon):
    with pytest.raises(ValueError, match=f"above 0 rollouts, or None, got {horizon}"):
        running_advantages(REWARDS, SCORED, RunningMean(), horizon=horizon)


def test_a_scored_reward_that_is_not_finite_is_refused_by_both():
    every = torch.ones(5) > 0
    with pytest.raises(ValueError, match=r"rewards_N\[1\] is nan"):
        running_advantages(REWARDS, every, RunningMean())
    with pytest.raises(ValueError, match=r"rewards_N\[1\] is nan"):
        batch_advantages(REWARDS, every, normalise=True)


def test_four_values_by_hand():
    values = torch.tensor([1.0, 0.0, 0.0, 0.0])
    over_m, over_less = moments([values]), moments([values], correction=1)
    assert over_m == Moments(count=4, mean=0.25, variance=0.1875)
    assert over_less == Moments(count=4, mean=0.25, variance=0.25)
    assert_close(whiten(values, over_m), torch.tensor([3.0, -1.0, -1.0, -1.0]) / math.sqrt(3))
    assert_close(whiten(values, over_less), torch.tensor([1.5, -0.5, -0.5, -0.5]))


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.sampled_from([0, 1]))
def test_any_split_into_micro_batches_gives_the_moments_of_the_whole(sizes, correction):
    values = torch.randn(sum(sizes) + 2, generator=torch.Generator().manual_seed(1)).double()
    parts = [values[:2].reshape(1, 2), *values[2:].split(sizes)]
    got, whole = moments(parts, correction=correction), moments([values], correction=correction)
    assert got.count == whole.count == len(values)
    assert got.mean == pytest.approx(values.mean().item())
    assert got.variance == pytest.approx(values.var(correction=correction).item())
    made = torch.cat([whiten(part, got).flatten() for part in parts])
    assert made.mean().item() == pytest.approx(0.0, abs=1e-12)
    assert made.std(correction=correction).item() == pytest.approx(1.0)


def test_a_micro_batch_alone_would_give_other_numbers():
    parts = [torch.tensor([1.0, 2.0]), torch.tensor([5.0, 6.0])]
    step = moments(parts)
    assert (whiten(parts[0], step) < 0).all() and (whiten(parts[1], step) > 0).all()
    assert_close(whiten(parts[0], moments(parts[:1])), torch.tensor([-1.0, 1.0]))


@pytest.mark.parametrize("same", [0.35, 0.1, 1 / 3, 1e6 + 0.1])
@pytest.mark.parametrize("size", [3, 7, 9])
@pytest.mark.parametrize("correction", [0, 1])
def test_equal_values_whiten_to_exact_zeros_even_when_their_mean_rounds(same, size, correction):
    values = torch.full((size,), same, dtype=torch.float64)
    step = moments([values[:2], values[2:]], correction=correction)
    assert step.variance == 0.0 and (whiten(values, step) == 0).all()


def test_one_value_or_none_has_no_variance():
    assert moments([torch.tensor([3.0])], correction=1) == Moments(count=1, mean=3.0, variance=0.0)
    assert moments([]) == moments([torch.zeros(0)]) == Moments(count=0, mean=0.0, variance=0.0)
    assert whiten(torch.tensor([3.0]), moments([torch.tensor([3.0])])).tolist() == [0.0]


def test_two_values_are_enough():
    step = moments([torch.tensor([0.0, 2.0])], correction=1)
    assert step.variance == 2.0


def test_small_differences_of_large_float32_values_survive():
    values = torch.tensor([1e6, 1e6 + 0.0625] * 500)  # neighbours: their mean is no float32
    assert_close(whiten(values, moments([values])), torch.tensor([-1.0, 1.0] * 500))
    assert whiten(values.bfloat16(), moments([values])).dtype == torch.bfloat16


def test_no_gradient_is_kept_in_the_numbers():
    values = torch.tensor([0.0, 2.0], requires_grad=True)
    step = moments([values])
    assert isinstance(step.mean, float) and isinstance(step.variance, float)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_refused_and_counted(bad):
    with pytest.raises(ValueError, match="2 of the step's 3 values are not finite"):
        moments([torch.tensor([1.0, bad]), torch.tensor([bad])])


def test_an_unknown_correction_is_refused():
    with pytest.raises(ValueError, match=r"correction must be 0 .* or 1 .*, got 2"):
        moments([torch.ones(2)], correction=2)
