"""What every sampling engine promises."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to sample. Only `top_p` below 1, which is for evaluation, cuts the support of the
    distribution: the trainer could not score what was sampled under it."""

    per_prompt: int
    temperature: float  # 0: greedy, with log-probs at temperature 1 that are not for training
    max_tokens: int
    seed: int
    stop: tuple[str, ...] = ()  # a response ends with the token that completes one of these
    top_p: float = 1.0  # of the likeliest tokens as few as have this much probability together

    def __post_init__(self) -> None:
        if self.per_prompt < 1 or self.max_tokens < 1:
            raise ValueError(
                f"per_prompt={self.per_prompt} and max_tokens={self.max_tokens} must be at least 1"
            )
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature={self.temperature} must be 0 (greedy) or positive")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p={self.top_p} must lie in (0, 1]; 1 cuts nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One response as the engine sampled it."""

    ids: tuple[int, ...]  # with the end-of-sequence id, when the model wrote one
    logp: tuple[float, ...]  # nats, after the temperature and `top_p`
    finish: Literal["stop", "length"]


Told = Callable[[int, Sequence[Completion]], None]  # a prompt's place, and its completions


class Sampler(Protocol):
    """An engine with its own copy of the policy's weights."""

    name: str  # "vllm", "torch", ...
    pid: int | None  # of the process that the engine has to itself, where it has one

    @property
    def version(self) -> int:
        """Optimizer steps behind the weights it holds."""
        ...

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Replace the weights in place, under their transformers names, and drop every cache."""
        ...

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, told: Told | None = None
    ) -> list[list[Completion]]:
        """`per_prompt` completions for each prompt, in order; `told` hears of each prompt, once,
        as soon as its own are complete. The same seed and weights give the same tokens. Raises
        ValueError for a prompt that leaves no room for `max_tokens`."""
        ...

    def sleep(self) -> None:
        """Give the card's memory back until the next `load_weights`; nothing is sampled before.
        Only for an engine that was started to sleep. An engine without a card has none to give."""
        ...

    def close(self) -> None: ...
