"""The protocol of sampling engines, and the digests by which their weights are verified.

A digest of weights is equal on every device and in every type that holds the values. It is two
wrapping 64-bit sums over the 32-bit words w of a tensor's values in float32,

    sum_t b[t] * sum_i a[i] * w[t, i]  (mod 2^64),

where t numbers tiles of `TILE` words, i the word in its tile, and all a and b are odd. So a change
of a single word always changes both sums, and any other change, as another order, leaves both
unchanged with a probability of about 2^-64. The constants are public: a digest finds faults, not
forgeries. -0 and subnormal numbers count as 0, as some kernels make no difference.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from veriloop.pipeline.config.fields import COLDEST
from veriloop.pipeline.errors import RecipeError, StageError

Digest = tuple[int, int]
TILE = 2**16  # words with multipliers of their own
TILES_AT_ONCE = 64  # bounds the temporary memory to 64 MiB
TILES_ON_CPU = 4  # 2 MiB, which stay in its cache; larger tensors are mapped anew each time
SUBNORMAL = 1.1754943e-38  # the largest magnitude that counts as 0
GOLDEN, MIX_1, MIX_2 = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


class SendAgainError(StageError):
    """Some engines have a part of the weights only: a server was lost while they were sent. The
    others take them when they are sent again."""


RESPONSES = 1_000_003  # of a call, at most: their seeds differ from those of the next one


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
        if 0.0 < self.temperature < COLDEST:
            raise ValueError(
                f"temperature={self.temperature} must be 0 (greedy) or at least {COLDEST}: vLLM "
                "would sample at that one"
            )
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p={self.top_p} must be in (0, 1]; 1 cuts nothing")
        if "" in self.stop:
            raise ValueError(f"stop={self.stop}: an empty string would end every response at once")

    def seed_of(self, number: int) -> int:
        """The seed of one of the responses of a call, below 2^63: engines take no more."""
        return (self.seed * RESPONSES + number) % 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled response."""

    ids: tuple[int, ...]  # with the end-of-sequence id, if sampled
    logp: tuple[float, ...]  # nats, after the temperature and `top_p`
    finish: Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A response to be continued after its first tokens, which earlier weights may have sampled."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    logp: tuple[float, ...]  # nats, one per id
    until: int  # tokens of the response at which sampling pauses

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.logp) < self.until:
            raise ValueError(
                f"a response of {len(self.ids)} tokens with {len(self.logp)} log-probs cannot be "
                f"continued until it has {self.until}"
            )


def continued(response: Unfinished, added: Completion) -> Completion:
    """The whole response after these further tokens."""
    return Completion(
        ids=(*response.ids, *added.ids), logp=(*response.logp, *added.logp), finish=added.finish
    )


def require_room(
    prompts: Sequence[Sequence[int]], max_tokens: int, room: int | None, of: str = "engine"
) -> None:
    """Raise RecipeError for a prompt that leaves no room for `max_tokens` of `room` positions;
    None is without a limit."""
    for i, prompt in enumerate(prompts):
        if room is not None and len(prompt) + max_tokens > room:
            raise RecipeError(
                f"prompt {i} has {len(prompt)} tokens; with max_tokens={max_tokens} it exceeds the "
                f"{of}'s {room} positions; max_prompt bounds a prompt"
            )


OnComplete = Callable[[int, Sequence[Completion]], None]  # a prompt's index, its completions
OnContinued = Callable[[int, Completion], None]  # a response's index, all of it so far


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
        """Replace the weights in place, by their transformers names, and clear every cache.

        Raises SendAgainError where the same weights have to be sent once more.
        """
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

    def extend(
        self,
        responses: Sequence[Unfinished],
        sampling: Sampling,
        on_continued: OnContinued | None = None,
    ) -> list[Completion]:
        """Each response with the tokens before it and those sampled now, in order. Its finish is
        "length" where it reached `until`. The current weights read all tokens before they sample
        the next; the log-probs of earlier ones are kept. `per_prompt` and `max_tokens` are not
        read. `on_continued` is called once per response, as soon as it is done. The same seed,
        weights and responses give the same tokens."""
        ...

    def sleep(self) -> None:
        """Release the GPU's memory until the next `load_weights`; no sampling until then. Only for
        engines started with `sleep`."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class HasCopies(Protocol):
    """A sampler of several engines; the weights of each have to be verified."""

    def digests_of_each(
        self, shapes: Mapping[str, tuple[int, ...]]
    ) -> list[tuple[str, list[tuple[str, Digest]]]]:
        """(name, digests) of each engine."""
        ...

    def sample_of_each(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling
    ) -> list[tuple[str, list[list[Completion]]]]:
        """(name, what it samples after all of the prompts) of each engine."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """A sampler of several engines that knows how much each has sampled."""

    def take_tokens(self) -> dict[str, int]:
        """Tokens of answers by the name of the engine, since the last call."""
        ...


@torch.no_grad()
def digest_tensor(weight: Tensor) -> Tensor:
    """The digest of a floating-point tensor, int64 [2], on its device."""
    if weight.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise TypeError(f"weights of type {weight.dtype} have no digest: float32 or narrower only")
    flat_W = weight.reshape(-1)
    words = len(flat_W)
    step = TILE * (TILES_ON_CPU if flat_W.device.type == "cpu" else TILES_AT_ONCE)
    width = min(TILE, words)  # a single tile is not padded
    inner_2W = _multipliers(width, 0, flat_W.device)
    outer_2T = _multipliers(len(range(0, words, TILE)) or 1, 1, flat_W.device)
    total_2 = outer_2T[:, 0] * words
    for start in range(0, words, step):
        part_W = flat_W[start : start + step].float()
        rest = -len(part_W) % width
        part_W = torch.nn.functional.hardshrink(part_W, SUBNORMAL)
        if rest:
            part_W = torch.nn.functional.pad(part_W, (0, rest))
        words_TW = part_W.view(torch.int32).view(-1, width).long()
        first = start // TILE
        for total, inner_W, outer_T in zip(total_2, inner_2W, outer_2T, strict=True):
            sums_T = (words_TW * inner_W).sum(1)
            total += (sums_T * outer_T[first : first + len(sums_T)]).sum()
    return total_2


def digests(weights: Iterable[tuple[str, Tensor]]) -> list[tuple[str, Digest]]:
    """(name, digest) of each tensor."""
    return fetched([(name, digest_tensor(weight)) for name, weight in weights])


def fetched(tensors: Sequence[tuple[str, Tensor]]) -> list[tuple[str, Digest]]:
    """Digests of `digest_tensor` as numbers, fetched from the device at once."""
    if not tensors:
        return []
    pairs = torch.stack([digest_2 for _, digest_2 in tensors]).tolist()
    return [(name, (one, other)) for (name, _), (one, other) in zip(tensors, pairs, strict=True)]


def _multipliers(count: int, stream: int, device: torch.device) -> Tensor:
    """Odd pseudo-random numbers, int64 [2, count]; a view of more, which are kept."""
    return _drawn(max(TILE, count), stream, device)[:, :count]


@cache
def _drawn(count: int, stream: int, device: torch.device) -> Tensor:
    """The mix of splitmix64, with arithmetic shifts."""
    seeds_21 = torch.tensor([[2 * stream + 1], [2 * stream + 2]], device=device) << 40
    z = (torch.arange(count, device=device) + seeds_21) * GOLDEN
    z = (z ^ (z >> 30)) * MIX_1
    z = (z ^ (z >> 27)) * MIX_2
    return (z ^ (z >> 31)) | 1
