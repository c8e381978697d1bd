"""SkyRL-Gym: an environment of one turn, registered as `verifiers.adapters.skyrl:VerifierEnv`.

    register(id="math", entry_point="verifiers.adapters.skyrl:VerifierEnv",
             kwargs={"verifier": "math_answer"})

A failure of ours raises: the trajectory fails, and is no wrong answer.
"""

from collections.abc import Mapping
from typing import Any

from verifiers.adapters.grading import OnError, judged, score
from verifiers.adapters.trl import text
from verifiers.labels import problem_for


class VerifierEnv:
    """`step(action)` judges the action and is done."""

    def __init__(
        self,
        env_config: Any = None,
        extras: Mapping[str, Any] | None = None,
        *,
        verifier: str = "",
        on_error: OnError = "raise",
    ) -> None:
        del env_config
        told = (extras or {}).get("reward_spec") or {}
        if "ground_truth" not in told:
            raise ValueError(f"extras need reward_spec.ground_truth, got {sorted(extras or {})}")
        self._label, self._verifier = told["ground_truth"], verifier or told.get("method", "")
        self._on_error: OnError = on_error
        self._prompt = ""

    def init(self, prompt: Any) -> tuple[Any, dict[str, Any]]:
        """The prompt as it is."""
        self._prompt = text(prompt)
        return prompt, {}

    def step(self, action: str) -> dict[str, Any]:
        """The reward of the one turn."""
        problem = problem_for(self._label, self._verifier, prompt=self._prompt)
        (verdict,) = judged([(problem, action)])
        return {
            "observations": [],
            "reward": score(verdict, self._on_error),
            "done": True,
            "metadata": {"status": verdict.status, "answer": verdict.answer},
        }

    def close(self) -> None:
        """Nothing to end: the pool closes with its process."""
