"""AReaL: `reward_fn = reward("math_answer")`. AReaL scores 0 if it raises or hangs."""

from collections.abc import Callable, Sequence
from typing import Any

from veriloop.verifiers.adapters.grading import OnError, judge_tasks, score
from veriloop.verifiers.labels import find_label, problem_for


def reward(verifier: str, column: str = "", *, on_error: OnError = "raise") -> Callable[..., float]:
    """`reward_fn(prompt, completions, prompt_ids, completion_ids, **row) -> float`."""

    def reward_fn(
        prompt: str,
        completions: str,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        **row: Any,
    ) -> float:
        del prompt_ids, completion_ids
        label = find_label(row, column)
        (verdict,) = judge_tasks([(problem_for(label, verifier, prompt=prompt), completions)])
        return score(verdict, on_error)

    reward_fn.__name__ = reward_fn.__qualname__ = verifier
    return reward_fn
