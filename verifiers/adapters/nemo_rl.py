"""NeMo-RL: the body of an environment actor; the trainer's types are arguments.

    @ray.remote
    class Math(SingleTurn):
        def __init__(self, cfg):
            super().__init__("math_answer", tensor=torch.tensor, returns=EnvironmentReturn)

Rewards are numbers in a tensor there, which has no value for a response that could not be judged:
that raises and ends the step, unless `on_error` is "zero". Special tokens at the end of what the
assistant wrote are left out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from veriloop.verifiers.adapters.grading import OnError, judge_tasks, score
from veriloop.verifiers.labels import find_label, problem_for, without_special_tokens


class SingleTurn:
    """An EnvironmentInterface of one turn: judges what the assistant wrote and ends the episode.

    `column` of metadata that is a plain row holds the label, without it the first of
    `veriloop.verifiers.labels.COLUMNS` that the row has.
    """

    def __init__(
        self,
        verifier: str,
        column: str = "",
        *,
        tensor: Callable[[list[Any]], Any],
        returns: Callable[..., Any],
        on_error: OnError = "raise",
    ) -> None:
        self._verifier, self._column = verifier, column
        self._tensor = tensor
        self._returns = returns
        self._on_error: OnError = on_error

    def step(
        self, message_log_batch: Sequence[Sequence[Mapping[str, Any]]], metadata: Sequence[Any]
    ) -> Any:
        """One EnvironmentReturn for the batch; every episode ends."""
        tasks = []
        for log, sample in zip(message_log_batch, metadata, strict=True):
            prompt = _text(log, "user")
            response = without_special_tokens(_text(log, "assistant"))
            problem = problem_for(self._label(sample), self._verifier, prompt=prompt)
            tasks.append((problem, response))
        verdicts = judge_tasks(tasks)
        count = len(tasks)
        return self._returns(
            observations=[{"role": "environment", "content": v.detail} for v in verdicts],
            metadata=list(metadata),
            next_stop_strings=[None] * count,
            rewards=self._tensor([score(verdict, self._on_error) for verdict in verdicts]),
            terminateds=self._tensor([True] * count),
            answers=[verdict.answer for verdict in verdicts],
        )

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        """The batch unchanged, and the mean of its rewards."""
        rewards = batch["total_reward"]
        return batch, {f"{self._verifier}/mean": float(sum(rewards) / max(len(rewards), 1))}

    def _label(self, metadata: Any) -> Any:
        """The label of one sample: its metadata, or a field of it where that is a plain row."""
        plain_row = isinstance(metadata, Mapping) and "verifier" not in metadata
        return find_label(metadata, self._column, self._verifier) if plain_row else metadata

    def shutdown(self) -> None:
        """No-op: the pool closes with its process."""


def _text(log: Sequence[Mapping[str, Any]], role: str) -> str:
    return "".join(str(message["content"]) for message in log if message["role"] == role)
