"""SkyRL-Gym: an environment of one turn, registered by its import path.

    register(id="math", entry_point="veriloop.verifiers.adapters.skyrl:VerifierEnv",
             kwargs={"verifier": "math_answer"})

A response that cannot be judged raises, so that the trajectory fails instead of scoring 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from veriloop.verifiers.adapters.grading import OnError, judge_tasks, score
from veriloop.verifiers.conversation import last_text
from veriloop.verifiers.labels import problem_for, without_special_tokens

STATUSES = ("no_answer", "timeout", "error")  # of a verdict that is not "graded"


class VerifierEnv:
    """`step(action)` judges the action, without special tokens at its end, and is done."""

    def __init__(
        self,
        env_config: Any = None,
        extras: Mapping[str, Any] | None = None,
        *,
        verifier: str = "",
        on_error: OnError = "raise",
    ) -> None:
        del env_config
        spec = (extras or {}).get("reward_spec") or {}
        if "ground_truth" not in spec:
            raise ValueError(f"extras need reward_spec.ground_truth, got {sorted(extras or {})}")
        self._label, self._verifier = spec["ground_truth"], verifier or spec.get("method", "")
        self._on_error: OnError = on_error
        self._prompt = ""
        self._metrics: dict[str, float] = {}

    def init(self, prompt: Any) -> tuple[Any, dict[str, Any]]:
        """The prompt unchanged."""
        self._prompt = last_text(prompt)
        return prompt, {}

    def step(self, action: str) -> dict[str, Any]:
        """The reward of the one turn."""
        problem = problem_for(self._label, self._verifier, prompt=self._prompt)
        (verdict,) = judge_tasks([(problem, without_special_tokens(action))])
        self._metrics = {status: float(verdict.status == status) for status in STATUSES}
        return {
            "observations": [],
            "reward": score(verdict, self._on_error),
            "done": True,
            "metadata": {"status": verdict.status, "answer": verdict.answer},
        }

    def get_metrics(self) -> dict[str, float]:
        """Each status other than "graded" as 0 or 1; {} before the turn."""
        return dict(self._metrics)

    @staticmethod
    def aggregate_metrics(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """The share of each status among the episodes that were judged."""
        judged = [episode for episode in metrics if episode]
        if not judged:
            return {}
        return {s: sum(episode[s] for episode in judged) / len(judged) for s in STATUSES}

    def close(self) -> None:
        """No-op: the pool closes with its process."""
