"""The protocol of sampling engines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from veriloop.pipeline.sampling.digest import Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to sample. `top_p` below 1 is for evaluation only: it cuts the distribution's support, so
    the trainer cannot score the samples."""

    per_prompt: int
    temperature: float  # 0: greedy; log-probs are then at temperature 1 and not for training
    max_tokens: int
    seed: int
    stop: tuple[str, ...] = ()  # a response ends after a token that completes one of these
    top_p: float = 1.0  # keep the fewest likeliest tokens with this total probability

    def __post_init__(self) -> None:
        if self.per_prompt < 1 or self.max_tokens < 1:
            raise ValueError(
                f"per_prompt={self.per_prompt} and max_tokens={self.max_tokens} must be at least 1"
            )
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature={self.temperature} must be 0 (greedy) or positive")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p={self.top_p} must be in (0, 1]; 1 cuts nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled response."""

    ids: tuple[int, ...]  # with the end-of-sequence id, if sampled
    logp: tuple[float, ...]  # nats, after the temperature and `top_p`
    finish: Literal["stop", "length"]


OnComplete = Callable[[int, Sequence[Completion]], None]  # a prompt's index, its completions


class Sampler(Protocol):
    """An engine with its own copy of the policy's weights."""

    name: str  # "vllm", "torch", ...
    dtype: str  # of its weights and computations: "float32" or "bfloat16"
    pid: int | None  # of the engine's separate process; None: in this one

    @property
    def version(self) -> int:
        """Optimizer steps that its weights have had."""
        ...

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Replace the weights in place, by their transformers names, and clear every cache."""
        ...

    def digests(self, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[str, Digest]]:
        """(name, digest) of every copy that it computes with of the weights named in `shapes`.
        Weights that it cannot read back are left out."""
        ...

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        on_complete: OnComplete | None = None,
    ) -> list[list[Completion]]:
        """`per_prompt` completions for each prompt, in order. `on_complete` is called once per
        prompt, as soon as its completions are done. The same seed and weights give the same tokens.
        Raises ValueError for a prompt that leaves no room for `max_tokens`."""
        ...

    def sleep(self) -> None:
        """Release the GPU's memory until the next `load_weights`; no sampling until then. Only for
        engines started with `sleep`."""
        ...

    def close(self) -> None: ...
