"""What counts as an unusual difference between sampler and trainer."""

import pytest
import torch

from veriloop.pipeline.sampling.gap_history import UNEQUAL_RATIO, GapHistory, rank_deviation


def gaps(seed, mean=0.005, count=64):
    generator = torch.Generator().manual_seed(seed)
    return torch.empty(count).exponential_(1 / mean, generator=generator)


@pytest.fixture
def history():
    """A history of rounding, 0.005 nats on average."""
    made = GapHistory(0.03)
    for seed in range(20):
        assert made.judge(gaps(seed), None) is None
    return made


def test_rounding_is_usual_for_thousands_of_checks(history):
    assert [history.judge(gaps(seed), 1e-4) for seed in range(100, 2100)] == [None] * 2000


def test_one_outlier_is_no_reason(history):
    outlier = gaps(50)
    outlier[7] = 0.653
    assert outlier.mean() > 2 * 0.005
    assert history.judge(outlier, 1e-4) is None


def test_differences_above_the_earlier_ones_are_reported_with_what_stale_weights_show(history):
    said = history.judge(gaps(50, mean=0.02), 0.019)
    assert said is not None
    assert "nats on average on 64 fresh tokens" in said and "in the 20 checks before" in said
    assert said.endswith("the weights before would show about 1.90e-02")


def test_a_small_increase_is_not_reported_however_certain(history):
    assert history.judge(gaps(50, mean=0.008, count=4000), None) is None


def test_the_first_checks_are_held_against_the_bound_alone():
    history = GapHistory(0.03)
    for seed in range(4):
        said = history.judge(gaps(seed, mean=0.1), None)
        assert said is not None and said.endswith("3.00e-02 are usual")
    assert history.judge(gaps(9, mean=0.1), None) is None


def test_a_first_check_at_the_bound_is_usual():
    at, above = torch.full((8,), 2.0**-5), torch.full((8,), 2.0**-5 + 2.0**-10)
    assert GapHistory(2.0**-5).judge(at, None) is None
    assert GapHistory(2.0**-5).judge(above, None) is not None


def test_checks_of_long_ago_are_forgotten(history):
    for seed in range(100, 200):
        history.judge(gaps(seed), None)
    assert "in the 64 checks before" in history.judge(gaps(50, mean=0.05), None)


@pytest.mark.parametrize(
    ("count", "factor", "reported"),
    [(12, 5.0, False), (13, 5.0, False), (14, 5.0, True), (99, 2.0, False), (99, 2.5, True)],
)
def test_six_deviations_and_twice_the_earlier_mean_are_still_usual(count, factor, reported):
    """Of 168 earlier tokens that are all alike, 13 larger ones differ by 6 deviations exactly."""
    history, alike = GapHistory(2.0**-7), torch.full((42,), 2.0**-7)
    for _ in range(4):
        assert history.judge(alike, None) is None
    said = history.judge(torch.full((count,), factor * 2.0**-7), None)
    assert (said is not None) is reported


def test_the_statistic_counts_pairs_and_halves_of_ties():
    new, earlier = torch.tensor([2.0, 3.0]), torch.tensor([1.0, 2.0, 4.0])
    # above: 2 > 1, 3 > 1, 3 > 2, and 2 = 2 by half: 3.5 of 6; expected 3, variance 6 * 6 / 12
    assert rank_deviation(new, earlier) == pytest.approx(0.5 / 3**0.5)
    assert rank_deviation(earlier, new) == pytest.approx(-0.5 / 3**0.5)


def at_temperature(ratio, noise, count=64, seed=0, rounding=0.0, spread=2.0):
    """(sampler minus trainer, slope) of tokens of random distributions, by their definitions.
    `rounding` disturbs the sampler's logits, so also what it draws; `noise` what it reports."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(count, 50, generator=generator)
    rounded = logits + rounding * torch.randn(count, 50, generator=generator)
    trained, sampled = logits.log_softmax(-1), (rounded * ratio).log_softmax(-1)
    token = torch.multinomial(sampled.exp(), 1, generator=generator)
    entropy = -(trained.exp() * trained).sum(-1)
    trained, sampled = (x.gather(1, token).squeeze(1) for x in (trained, sampled))
    reported = sampled + noise * torch.randn(count, generator=generator)
    return reported - trained, trained + entropy


@pytest.mark.parametrize("ratio", [1 / 0.9, 1 / 1.1, 1.15, 0.87])
def test_another_temperature_is_measured_through_rounding_and_an_outlier(ratio):
    excess, slope = at_temperature(ratio, noise=0.01)
    excess[3] = 0.653
    assert GapHistory(0.03).temperature_ratio(excess, slope) == pytest.approx(ratio, abs=0.02)


@pytest.mark.slow
def test_the_same_temperature_is_never_suspected():
    history = GapHistory(0.03)
    for seed in range(500):
        assert history.temperature_ratio(*at_temperature(1.0, noise=0.03, seed=seed)) is None


@pytest.mark.parametrize("rounding", [0.3, 0.6])
@pytest.mark.parametrize("spread", [2.0, 6.0, 12.0])
def test_tokens_that_rounding_lets_the_sampler_draw_are_not_another_temperature(rounding, spread):
    history = GapHistory(0.03)
    for seed in range(64):
        drawn = at_temperature(1.0, noise=0.0, seed=seed, rounding=rounding, spread=spread)
        assert history.temperature_ratio(*drawn) is None


def tokens(slope, ratio, count):
    """(sampler minus trainer, slope) of tokens that all tell the same."""
    return torch.full((count,), slope * ratio), torch.full((count,), slope)


def both(*groups):
    return [torch.cat(parts) for parts in zip(*groups, strict=True)]


@pytest.mark.parametrize(("count", "relative"), [(3, None), (4, 0.8)])
def test_rare_tokens_are_not_believed_without_a_few_likely_ones(count, relative):
    given = both(tokens(-2.0, -0.2, 60), tokens(1.0, -0.2, count))
    assert GapHistory(0.03).temperature_ratio(*given) == (relative and pytest.approx(relative))


def test_rare_tokens_that_hardly_agree_with_likely_ones_are_not_another_temperature():
    given = both(tokens(-2.0, -0.03, 60), tokens(1.0, -0.2, 100))
    assert GapHistory(0.03).temperature_ratio(*given) is None


def test_tokens_that_rounding_moves_more_than_a_temperature_would_do_not_count():
    given = both(tokens(-2.0, -0.2, 20), tokens(1.0, -0.2, 20), tokens(0.1, 3.0, 200))
    assert GapHistory(0.03).temperature_ratio(*given) == pytest.approx(0.8)


def test_a_slope_of_a_half_is_enough():
    given = both(tokens(-0.5, -0.2, 20), tokens(0.5, -0.2, 20))
    assert GapHistory(0.03).temperature_ratio(*given) == pytest.approx(0.8)


def test_tokens_of_long_ago_are_forgotten():
    history = GapHistory(0.03)
    assert history.temperature_ratio(*both(tokens(-2.0, 0.0, 400), tokens(1.0, 0.0, 400))) is None
    given = both(tokens(-2.0, -0.2, 128), tokens(1.0, -0.2, 128))
    assert history.temperature_ratio(*given) == pytest.approx(0.8)


def test_of_each_side_the_last_128_tokens_count():
    history = GapHistory(0.03)
    assert history.temperature_ratio(*both(tokens(-2.0, 0.0, 129), tokens(1.0, 0.0, 129))) is None
    given = both(tokens(-2.0, -0.2, 64), tokens(1.0, -0.2, 64))
    assert history.temperature_ratio(*given) == pytest.approx(0.8)


@pytest.mark.parametrize(("count", "relative"), [(7, None), (8, 0.8)])
def test_sixteen_tokens_that_all_agree_are_certain(count, relative):
    given = both(tokens(-2.0, -0.2, count), tokens(1.0, -0.2, count))
    assert GapHistory(0.03).temperature_ratio(*given) == (relative and pytest.approx(relative))


@pytest.mark.parametrize(("ratio", "found"), [(0.15, None), (0.25, 1.25)])
def test_where_the_sampler_alone_rounds_a_fifth_is_the_least_that_is_believed(ratio, found):
    given = both(tokens(-2.0, ratio, 60), tokens(1.0, ratio, 60))
    told = GapHistory(0.03).temperature_ratio(*given, UNEQUAL_RATIO)
    assert told == (found and pytest.approx(found))


def test_what_is_at_the_least_and_half_of_it_on_one_side_is_believed():
    given = both(tokens(-2.0, 0.125, 60), tokens(1.0, 0.25, 100))
    assert GapHistory(0.03).temperature_ratio(*given, 0.25) == 1.25


def test_another_temperature_is_measured_through_the_rounding_of_what_is_drawn():
    history, ratio = GapHistory(0.03), None
    for seed in range(8):
        drawn = at_temperature(1 / 1.2, noise=0.0, seed=seed, rounding=0.1)
        ratio = ratio or history.temperature_ratio(*drawn)
    assert ratio == pytest.approx(1 / 1.2, abs=0.03)


@pytest.mark.parametrize(("slope", "ratio"), [(0.15, 0.2), (2.0, 0.05)])
def test_rounding_that_a_context_repeats_at_every_check_is_not_another_temperature(slope, ratio):
    history, slopes = GapHistory(0.03), torch.full((8,), slope)
    said = [history.temperature_ratio(ratio * slopes, slopes) for _ in range(64)]
    assert said == [None] * 64


def test_few_tokens_are_not_certain_and_are_kept_for_the_next_check():
    history = GapHistory(0.03)
    excess, slope = at_temperature(1 / 0.9, noise=0.001, count=36)
    said = [history.temperature_ratio(excess[i : i + 9], slope[i : i + 9]) for i in (0, 9, 18, 27)]
    assert said[0] is None and said[-1] is not None


def test_tokens_that_do_not_depend_on_the_temperature_say_nothing():
    still = torch.zeros(64)
    assert GapHistory(0.03).temperature_ratio(still + 0.1, still) is None
