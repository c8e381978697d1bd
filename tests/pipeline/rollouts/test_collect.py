"""A step's rollouts: questions in their order, and asked anew where a group teaches nothing."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from veriloop.data.problem import Problem
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.rollouts.collect import RolloutCollector
from veriloop.pipeline.rollouts.grade import Task
from veriloop.pipeline.training.measurements import Clock
from veriloop.verifiers.verdict import Verdict


def recipe(dynamic, prompts=2, minibatches=1):
    return ZeroRecipe.model_validate(
        {
            "name": "t",
            "start": "given",
            "steps": 9,
            "rollout": {"prompts": prompts, "per_prompt": 2, "max_tokens": 8},
            "algorithm": {"dynamic_sampling": dynamic, "minibatches": minibatches},
            "optimizer": {"learning_rate": 0.1},
        }
    )


@pytest.fixture
def collecting(graded):
    """Function: a collector whose question n is answered as `answers[n]` says, and its log."""

    def build(told, answers):
        log = SimpleNamespace(asked=[], seeds=[])

        class Judges:
            def judge_all(self, tasks):
                scores = [answers[int(problem.id)] for problem, _ in tasks[::2]]
                flat = [score for pair in scores for score in pair]
                return [
                    Verdict(score=s, status="graded" if s is not None else "error") for s in flat
                ]

        def rollouts(sampler, asked, sampling, take):
            del sampler
            log.asked += [int(problem.id) for _, problem in asked]
            log.seeds.append(sampling.seed)
            made = [
                replace(graded((1,), (2,), group=group, problem=problem).rollout, response=str(i))
                for group, problem in asked
                for i in range(sampling.per_prompt)
            ]
            for start in range(0, len(made), 2):
                take(made[start : start + 2])
            return made

        task = Task(
            problem=lambda n: Problem(id=str(n), prompt="", verifier="number", reference={}),
            held_out=(),
            verifiers={"accuracy": None},
            reward=lambda rollout, verdicts: verdicts["accuracy"].score,
        )
        collector = RolloutCollector(told, task, SimpleNamespace(rollouts=rollouts), None, Judges())
        return collector, log

    return build


MIXED, RIGHT, WRONG, LOST = (1.0, 0.0), (1.0, 1.0), (0.0, 0.0), (None, None)


def questions(collected):
    return [int(g.rollout.problem.id) for g in collected.graded[::2]]


def test_questions_come_in_their_order_and_none_twice(collecting):
    collector, _ = collecting(recipe(0), [RIGHT] * 6)
    first, second = collector(0, Random(0), Clock()), collector(1, Random(0), Clock())
    assert (questions(first), questions(second)) == ([0, 1], [2, 3])
    assert (first.asked, first.missing, collector.next_question) == (2, 0, 4)
    groups = [g.rollout.group for g in (*first.graded, *second.graded)]
    assert groups == ["1/0", "1/0", "1/1", "1/1", "2/0", "2/0", "2/1", "2/1"]


def test_groups_that_are_all_alike_are_replaced_by_others(collecting):
    collector, log = collecting(recipe(3), [RIGHT, MIXED, WRONG, MIXED, MIXED])
    found = collector(0, Random(0), Clock())
    assert questions(found) == [1, 3] and (found.asked, found.missing) == (4, 0)
    assert log.asked == [0, 1, 2, 3] and collector.next_question == 4
    assert len(set(log.seeds)) == len(log.seeds) == 3


def test_the_attempts_are_bounded_and_what_is_missing_is_reported(collecting):
    collector, log = collecting(recipe(2), [MIXED, *[WRONG] * 8])
    found = collector(0, Random(0), Clock())
    assert questions(found) == [0] and (found.asked, found.missing) == (4, 1)
    assert log.asked == [0, 1, 2, 3]


def test_a_step_without_any_mixed_group_shows_what_it_found(collecting):
    collector, _ = collecting(recipe(1), [RIGHT, WRONG, LOST, RIGHT])
    found = collector(0, Random(0), Clock())
    assert questions(found) == [0, 1, 2, 3] and found.missing == 2


def test_a_group_of_which_nothing_is_known_is_asked_anew_and_a_half_known_one_is_tied(collecting):
    collector, _ = collecting(recipe(2), [LOST, (1.0, None), MIXED, MIXED])
    found = collector(0, Random(0), Clock())
    assert questions(found) == [2, 3]


def test_verdicts_on_dropped_groups_are_kept(collecting):
    collector, _ = collecting(recipe(3), [LOST, MIXED, RIGHT, MIXED])
    found = collector(0, Random(0), Clock())
    assert questions(found) == [1, 3]
    scores = [verdicts["accuracy (number)"].score for verdicts in found.dropped]
    assert scores == [None, None, 1.0, 1.0]
    collector, _ = collecting(recipe(1), [RIGHT, WRONG, LOST, RIGHT])
    assert list(collector(0, Random(0), Clock()).dropped) == []  # those groups are all shown


def test_steps_are_scored_of_the_kept_responses_alone(collecting):
    collector, _ = collecting(recipe(3), [RIGHT, MIXED, (1.0, None), MIXED])
    asked = []

    def scores(problem, response):
        asked.append((problem.id, response))
        return [(1, float(response))]

    collector.task = replace(collector.task, step_scores=scores)
    collected = collector(0, Random(0), Clock())
    assert questions(collected) == [1, 3]
    assert sorted(asked) == [("1", "0"), ("1", "1"), ("3", "0"), ("3", "1")]
    assert [g.steps for g in collected.graded] == [((1, 0.0),), ((1, 1.0),)] * 2


def test_time_is_distinguished_for_sampling_and_judging(collecting):
    collector, _ = collecting(recipe(0), [RIGHT] * 2)
    clock = Clock()
    collector(0, Random(0), clock)
    assert set(clock.seconds) == {"sample", "verify"}
