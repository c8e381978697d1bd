"""The numbers of a step, each worked by hand."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from veriloop.data.problem import Problem
from veriloop.pipeline.rl import metrics
from veriloop.pipeline.sampling.sync import SyncReport
from veriloop.pipeline.types import Update
from veriloop.verifiers.verdict import Verdict

FAILED = Verdict(score=None, status="error")


def verdicts(accuracy, layout):
    found = {"accuracy": accuracy, "format": layout}
    return {k: FAILED if v is None else Verdict(score=v) for k, v in found.items()}


@pytest.fixture
def step(graded):
    """Two groups: one with everything in it, one all right; and a rollout nobody could judge."""
    rows = [
        ("a", (1, 2, 0), "stop", 1.0, 1.0, 2.0),
        ("a", (1, 2, 3, 4, 5), "length", 0.0, 0.0, 0.0),
        ("a", (0,), "stop", 0.0, 1.0, 1.0),
        ("a", (3, 0), "stop", None, 1.0, None),
        ("b", (1, 2, 3, 4, 5), "length", 1.0, 1.0, 2.0),
        ("b", (7, 0), "stop", 1.0, 1.0, 2.0),
    ]
    return [
        graded((1, 5, 6), ids, finish=finish, group=group, reward=r, verdicts=verdicts(acc, layout))
        for group, ids, finish, acc, layout, r in rows
    ]


def update_of(**changes):
    values = dict.fromkeys(Update.__slots__, 0.0)
    values |= {"tokens": 10, "scored": 10, "dropped": (), "ptx_loss": None}
    return Update(**values | changes)


def test_rewards_leave_out_what_nobody_could_judge(step):
    got = metrics.of_rollouts(step, torch.zeros(6))
    assert got["reward"] == pytest.approx((2 + 0 + 1 + 2 + 2) / 5)
    squares = [(r - 1.4) ** 2 for r in (2, 0, 1, 2, 2)]
    assert got["reward_std"] == pytest.approx(math.sqrt(sum(squares) / 5))
    assert got["unscored"] == 1.0
    lost, known = Verdict(score=None, status="error"), Verdict(score=1.0)
    dropped = [{"accuracy": lost, "format": known}, {"accuracy": known}, {"format": lost}]
    assert metrics.of_rollouts(step, torch.zeros(6), dropped) == {**got, "unscored": 3.0}


def test_lengths_count_every_rollout_cut_ones_too(step):
    got = metrics.of_rollouts(step, torch.zeros(6))
    assert got["completions/mean_length"] == pytest.approx((3 + 5 + 1 + 2 + 5 + 2) / 6)
    assert (got["completions/min_length"], got["completions/max_length"]) == (1.0, 5.0)
    assert got["completions/mean_terminated_length"] == pytest.approx((3 + 1 + 2 + 2) / 4)
    assert got["completions/clipped_ratio"] == pytest.approx(2 / 6)
    assert got["num_tokens"] == 6 * 3 + 18


def test_each_component_has_its_own_mean_over_what_it_judged(step):
    got = metrics.of_rollouts(step, torch.zeros(6))
    assert got["rewards/accuracy/mean"] == pytest.approx(3 / 5)
    assert got["rewards/accuracy/std"] == pytest.approx(math.sqrt(0.6 * 0.4))
    assert got["rewards/format/mean"] == pytest.approx(5 / 6)
    assert got["rewards/format/std"] == pytest.approx(math.sqrt(5 / 36))


def test_reflection_is_read_off_the_responses(graded):
    texts = ("Then 9. ", "Then 9. Check: 9+1=10 wrong. Wait, 8. ")
    one = graded()
    step = [replace(one, rollout=replace(one.rollout, response=text)) for text in texts]
    got = metrics.of_rollouts(step, torch.zeros(2))
    found = [got[f"reflection/{name}"] for name in ("verify", "correct", "words")]
    assert found == [0.5, 0.5, 1.5]


def test_groups_without_signal_are_distinguished_from_each_other(step, graded):
    got = metrics.of_rollouts(step, torch.zeros(6))
    shares = ("frac_reward_zero_std", "frac_groups_all_right", "frac_groups_all_wrong")
    assert [got[name] for name in shares] == [0.5, 0.5, 0.0]
    wrong = [graded(group=g, reward=0.0, verdicts=verdicts(0.0, 0.0)) for g in "cdcd"]
    got = metrics.of_rollouts([*step, *wrong], torch.zeros(10))
    assert [got[name] for name in shares] == [0.75, 0.25, 0.5]
    half = [graded(group="e", reward=1.0, verdicts=verdicts(0.0, 1.0)) for _ in range(2)]
    got = metrics.of_rollouts(half, torch.zeros(2))
    assert [got[name] for name in shares] == [1.0, 0.0, 1.0]
    tags = [graded(group="f", reward=r, verdicts=verdicts(1.0, r - 1)) for r in (1.0, 2.0)]
    lost = [graded(group="f", reward=None, verdicts=verdicts(None, 1.0))]
    got = metrics.of_rollouts(tags + lost, torch.zeros(3))
    assert [got[name] for name in shares] == [0.0, 1.0, 0.0]


def test_praised_failures_are_wrong_answers_with_a_positive_advantage(step):
    praised = torch.tensor([1.0, -1.0, 0.5, 0.7, 0.0, 0.0])
    got = metrics.of_rollouts(step, praised)
    assert got["frac_praised_failures"] == pytest.approx(2 / 6)


def test_a_step_that_nobody_could_judge_has_numbers_all_the_same(graded):
    lost = [graded(reward=None, finish="length", verdicts=verdicts(None, None)) for _ in range(2)]
    got = metrics.of_rollouts(lost, torch.zeros(2))
    names = ("reward", "reward_std", "rewards/accuracy/mean", "rewards/format/std")
    assert [got[n] for n in names] == [0.0] * 4
    assert got["unscored"] == 2.0 and got["completions/mean_terminated_length"] == 0.0
    assert got["frac_reward_zero_std"] == 0.0 and got["completions/clipped_ratio"] == 1.0


def test_updates_are_averaged_over_the_steps_of_a_rollout():
    first = update_of(
        loss=1.0, kl=0.2, entropy=3.0, clipped_low=0.1, clipped_high=0.0, ratio_mean=1.0,
        grad_norm=4.0, learning_rate=0.1, mismatch_mean=0.01, mismatch_max=0.03,
        old_kl=0.0, value_loss=0.5, dropped=((0, 30), (5, 10), *[(0, 0)] * 9), kept=1.0,
    )  # fmt: skip
    last = update_of(
        loss=3.0, kl=0.4, entropy=2.0, clipped_low=0.3, clipped_high=0.5, ratio_mean=1.2,
        grad_norm=2.0, learning_rate=0.2, mismatch_mean=0.5, mismatch_max=0.9,
        old_kl=0.2, value_loss=0.7, dropped=((0, 0), (1, 90), *[(0, 0)] * 9), kept=0.25,
    )  # fmt: skip
    assert metrics.of_updates([first, last]) == pytest.approx(
        {
            "loss": 2.0,
            "kl": 0.3,
            "entropy": 2.5,
            "clip_ratio/low_mean": 0.2,
            "clip_ratio/high_mean": 0.25,
            "clip_ratio/region_mean": 0.45,
            "importance_ratio/mean": 1.1,
            "old_kl": 0.1,
            "value_loss": 0.6,
            "mismatch/dropped/below_128": 0.06,
            "trust_region/kept": 0.625,
            "grad_norm": 3.0,
            "learning_rate": 0.2,
            "frac_tokens_scored": 1.0,
            "sampling/sampling_logp_difference/mean": 0.01,
            "sampling/sampling_logp_difference/max": 0.03,
        }
    )


def test_the_loss_on_text_is_averaged_over_the_updates_that_had_one():
    losses = [None, 2.0, 3.0]  # none while only the critic learns
    updates = [update_of(ptx_loss=loss) for loss in losses]
    assert metrics.of_updates(updates)["ptx_loss"] == 2.5
    assert "ptx_loss" not in metrics.of_updates(updates[:1])


def test_an_update_without_tokens_of_a_length_does_not_lower_their_dropped_share():
    some, none = [(3, 4), *[(0, 0)] * 10], [(0, 0)] * 11
    got = metrics.of_updates([update_of(dropped=tuple(d)) for d in (some, none)])
    shares = {name: value for name, value in got.items() if name.startswith("mismatch/")}
    assert shares == {"mismatch/dropped/below_64": 0.75}


def test_a_rollout_of_which_nothing_was_usable_has_no_update_to_report():
    assert metrics.of_updates([]) == {}


def test_a_sync_reports_its_gaps_and_how_far_the_policy_moved_when_that_is_known():
    first = SyncReport(tokens=8, max=2e-6, mean=1e-6, moved=None)
    later = SyncReport(tokens=8, max=2e-6, mean=1e-6, moved=0.02)
    assert metrics.of_sync(first) == {"sync/max": 2e-6, "sync/mean": 1e-6}
    assert metrics.of_sync(later) == {"sync/max": 2e-6, "sync/mean": 1e-6, "sync/moved": 0.02}


def test_the_tokens_of_each_server_are_of_the_machine_and_one_engine_has_none():
    served = SimpleNamespace(take_tokens=lambda: {"http://a:8000": 12, "https://b": 0})
    rows = metrics.of_servers(served)
    assert rows == {"system/sampled/a:8000": 12.0, "system/sampled/b": 0.0}
    assert metrics.reproducible(rows) == {} == metrics.of_servers(SimpleNamespace())


def asked(graded, source, language, score, **more):
    facts = {"source": source, "language": language}
    one = Problem(id="x", prompt="", verifier="number", reference={}, facts=facts)
    verdict = Verdict(score=score) if score is not None else FAILED
    return graded(problem=one, verdicts={"accuracy": verdict, **more})


def test_components_are_reported_by_source_and_by_language_where_there_are_several(graded):
    rows = [
        asked(graded, "sums", "en", 1.0),
        asked(graded, "sums", "zh", 0.0),
        asked(graded, "talk", "en", 0.5, preference=Verdict(score=0.25)),
        asked(graded, "talk", "en", None, preference=Verdict(score=0.75)),
    ]
    got = metrics.of_rollouts(rows, torch.zeros(4))
    parts = {name: value for name, value in got.items() if "/mean/" in name}
    assert parts == {
        "rewards/accuracy/mean/sums": 0.5,
        "rewards/accuracy/mean/talk": 0.5,
        "rewards/accuracy/mean/en": 0.75,
        "rewards/accuracy/mean/zh": 0.0,
        "rewards/preference/mean/talk": 0.5,
        "rewards/preference/mean/en": 0.5,
    }
    assert got["rewards/preference/mean"] == 0.5  # of those that it judged


def test_one_source_in_one_language_has_no_parts(graded):
    rows = [asked(graded, "sums", "en", 1.0), asked(graded, "sums", "en", 0.0)]
    got = metrics.of_rollouts(rows, torch.zeros(2))
    assert not [name for name in got if "/mean/" in name]


def test_the_share_of_tokens_that_were_scored_is_over_all_updates_of_a_rollout():
    got = metrics.of_updates([update_of(scored=4), update_of(tokens=30, scored=30)])
    assert got["frac_tokens_scored"] == pytest.approx(34 / 40)


def test_the_age_of_tokens_is_counted_in_optimizer_steps(graded):
    several = graded((1,), (2, 3, 0), policy_version=2, versions=(2, 2, 6))
    one = graded((1,), (0,), policy_version=6)
    assert metrics.of_staleness([several, one], 8) == {"staleness": 4.0, "staleness/max": 6.0}
