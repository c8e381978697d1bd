"""OpenRLHF: a file with `reward_func = reward("math_answer")` given as `--reward.remote_url`.

OpenRLHF logs an exception and leaves the sample without a reward, as for a failing server.
"""

from collections.abc import Callable, Sequence
from typing import Any

from veriloop.verifiers.adapters.grading import OnError, judge_tasks, score
from veriloop.verifiers.labels import problem_for, response_of


def reward(verifier: str = "", *, on_error: OnError = "raise") -> Callable[..., dict[str, Any]]:
    """`reward_func(queries, prompts, labels) -> {"rewards", "scores", "extra_logs"}`, lists."""

    def reward_func(
        queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **unused: Any
    ) -> dict[str, Any]:
        del unused
        tasks = [
            (problem_for(label, verifier, prompt=prompt), response_of(query, prompt))
            for query, prompt, label in zip(queries, prompts, labels, strict=True)
        ]
        verdicts = judge_tasks(tasks)
        scores = [score(verdict, on_error) for verdict in verdicts]
        failed = [float(verdict.score is None) for verdict in verdicts]
        return {"rewards": scores, "scores": scores, "extra_logs": {"verifier_error": failed}}

    return reward_func
