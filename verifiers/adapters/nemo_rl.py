"""NeMo-RL: the body of an environment actor; the trainer's own types are handed in.

    @ray.remote
    class Math(SingleTurn):
        def __init__(self, cfg):
            super().__init__("math_answer", tensor=torch.tensor, made=EnvironmentReturn)

A reward is a number in a tensor there, so a failure of ours raises and ends the step, unless the
user asks for zeros by name.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.adapters.grading import OnError, judged, score
from verifiers.labels import find_label, problem_for


class SingleTurn:
    """An EnvironmentInterface of one turn: the last assistant message is judged, and that is it."""

    def __init__(
        self,
        verifier: str,
        *,
        tensor: Callable[[list[Any]], Any],
        made: Callable[..., Any],
        on_error: OnError = "raise",
    ) -> None:
        self._verifier = verifier
        self._tensor = tensor
        self._made = made
        self._on_error: OnError = on_error

    def step(
        self, message_log_batch: Sequence[Sequence[Mapping[str, Any]]], metadata: Sequence[Any]
    ) -> Any:
        """One EnvironmentReturn for the batch; every episode ends."""
        tasks = []
        for log, told in zip(message_log_batch, metadata, strict=True):
            prompt = "".join(str(one["content"]) for one in log if one["role"] == "user")
            response = "".join(str(one["content"]) for one in log if one["role"] == "assistant")
            tasks.append((problem_for(_label(told), self._verifier, prompt=prompt), response))
        verdicts = judged(tasks)
        count = len(tasks)
        return self._made(
            observations=[{"role": "environment", "content": one.detail} for one in verdicts],
            metadata=list(metadata),
            next_stop_strings=[None] * count,
            rewards=self._tensor([score(one, self._on_error) for one in verdicts]),
            terminateds=self._tensor([True] * count),
            answers=[one.answer for one in verdicts],
        )

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        """The batch as it is, and the mean of its rewards."""
        rewards = batch["total_reward"]
        return batch, {f"{self._verifier}/mean": float(sum(rewards) / max(len(rewards), 1))}

    def shutdown(self) -> None:
        """Nothing to end: the pool closes with its process."""


def _label(told: Any) -> Any:
    """Of one sample's metadata: a label that says all by itself, or a row that holds one."""
    plain_row = isinstance(told, Mapping) and "verifier" not in told
    return find_label(told) if plain_row else told
