"""TRL: `GRPOTrainer(reward_funcs=[reward("math_answer")])`. A response that cannot be judged gives
None, which TRL leaves out of the sample's reward."""

from collections.abc import Callable, Sequence
from typing import Any

from veriloop.verifiers.adapters.grading import judge_tasks
from veriloop.verifiers.conversation import last_text
from veriloop.verifiers.labels import find_label, problem_for

_OF_TRL = ("completion_ids", "trainer_state", "log_extra", "log_metric", "environments")


def reward(verifier: str, column: str = "") -> Callable[..., list[float | None]]:
    """A reward function named after the verifier; `column` of the data set holds the labels.

    Without `column` it is the first of `veriloop.verifiers.labels.COLUMNS` that the data set has.
    The function raises KeyError for a missing column, ValueError for missing or unusable labels.
    """

    def function(
        prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        data = {name: values for name, values in columns.items() if name not in _OF_TRL}
        labels = find_label(data, column, verifier) or [None] * len(completions)
        tasks = [
            (problem_for(label, verifier, prompt=last_text(prompt)), last_text(completion))
            for prompt, completion, label in zip(prompts, completions, labels, strict=True)
        ]
        verdicts = judge_tasks(tasks)
        if log_extra := columns.get("log_extra"):
            log_extra(f"{verifier}/status", [verdict.status for verdict in verdicts])
        return [verdict.score for verdict in verdicts]

    function.__name__ = function.__qualname__ = verifier
    return function
