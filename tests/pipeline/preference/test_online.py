"""Rounds are sampled from the problems in turn, and a sampler sleeps only where it is to."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from veriloop.pipeline.model.sharded import Ranks
from veriloop.pipeline.preference import online
from veriloop.pipeline.preference.examples import unpair
from veriloop.pipeline.preference.online import OnlineDeps, OnlineSampler
from veriloop.pipeline.sampling.sampler import Sampling

HELD_OUT = ("first held out", "second held out")


def recipe(*, sleep=False, loss="dpo", max_tokens=4):
    return SimpleNamespace(
        seed=3,
        sampler=SimpleNamespace(sleep=sleep, tolerance=0.01),
        label="labels",
        loss=SimpleNamespace(name=loss),
        rollout=SimpleNamespace(
            prompts=5, per_prompt=2, temperature=0.9, max_tokens=max_tokens, stop=("x",)
        ),
        evaluation=SimpleNamespace(samples=7, temperature=0.6),
        verifier_error_share=0.5,
    )


@pytest.fixture
def asked(monkeypatch, graded):
    """Function: an OnlineSampler and the calls that it makes, each (what, arguments, keywords)."""
    told = []

    def noted(what, result):
        def call(*arguments, **keywords):
            told.append((what, arguments, keywords))
            return result

        return call

    @contextmanager
    def activity(*arguments):
        told.append(("activity", arguments, {}))
        yield SimpleNamespace(advance="advance")

    answers = [
        graded(response=(1, 2), reward=0.25),
        graded(response=(1, 2, 3, 4), reward=None),
        graded(response=(1, 2, 3), reward=0.75),
    ]
    found = SimpleNamespace(flat=lambda: {"pass@1": 0.5})
    synced = noted("synced", SimpleNamespace(warnings=("odd",)))
    monkeypatch.setattr(online, "evaluate", noted("evaluated", found))
    monkeypatch.setattr(online, "activity", activity)
    monkeypatch.setattr(online, "passes", len)
    monkeypatch.setattr(online, "WeightSync", noted("sync", synced))

    def build(pairs=(), scored=answers, **changes):
        monkeypatch.setattr(online, "pairs_of", noted("paired", list(pairs)))
        deps = OnlineDeps(
            problem=lambda number: f"problem {number}",
            held_out=HELD_OUT,
            generator=SimpleNamespace(
                prompt=lambda problem: f"prompt of {problem}",
                rollouts=noted("sampled", "rollouts"),
            ),
            sampler=SimpleNamespace(sleep=noted("slept", None)),
            pool="pool",
            label=noted("judged", scored),
        )
        return OnlineSampler(recipe(**changes), "policy", deps, Ranks()), told

    return build


def only(told, what):
    ((arguments, keywords),) = [call[1:] for call in told if call[0] == what]
    return arguments, keywords


@pytest.mark.parametrize("sleep", [True, False])
def test_it_sleeps_after_a_round_and_after_an_evaluation_if_it_is_to(asked, sleep):
    made, told = asked(sleep=sleep)
    told.clear()
    made.round(0)
    assert made.evaluate(None, list) == {"pass@1": 0.5}
    rests = ["slept"] if sleep else []
    wanted = ["sampled", *rests, "judged", "paired", "activity", "evaluated", *rests]
    assert [call[0] for call in told] == wanted


@pytest.mark.parametrize(("max_tokens", "probed"), [(4, 4), (99, online.PROBED)])
def test_a_sync_is_checked_at_the_recipes_temperature_on_tokens_that_there_is_room_for(
    asked, max_tokens, probed
):
    made, told = asked(max_tokens=max_tokens)
    (policy, sampler), settings = only(told, "sync")
    assert policy == "policy" and sampler is made.deps.sampler
    command = settings.pop("command")
    assert command.__name__ == "command" and isinstance(command.__self__, Ranks)
    assert settings == {"temperature": 0.9, "tolerance": 0.01, "max_tokens": probed}
    assert made.sync(11) == ("odd",)
    assert only(told, "synced")[0] == (11, [f"prompt of problem {i}" for i in range(8)])


def test_rounds_ask_the_problems_in_turn_with_a_seed_of_their_own(asked):
    made, told = asked()
    made.round(2)
    (sampler, prompts, sampling), _ = only(told, "sampled")
    assert sampler is made.deps.sampler
    assert prompts == [(f"3/{i}", f"problem {10 + i}") for i in range(5)]
    assert sampling == Sampling(
        per_prompt=2, temperature=0.9, max_tokens=4, stop=("x",), seed=300_003
    )


def test_a_round_returns_its_pairs_all_answers_and_what_was_sampled(asked, pairs):
    made, told = asked(pairs(4))
    examples, answers, metrics = made.round(0)
    assert examples == pairs(4) and len(answers) == 3
    assert only(told, "judged")[0] == ("rollouts",)
    assert only(told, "paired")[0] == (answers, "labels")
    assert metrics == {
        "reward": 0.5, "completions/mean_length": 3.0, "unscored": 1.0, "pairs": 4.0
    }  # fmt: skip


def test_a_round_without_a_reward_has_none_on_average(asked, graded):
    made, _ = asked(scored=[graded(reward=None)])
    assert made.round(0)[2]["reward"] == 0.0


def test_kto_learns_single_answers_unless_all_pairs_are_of_one_prompt(asked, pairs):
    made, _ = asked(pairs(2), loss="kto")
    assert made.round(0)[0] == unpair(pairs(2))
    made, _ = asked(pairs(1) * 2, loss="kto")
    assert made.round(0)[0] == []
    made, _ = asked(pairs(1) * 2)
    assert made.round(0)[0] == pairs(1) * 2


def test_an_evaluation_samples_the_held_out_problems_as_the_recipe_says(asked):
    made, told = asked()
    made.evaluate("store", "keep")
    (sampler, generator, problems, verifiers, pool, sampling), settings = only(told, "evaluated")
    assert (sampler, generator) == (made.deps.sampler, made.deps.generator)
    assert (problems, verifiers, pool) == (HELD_OUT, online.MEASURED, "pool")
    assert sampling == Sampling(per_prompt=7, temperature=0.6, max_tokens=4, stop=("x",), seed=1)
    assert settings == {
        "error_share": 0.5, "keep": "keep", "on_problem": "advance", "store": "store"
    }  # fmt: skip
    assert only(told, "activity")[0] == ("evaluating", len(HELD_OUT))
