"""AReaL: `reward_fn = reward("math_answer")`. It takes what raises or hangs for 0 by itself."""

from collections.abc import Callable, Sequence
from typing import Any

from verifiers.adapters.grading import OnError, judged, score
from verifiers.labels import find_label, problem_for


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
        (verdict,) = judged([(problem_for(label, verifier, prompt=prompt), completions)])
        return score(verdict, on_error)

    reward_fn.__name__ = reward_fn.__qualname__ = verifier
    return reward_fn
