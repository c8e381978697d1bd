"""Graded rollouts made by hand: what a test says nothing about is plain."""

from veriloop.data.problem import Problem
from veriloop.pipeline.types import Graded, Rollout
from veriloop.verifiers.verdict import Verdict

PLAIN = Problem(id="p/0", prompt="?", verifier="number", reference={"value": "1"})
ACCURATE = {"accuracy": Verdict(score=1.0)}


def graded(prompt=(1, 5), response=(7, 0), *, reward=1.0, logp=None, verdicts=None, **rest):
    """Of these ids; `rest` are other fields of the rollout, and `said` its text."""
    rollout = {
        "group": "g",
        "problem": PLAIN,
        "prompt_ids": tuple(prompt),
        "response_ids": tuple(response),
        "logp": tuple(logp or [-1.0] * len(response)),
        "response": rest.pop("said", ""),
        "finish": "stop",
        "temperature": 1.0,
        "policy_version": 0,
    }
    return Graded(
        rollout=Rollout(**rollout | rest),
        verdicts=ACCURATE if verdicts is None else verdicts,
        reward=reward,
    )
