"""Each health rule on curves that trip it and on curves that do not."""

from collections import Counter

import pytest

from veriloop.pipeline.report import rules
from veriloop.pipeline.report.checks import QUESTIONS, health
from veriloop.pipeline.report.rollout_stats import RolloutStats

NONE = RolloutStats()
FLAT, RISING = [1.0, 1.1, 0.9] * 4, [0.1 * i for i in range(12)]


def level(rule, stage, scan=NONE):
    found = rule(stage, scan)
    return None if found is None else found.level


def ramp(first, last, count=12):
    """A curve whose first third lies at `first` and whose last at `last`."""
    third = count // 3
    return [first] * third + [(first + last) / 2] * (count - 2 * third) + [last] * third


def test_a_trend_is_the_first_third_against_the_last():
    found = rules.trend([1, 3, 5, 5, 4, 6])
    assert (found.first, found.last, found.gain) == (2, 5, 3)
    assert found.error == pytest.approx(2**0.5)  # two values each: variance 1, one degree left
    assert rules.trend([1, 2, 3, 4, 5]) is None


def test_a_reward_rises_stands_still_or_falls(stage):
    assert level(rules.reward, stage(reward=RISING)) == "good"
    assert level(rules.reward, stage(reward=FLAT)) == "watch"
    assert level(rules.reward, stage(reward=RISING[::-1])) == "bad"
    assert (
        level(rules.reward, stage(reward=[2.0, 1.99] * 6)) == "good"
    )  # at its best from the start
    assert level(rules.reward, stage(reward=[1.0] * 3)) == "unknown"
    assert level(rules.reward, stage(loss=FLAT)) is None


def test_groups_without_variance_and_those_all_wrong(stage):
    def of(tied, wrong):
        return stage(
            reward=FLAT, frac_reward_zero_std=ramp(0.1, tied), frac_groups_all_wrong=ramp(0, wrong),
            frac_groups_all_right=ramp(0, tied - wrong),
        )  # fmt: skip

    assert level(rules.zero_variance, of(0.59, 0.1)) == "good"
    assert level(rules.zero_variance, of(0.61, 0.1)) == "watch"
    assert level(rules.zero_variance, of(0.81, 0.1)) == "bad"
    assert level(rules.zero_variance, of(0.61, 0.61)) == "bad"
    told = rules.zero_variance(of(0.5, 0.2), NONE)
    assert told.number == "50% (of all groups 30% all right, 20% all wrong)"


@pytest.mark.parametrize(("share", "said"), [(0.19, "good"), (0.2, "watch"), (0.4, "bad")])
def test_answers_that_are_cut_off(stage, share, said):
    curve = {"completions/clipped_ratio": ramp(0.9, share)}
    assert level(rules.truncation, stage(reward=FLAT, **curve)) == said


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [(1.0, 0.5, "good"), (1.0, 0.09, "watch"), (1.0, 0.02, "bad"), (0.01, 0.004, "bad")],
)
def test_entropy_has_a_floor(stage, first, last, said):
    assert level(rules.entropy, stage(reward=FLAT, entropy=ramp(first, last))) == said


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        (1e-7, 2e-7, "good"),
        (1e-7, 9e-6, "good"),  # under the last bit of a float nothing grows
        (1e-5, 4e-5, "watch"),
        (1e-2, 1.1e-2, "watch"),
        (1e-4, 1.1e-3, "bad"),
        (4e-2, 5.1e-2, "bad"),
    ],
)
def test_a_mismatch_that_grows_warns(stage, first, last, said):
    curve = {"sampling/sampling_logp_difference/mean": ramp(first, last)}
    assert level(rules.mismatch, stage(reward=FLAT, **curve)) == said


def test_spikes_of_the_gradient_are_counted_after_the_start(stage):
    assert level(rules.gradient, stage(grad_norm=[1.0] * 40)) == "good"
    assert level(rules.gradient, stage(grad_norm=[50.0, 9.0] + [1.0] * 38)) == "good"
    assert level(rules.gradient, stage(grad_norm=[1.0] * 39 + [5.1])) == "watch"
    assert level(rules.gradient, stage(grad_norm=[1.0] * 38 + [5.1, 7.0])) == "bad"
    assert level(rules.gradient, stage(grad_norm=[1.0] * 39 + [4.9])) == "good"
    assert level(rules.gradient, stage(reward=FLAT)) is None


def verdicts(**kinds):
    return RolloutStats(
        verdicts={"accuracy": {1: Counter(kinds)}, "format": {1: Counter(right=100)}}
    )


@pytest.mark.parametrize(("count", "said"), [(4, "good"), (5, "watch"), (20, "bad")])
def test_verifiers_that_fail(stage, count, said):
    assert level(rules.errors, stage(), verdicts(right=1000 - count, error=count)) == said


@pytest.mark.parametrize(("count", "said"), [(9, "good"), (10, "watch"), (50, "bad")])
def test_answers_that_run_out_of_time(stage, count, said):
    scan = verdicts(right=1000 - count, timeout=count)
    assert level(rules.timeouts, stage(), scan) == said
    assert rules.timeouts(stage(), scan).number.endswith("(accuracy)")
    assert rules.timeouts(stage(), NONE) is None


def test_format_that_rises_while_accuracy_falls(stage):
    def of(right, layout):
        return stage(reward=FLAT, rewards__accuracy__mean=right, rewards__format__mean=layout)

    assert level(rules.format_alone, of(ramp(0.5, 0.4), ramp(0.2, 0.9))) == "bad"
    assert level(rules.format_alone, of(ramp(0.5, 0.49), ramp(0.2, 0.9))) == "watch"
    assert level(rules.format_alone, of(ramp(0.5, 0.6), ramp(0.2, 0.9))) == "good"
    assert level(rules.format_alone, of(ramp(0.5, 0.4), ramp(0.9, 0.9))) == "good"


def test_length_that_grows_without_accuracy(stage):
    def of(length, right):
        curves = {"completions/mean_length": length, "rewards/accuracy/mean": right}
        return stage(reward=FLAT, **curves)

    assert level(rules.length_alone, of(ramp(100, 119), ramp(0.5, 0.5))) == "good"
    assert level(rules.length_alone, of(ramp(100, 121), ramp(0.5, 0.5))) == "watch"
    assert level(rules.length_alone, of(ramp(100, 151), ramp(0.5, 0.5))) == "bad"
    assert level(rules.length_alone, of(ramp(100, 151), ramp(0.5, 0.52))) == "good"


def test_languages_that_mix(stage):
    def of(share, kind="reasoning_rl"):
        return stage(after={"language": share}, kind=kind)

    assert level(rules.language, of(0.9)) == "good"
    assert level(rules.language, of(0.89)) == "watch"
    assert level(rules.language, of(0.69)) == "bad"
    assert level(rules.language, of(0.69, "zero")) == "watch"  # nobody rewards it there
    curve = {"rewards/language/mean": ramp(0.2, 0.95)}
    assert level(rules.language, stage(reward=FLAT, **curve)) == "good"
    assert level(rules.language, stage(reward=FLAT)) is None


def test_a_stage_is_better_where_it_leaves_the_interval(stage):
    def of(after):
        return stage(before={"pass@1": 0.5, "pass@1 95%": [0.45, 0.55]}, after={"pass@1": after})

    assert level(rules.evaluation, of(0.56)) == "good"
    assert level(rules.evaluation, of(0.52)) == "watch"
    assert level(rules.evaluation, of(0.44)) == "bad"
    assert (
        level(rules.evaluation, stage(before={"accuracy": 0.5}, after={"accuracy": 0.4})) == "bad"
    )
    near = stage(before={"pass@1": 0.97, "pass@1 95%": [0.95, 0.99]}, after={"pass@1": 0.97})
    assert level(rules.evaluation, near) == "good"
    assert level(rules.evaluation, stage()) is None


@pytest.mark.parametrize(
    ("key", "values", "said"),
    [
        ("problems_hash", ("a", "b"), "unknown"),
        ("temperature", (1.0, 0.2), "unknown"),
        ("problems_hash", ("a", "a"), "good"),
        ("temperature", (1.0, 1.0), "good"),
        ("temperature", (None, 0.2), "good"),  # of a record without it
    ],
)
def test_evaluations_that_asked_otherwise_are_not_compared(stage, key, values, said):
    before = {"pass@1": 0.5, "pass@1 95%": [0.45, 0.55], key: values[0]}
    told = rules.evaluation(stage(before=before, after={"pass@1": 0.9, key: values[1]}), NONE)
    assert told.level == said
    assert told.number.startswith("pass@1 0.500 → 0.900")
    differs = {"problems_hash": ", of other problems", "temperature": ", of another temperature"}
    assert told.number.endswith(differs[key]) is (said == "unknown")


def test_the_worst_stage_decides_but_for_what_is_mended_later(stage):
    good = stage(reward=RISING, after={"language": 0.95}, kind="sft")
    bad = stage(reward=RISING[::-1], after={"language": 0.5}, kind="reasoning_rl")
    named = [(bad, NONE), (good, NONE)]
    object.__setattr__(good, "name", "later")
    checks = {check.question.id: check for check in health(named)}
    assert (checks["reward"].level, checks["reward"].stage) == ("bad", "one")
    assert (checks["language"].level, checks["language"].stage) == ("good", "later")
    assert set(checks["reward"].assessments) == {"one", "later"}


def test_what_nothing_records_is_not_called_good(stage):
    checks = health([(stage(), NONE)])
    assert len(checks) == len(QUESTIONS) == 12
    assert {check.level for check in checks} == {"unknown"}
    assert {check.number for check in checks} == {"not recorded"}
