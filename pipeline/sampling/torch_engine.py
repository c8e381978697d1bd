"""Sampling with plain torch: one prefill per prompt, a key-value cache, finished rows dropped.

Axes: P prompts, N = P * per_prompt rows, T positions of the padded prompts, V vocabulary,
H heads, D width of a head.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from veriloop.pipeline.config.checkpoints import positions_of
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.device import CPU
from veriloop.pipeline.model.policy import eos_ids, load_policy, load_tokenizer
from veriloop.pipeline.model.prepare import DTYPES
from veriloop.pipeline.sampling.sampler import (
    Completion,
    Digest,
    OnComplete,
    OnContinued,
    Sampling,
    Unfinished,
    digests,
    require_room,
)

SPARE = 64  # positions added when the cache is full
_PASS = {"use_cache": True, "logits_to_keep": 1}  # of the model: only the last logits are read
COMPACT_BELOW = 7 / 8  # share of unfinished rows at which finished rows are dropped


class TorchSampler:
    """The reference engine, on the CPU: exact and portable, but slower than vLLM."""

    name = "torch"
    pid: int | None = None
    device = CPU

    def __init__(self, checkpoint: str, *, max_batch: int = 512, dtype: str = "float32") -> None:
        self.dtype = dtype
        self._model = load_policy(checkpoint, DTYPES[dtype]).eval()
        if getattr(self._model, "_is_stateful", False):
            kind = type(self._model).__name__
            raise RecipeError(
                f"the torch sampler needs a key-value cache, but {kind} has a recurrent state: set "
                "sampler.engine to vllm"
            )
        self._tokenizer = load_tokenizer(checkpoint)
        self._ends = torch.tensor(eos_ids(self._model.generation_config, self._tokenizer))
        self._room = positions_of(self._model.config.to_dict())
        self._max_batch = max_batch
        self.version = 0

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @torch.no_grad()
    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        own = dict(self._model.named_parameters())
        unmatched = set(own)
        for name, weight in weights:  # one at a time: merged weights are copies
            if name in own:
                own[name].copy_(weight)
            unmatched ^= {name}
            del weight
        if unmatched:
            raise ValueError(
                f"{len(unmatched)} weights do not match by name, first: {min(unmatched)!r}"
            )
        self.version = version

    def digests(self, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[str, Digest]]:
        return digests((n, weight) for n, weight in self._model.named_parameters() if n in shapes)

    @torch.inference_mode()
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        on_complete: OnComplete | None = None,
    ) -> list[list[Completion]]:
        return self._sampled(prompts, sampling, on_complete)

    def _sampled(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        on_complete: OnComplete | None,
    ) -> list[list[Completion]]:
        require_room(prompts, sampling.max_tokens, self._room, "model")
        noise = torch.Generator(self.device).manual_seed(sampling.seed)
        batch = self._prompts_at_once(prompts, sampling)
        groups: list[list[Completion]] = []
        for start in range(0, len(prompts), batch):

            def report(p: int, group: Sequence[Completion], start: int = start) -> None:
                if on_complete is not None:
                    on_complete(start + p, group)

            decoding = self._decoding(prompts[start : start + batch], sampling, noise)
            groups += decoding.run(report)
        return groups

    @torch.inference_mode()
    def extend(
        self,
        responses: Sequence[Unfinished],
        sampling: Sampling,
        on_continued: OnContinued | None = None,
    ) -> list[Completion]:
        return self._extended(responses, sampling, on_continued)

    def _extended(
        self,
        responses: Sequence[Unfinished],
        sampling: Sampling,
        on_continued: OnContinued | None,
    ) -> list[Completion]:
        if not responses:
            return []
        prompts = [(*response.prompt, *response.ids) for response in responses]
        longest = max(response.until - len(response.ids) for response in responses)
        sampling = replace(sampling, per_prompt=1, max_tokens=longest)
        for response in responses:
            require_room([response.prompt], response.until, self._room, "model")
        noise = torch.Generator(self.device).manual_seed(sampling.seed)
        batch = self._prompts_at_once(prompts, sampling)
        continued: list[Completion] = []
        for start in range(0, len(prompts), batch):

            def report(p: int, group: Sequence[Completion], start: int = start) -> None:
                if on_continued is not None:
                    on_continued(start + p, group[0])

            part = slice(start, start + batch)
            decoding = self._decoding(prompts[part], sampling, noise)
            decoding.follow(responses[part])
            continued += [group[0] for group in decoding.run(report)]
        return continued

    def _prompts_at_once(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> int:
        del prompts
        return max(1, self._max_batch // sampling.per_prompt)

    def _decoding(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, noise: torch.Generator
    ) -> "Decoding":
        return Decoding(self, prompts, sampling, noise)

    def sleep(self) -> None:
        raise NotImplementedError("the torch sampler has no GPU memory to release")

    def close(self) -> None:
        del self._model


class Decoding:
    """The decoding state of one batch. What it keeps of each row is on the CPU."""

    def __init__(
        self,
        engine: TorchSampler,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        noise: torch.Generator,
    ) -> None:
        self.model, self.tokenizer = engine._model, engine._tokenizer
        self.ends, self.sampling, self.noise = engine._ends, sampling, noise
        self.last = None if engine._room is None else engine._room - 1  # position
        self.n = sampling.per_prompt
        self.tokens: list[list[int]] = [[] for _ in range(len(prompts) * self.n)]
        self.logp: list[list[float]] = [[] for _ in self.tokens]
        self.left = dict.fromkeys(range(len(prompts)), self.n)  # unfinished rows per prompt
        self.groups: dict[int, list[Completion]] = {}
        self.finish: list[Any] = ["length"] * len(self.tokens)
        self.row_N = torch.arange(len(self.tokens))  # response index of each row of the batch
        self.unfinished_N = torch.ones(len(self.tokens), dtype=torch.bool)  # unfinished
        self.limits = torch.full([len(self.tokens)], sampling.max_tokens)  # new tokens by response
        self._prefill(prompts)

    def follow(self, responses: Sequence[Unfinished]) -> None:
        """The prompts end with these tokens of responses, one response to each."""
        self.tokens = [list(response.ids) for response in responses]
        self.logp = [list(response.logp) for response in responses]
        self.limits = torch.tensor([r.until - len(r.ids) for r in responses])

    def _prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        longest = max(map(len, prompts))
        ids_PT = torch.zeros(len(prompts), longest, dtype=torch.int64)
        attended_PT = torch.zeros_like(ids_PT)
        for p, prompt in enumerate(prompts):  # padded on the left: the last column is the newest
            ids_PT[p, longest - len(prompt) :] = torch.tensor(prompt)
            attended_PT[p, longest - len(prompt) :] = 1
        self.cache = spare_capacity_cache(self.model.config)
        logits_PV = self._forward(ids_PT, attended_PT)
        if self.n > 1:  # else it would copy the cache
            self.cache.batch_repeat_interleave(self.n)
        self.attended_NT = attended_PT.repeat_interleave(self.n, dim=0)
        self.logits_NV = logits_PV.repeat_interleave(self.n, dim=0)

    def _forward(self, ids_NT: Tensor, attended_NT: Tensor) -> Tensor:
        positions_NT = (attended_NT.cumsum(1) - 1)[:, -ids_NT.shape[1] :]
        positions_NT = positions_NT.clamp(min=0, max=self.last)  # of padding, of finished rows
        return self.model(
            input_ids=ids_NT,
            attention_mask=attended_NT,
            position_ids=positions_NT,
            past_key_values=self.cache,
            **_PASS,
        ).logits[:, -1]

    def run(self, on_complete: OnComplete) -> list[list[Completion]]:
        for length in range(1, self.sampling.max_tokens + 1):
            token_N, logp_N = self._choose()
            self._append(token_N.cpu(), logp_N.cpu())
            self._end(self.unfinished_N & (self.limits[self.row_N] == length))
            self._complete(on_complete)
            if not self.unfinished_N.any():
                break
            self._advance(token_N)
        return [self.groups[p] for p in range(len(self.groups))]

    def _complete(self, on_complete: OnComplete) -> None:
        """Build and report the completions of prompts without unfinished rows."""
        for p in [p for p, left in self.left.items() if not left]:
            del self.left[p]
            self.groups[p] = [
                Completion(
                    ids=tuple(self.tokens[row]),
                    logp=tuple(self.logp[row]),
                    finish=self.finish[row],
                )
                for row in range(p * self.n, (p + 1) * self.n)
            ]
            on_complete(p, self.groups[p])

    def _choose(self) -> tuple[Tensor, Tensor]:
        temperature = self.sampling.temperature
        logp_NV = (self.logits_NV.float() / (temperature or 1.0)).log_softmax(1)
        if temperature:
            logp_NV = _nucleus(logp_NV, self.sampling.top_p)
            exponential_NV = torch.empty_like(logp_NV).exponential_(generator=self.noise)
            token_N = (logp_NV - exponential_NV.log()).argmax(1)  # Gumbel-max trick
        else:
            token_N = logp_NV.argmax(1)
        return token_N, logp_NV.gather(1, token_N[:, None]).squeeze(1)

    def _append(self, token_N: Tensor, logp_N: Tensor) -> None:
        """Append the tokens of unfinished rows and mark the rows that they finish."""
        for row, token, logp in zip(
            self.row_N[self.unfinished_N].tolist(),
            token_N[self.unfinished_N].tolist(),
            logp_N[self.unfinished_N].tolist(),
            strict=True,
        ):
            self.tokens[row].append(token)
            self.logp[row].append(logp)
        ended_N = self.unfinished_N & (torch.isin(token_N, self.ends) | self._stopped())
        for row in self.row_N[ended_N].tolist():
            self.finish[row] = "stop"
        self._end(ended_N)

    def _end(self, ended_N: Tensor) -> None:
        for row in self.row_N[ended_N].tolist():
            self.left[row // self.n] -= 1
        self.unfinished_N &= ~ended_N

    def _stopped(self) -> Tensor:
        """Bool [N], rows whose text ends with a stop string."""
        stop = self.sampling.stop
        if not stop:
            return torch.zeros(len(self.row_N), dtype=torch.bool)
        window = max(len(s.encode()) for s in stop) + 8  # a token is at least one byte of it
        ends = [self.tokens[row][-window:] for row in self.row_N.tolist()]
        tails = self.tokenizer.batch_decode(ends, skip_special_tokens=False)
        return torch.tensor([any(s in tail for s in stop) for tail in tails])

    def _advance(self, token_N: Tensor) -> None:
        """Compute the next logits. Finished rows are dropped together, as dropping any copies the
        keys and values of the others."""
        keep = self.unfinished_N.nonzero().squeeze(1)
        if len(keep) <= COMPACT_BELOW * len(token_N):
            token_N, self.row_N = token_N[keep], self.row_N[keep]
            self.attended_NT = self.attended_NT[keep]
            self.unfinished_N = self.unfinished_N[keep]
            self.cache.batch_select_indices(keep)
        one_N1 = self.attended_NT.new_ones(len(token_N), 1)
        self.attended_NT = torch.cat([self.attended_NT, one_N1], dim=1)
        self.logits_NV = self._forward(token_N[:, None], self.attended_NT)


def _nucleus(logp_NV: Tensor, top_p: float) -> Tensor:
    """Renormalised log-probs of the fewest likeliest tokens with total probability `top_p`; -inf
    elsewhere (Holtzman et al. 2020, arXiv 1904.09751, section 3.1)."""
    if top_p == 1.0:
        return logp_NV
    sorted_NV, order_NV = logp_NV.sort(1, descending=True)
    p_NV = sorted_NV.exp()
    beyond_NV = p_NV.cumsum(1) - p_NV >= top_p  # likelier tokens reach top_p already
    cut_NV = torch.zeros_like(beyond_NV).scatter(1, order_NV, beyond_NV)
    return logp_NV.masked_fill(cut_NV, -torch.inf).log_softmax(1)


class SpareCapacityLayer(DynamicLayer):
    """`DynamicLayer` whose keys and values are views of larger tensors, [N, H, T, D].

    A new token is written into spare positions, without a copy of the earlier ones.
    """

    _buffers: tuple[Tensor, Tensor] | None = None  # that keys and values are views of

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append positions; returns all keys and values."""
        del args, kwargs
        length = self.get_seq_length()
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        new_length = length + key_states.shape[2]
        if self._buffers is None or self._buffers[0].shape[2] < new_length:
            self._buffers = tuple(  # type: ignore[assignment]
                _grown(old, new, length, new_length + SPARE)
                for old, new in ((self.keys, key_states), (self.values, value_states))
            )
        assert self._buffers is not None
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, length:new_length] = new
        self.keys, self.values = (buffer[:, :, :new_length] for buffer in self._buffers)
        return self.keys, self.values

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._buffers = None
        super().batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: Tensor) -> None:
        self._buffers = None
        super().batch_select_indices(indices)


def _grown(old: Tensor | None, new: Tensor, length: int, capacity: int) -> Tensor:
    buffer = new.new_empty(*new.shape[:2], capacity, new.shape[-1])
    if length and old is not None:
        buffer[:, :, :length] = old
    return buffer


def spare_capacity_cache(config: Any) -> DynamicCache:
    """An empty cache for a model; sliding-window layers keep their own class."""
    cache = DynamicCache(config=config)
    cache.layers = [
        SpareCapacityLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache
