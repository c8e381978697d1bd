"""A sampler that is configured to sleep does so after each use, and only then."""

from types import SimpleNamespace

import pytest

from veriloop.pipeline.preference import online
from veriloop.pipeline.preference.online import OnlineSampler


@pytest.fixture
def asked(monkeypatch):
    """Function: an OnlineSampler and the list of calls that it makes."""
    told = []
    monkeypatch.setattr(online, "evaluate", lambda *_, **__: told.append("evaluated") or Found())
    monkeypatch.setattr(online, "_metrics", lambda *_: {})

    def build(sleep):
        made = OnlineSampler.__new__(OnlineSampler)
        made.recipe = SimpleNamespace(
            seed=0, sampler=SimpleNamespace(sleep=sleep), label=None, loss=SimpleNamespace(name=""),
            rollout=SimpleNamespace(
                prompts=0, per_prompt=2, temperature=1.0, max_tokens=4, stop=()
            ),
            evaluation=SimpleNamespace(samples=1, temperature=1.0), verifier_error_share=0.5,
        )  # fmt: skip
        made.deps = SimpleNamespace(
            sampler=SimpleNamespace(sleep=lambda: told.append("slept")), held_out=[], pool=None,
            generator=SimpleNamespace(rollouts=lambda *_: told.append("sampled") or []),
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
    assert made.evaluate(None, list) == {"pass@1": 0.5}
    rests = ["slept"] if sleep else []
    assert told == ["sampled", *rests, "judged", "evaluated", *rests]
