"""A sampler that is to sleep does so once it has been asked, and only then."""

from types import SimpleNamespace

import pytest

from pipeline.preference import questions
from pipeline.preference.questions import Questions


@pytest.fixture
def asked(monkeypatch):
    """Function: questions whose sampler takes down when it sleeps, and what it took down."""
    told = []
    monkeypatch.setattr(questions, "evaluate", lambda *_: told.append("evaluated") or Found())
    monkeypatch.setattr(questions, "_numbers", lambda *_: {})

    def build(sleep):
        made = Questions.__new__(Questions)
        made.recipe = SimpleNamespace(
            seed=0, sampler=SimpleNamespace(sleep=sleep), label=None, loss=SimpleNamespace(name=""),
            rollout=SimpleNamespace(
                prompts=0, per_prompt=2, temperature=1.0, max_tokens=4, stop=()
            ),
            evaluation=SimpleNamespace(samples=1, temperature=1.0),
        )  # fmt: skip
        made.asking = SimpleNamespace(
            sampler=SimpleNamespace(sleep=lambda: told.append("slept")), held_out=[], pool=None,
            scribe=SimpleNamespace(rollouts=lambda *_: told.append("sampled") or []),
            label=lambda rollouts: told.append("judged") or rollouts, problem=None,
        )  # fmt: skip
        return made, told

    return build


class Found:
    def flat(self):
        return {"pass@1": 0.5}


@pytest.mark.parametrize("sleep", [True, False])
def test_it_sleeps_after_a_round_and_after_an_evaluation_if_it_is_to(asked, sleep):
    made, told = asked(sleep)
    made.round(0)
    assert made.evaluate() == {"pass@1": 0.5}
    rests = ["slept"] if sleep else []
    assert told == ["sampled", *rests, "judged", "evaluated", *rests]
