"""AReaL: `reward_fn = reward("math_answer")`.

AReaL calls the function in processes of its own, so it can be pickled. After an exception it tries
again, three times by default, and then raises; a call that takes longer than its `timeout_seconds`
(15 by default) has the reward 0. Special tokens at the end of a completion are left out.
"""

from collections.abc import Sequence
from typing import Any

from veriloop.verifiers.adapters.grading import OnError, judge_tasks, score
from veriloop.verifiers.labels import find_label, problem_for, without_special_tokens


class Reward:
    """`reward_fn(prompt, completions, prompt_ids, completion_ids, **row) -> float`.

    `column` of the row holds the label, without it the first of
    `veriloop.verifiers.labels.COLUMNS` that the row has. Raises KeyError for a missing column,
    ValueError for a missing or unusable label.
    """

    def __init__(self, verifier: str, column: str = "", *, on_error: OnError = "raise") -> None:
        self._verifier, self._column = verifier, column
        self._on_error: OnError = on_error
        self.__name__ = verifier  # AReaL names the function in its logs

    def __call__(
        self,
        prompt: str,
        completions: str,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        **row: Any,
    ) -> float:
        del prompt_ids, completion_ids
        label = find_label(row, self._column, self._verifier)
        problem = problem_for(label, self._verifier, prompt=prompt)
        (verdict,) = judge_tasks([(problem, without_special_tokens(completions))])
        return score(verdict, self._on_error)


def reward(verifier: str, column: str = "", *, on_error: OnError = "raise") -> Reward:
    """A reward function of one verifier; `column` of the row holds the label."""
    return Reward(verifier, column, on_error=on_error)
