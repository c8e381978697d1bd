"""Sampling with plain torch on a GPU: a static key-value cache, and CUDA graphs of its steps.

A step of a graph computes the next logits of a fixed number of rows, of which it reads a fixed
number of positions. There are a few sizes of both, each captured when it is first needed; finished
rows are dropped when the others fit the next smaller size.

Axes: P prompts, L positions of the padded prompts, N rows, D width, V vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.device import give_back_unused, require_bfloat16
from veriloop.pipeline.model.loading import first_line
from veriloop.pipeline.model.packed_attention import suits
from veriloop.pipeline.model.prepare import DTYPES
from veriloop.pipeline.model.probe import output_head
from veriloop.pipeline.sampling import static_cache
from veriloop.pipeline.sampling.sampler import (
    Completion,
    OnComplete,
    OnContinued,
    Sampling,
    Unfinished,
)
from veriloop.pipeline.sampling.static_cache import NextTokens, Prompts, StaticCache
from veriloop.pipeline.sampling.torch_engine import Decoding, TorchSampler

STRIDE = 256  # positions by which the part of the cache that is read grows
PREFILL = 16_384  # positions of padded prompts computed at once
GIB = 2**30


class StaticSampler(TorchSampler):
    """The contract of `TorchSampler` on a GPU. On the CPU the same computation without graphs."""

    def __init__(
        self,
        checkpoint: str,
        *,
        device: torch.device,
        dtype: str = "float32",
        cache_gib: float = 1.0,
        max_batch: int = 512,
        graphs: bool = True,
    ) -> None:
        if dtype == "bfloat16":
            require_bfloat16(device, "sampler.dtype")
        super().__init__(checkpoint, max_batch=max_batch, dtype=dtype)
        config = self._model.config
        if not suits(config):
            raise RecipeError(
                f"sampler.device={device}: the torch sampler supports models with plain causal "
                f"attention on a GPU, and {config.model_type} has other layers; set "
                "sampler.device to cpu, or sampler.engine to vllm"
            )
        self.device = device
        self._model.to(device)
        self._head = output_head(self._model)
        static_cache.register()
        self._model.set_attn_implementation(static_cache.NAME)
        self._cache_gib = cache_gib
        self._graphs = graphs and device.type == "cuda"
        self._shapes: dict[str, torch.Size] = {}  # of the weights, while asleep
        self._steps: _Steps | None = None

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        if self._shapes:
            give_back_unused()
            for name, parameter in self._model.named_parameters():
                parameter.data = parameter.data.new_empty(self._shapes[name])
            self._shapes = {}
        super().load_weights(weights, version)

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        on_complete: OnComplete | None = None,
    ) -> list[list[Completion]]:
        with _current(self.device):
            return self._sampled(prompts, sampling, on_complete)

    @torch.no_grad()
    def extend(
        self,
        responses: Sequence[Unfinished],
        sampling: Sampling,
        on_continued: OnContinued | None = None,
    ) -> list[Completion]:
        with _current(self.device):
            return self._extended(responses, sampling, on_continued)

    def sleep(self) -> None:
        self._steps = None
        for name, parameter in self._model.named_parameters():
            self._shapes[name] = parameter.shape
            parameter.data = parameter.data.new_empty(0)
        give_back_unused()

    def close(self) -> None:
        self._steps = None
        super().close()

    def _prompts_at_once(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> int:
        """As many as the cache holds, which is made for them."""
        length = max(map(len, prompts), default=0) + sampling.max_tokens
        length = -(-length // STRIDE) * STRIDE
        each = length * static_cache.position_bytes(self._model.config, DTYPES[self.dtype])
        fitting = int(self._cache_gib * GIB) // each
        if fitting < sampling.per_prompt:
            raise RecipeError(
                f"sampler.cache_gib={self._cache_gib:g} holds {fitting} sequences of {length} "
                f"tokens, and a prompt has {sampling.per_prompt}; set at least "
                f"{sampling.per_prompt * each / GIB:.3g}"
            )
        at_once = max(1, min(self._max_batch, fitting) // sampling.per_prompt)
        rows = min(at_once, len(prompts)) * sampling.per_prompt
        if self._steps is None or not self._steps.hold(rows, length):
            self._steps = None  # releases the old cache first
            cache = StaticCache(self._model.config, rows, length, DTYPES[self.dtype], self.device)
            self._steps = _Steps(self._model, self._head, cache, graphs=self._graphs)
        return at_once

    def _decoding(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, noise: torch.Generator
    ) -> "_StaticDecoding":
        assert self._steps is not None, "`_prompts_at_once` makes them"
        return _StaticDecoding(self, prompts, sampling, noise, self._steps)


class _Steps:
    """The model on a cache: prompts, then steps of one token. Ids, positions and logits of the rows
    have fixed addresses."""

    def __init__(self, model: Any, head: Any, cache: StaticCache, *, graphs: bool) -> None:
        self._model, self._head, self.cache = model, head, cache
        weight = head.weight_VD
        self.ids_N = torch.zeros(cache.rows, dtype=torch.int64, device=weight.device)
        self.position_N = torch.zeros_like(self.ids_N)  # of `ids_N`
        self.logits_NV = torch.zeros(cache.rows, len(weight), device=weight.device)
        self._sizes = (*_sizes_below(cache.rows), cache.rows)
        self._captured: dict[tuple[int, int], Callable[[], None]] = {}
        self._pool = torch.cuda.graph_pool_handle() if graphs else None

    def hold(self, rows: int, length: int) -> bool:
        return rows <= self.cache.rows and length <= self.cache.length

    def size(self, rows: int) -> int:
        """Rows of the smallest step that has so many."""
        return next(size for size in self._sizes if size >= rows)

    def read(self, prompts: Sequence[Sequence[int]], repeats: int) -> None:
        """Compute the prompts and the logits after each."""
        self.position_N.zero_()  # also those of rows that are not used
        device, longest = self.ids_N.device, max(map(len, prompts))
        at_once = max(1, PREFILL // longest)
        for start in range(0, len(prompts), at_once):
            part = prompts[start : start + at_once]
            length_P = torch.tensor([len(prompt) for prompt in part])
            ids_PL = torch.zeros(len(part), int(length_P.max()), dtype=torch.int64)
            for ids_L, prompt in zip(ids_PL, part, strict=True):
                ids_L[: len(prompt)] = torch.tensor(prompt)
            ids_PL, length_P = ids_PL.to(device), length_P.to(device)
            view = Prompts(cache=self.cache, first=start * repeats, repeats=repeats)
            position_1L = torch.arange(ids_PL.shape[1], device=device)[None]
            hidden_PLD = self._hidden(ids_PL, position_1L, view)
            hidden_PD = hidden_PLD[torch.arange(len(part), device=device), length_P - 1]
            rows = slice(start * repeats, (start + len(part)) * repeats)
            self.logits_NV[rows] = self._logits(hidden_PD).repeat_interleave(repeats, 0)
            self.position_N[rows] = length_P.repeat_interleave(repeats)

    def advance(self, rows: int, length: int) -> None:
        """Compute the logits after `ids_N`, of the first `rows` rows, with the first `length`
        positions of the cache at least."""
        length = min(-(-length // STRIDE) * STRIDE, self.cache.length)
        if (rows, length) not in self._captured:

            def step() -> None:
                self._step(rows, length)

            self._captured[rows, length] = step if self._pool is None else self._capture(step)
        self._captured[rows, length]()
        self.position_N.add_(1)

    def keep(self, row_N: Tensor, length: int) -> None:
        """Move these rows to the front."""
        self.cache.keep(row_N, length)
        self.position_N[: len(row_N)] = self.position_N[row_N]

    def _step(self, rows: int, length: int) -> None:
        """Repeatable: all of its inputs and outputs are in fixed places."""
        position_N = self.position_N[:rows]
        view = NextTokens(self.cache, position_N, length)
        hidden_N1D = self._hidden(self.ids_N[:rows, None], position_N[:, None], view)
        self.logits_NV[:rows] = self._logits(hidden_N1D[:, 0])

    def _capture(self, step: Callable[[], None]) -> Callable[[], None]:
        try:
            return captured(step, self._pool)
        except RuntimeError as failure:
            raise RecipeError(
                f"sampler.graphs=True: {type(self._model).__name__} cannot be captured as a CUDA "
                f"graph ({first_line(failure)}); set false"
            ) from failure

    def _hidden(self, ids_NT: Tensor, position_NT: Tensor, view: static_cache.View) -> Tensor:
        return self._model.base_model(
            input_ids=ids_NT, position_ids=position_NT, use_cache=False, cache_view=view
        ).last_hidden_state

    def _logits(self, hidden_ND: Tensor) -> Tensor:
        """In float32, as in the trainer: rounded logits would change the distribution."""
        weight_VD, bias_V, scale, cap, _ = self._head
        if hidden_ND.is_cuda and hidden_ND.dtype != torch.float32:
            logits_NV = torch.mm(hidden_ND, weight_VD.t(), out_dtype=torch.float32)
        else:
            logits_NV = hidden_ND.float() @ weight_VD.float().t()
        if bias_V is not None:
            logits_NV += bias_V
        if scale != 1.0:
            logits_NV *= scale
        return cap * (logits_NV / cap).tanh() if cap else logits_NV


class _StaticDecoding(Decoding):
    def __init__(
        self,
        engine: StaticSampler,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        noise: torch.Generator,
        steps: _Steps,
    ) -> None:
        self._steps = steps
        super().__init__(engine, prompts, sampling, noise)

    def _prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        self._steps.read(prompts, self.n)
        self._filled = max(map(len, prompts))  # positions of the longest row
        self._size = self._steps.size(len(self.row_N))
        self.logits_NV = self._steps.logits_NV[: len(self.row_N)]

    def _advance(self, token_N: Tensor) -> None:
        """Finished rows are dropped when the others fit a step of fewer rows."""
        keep = self.unfinished_N.nonzero().squeeze(1)
        if (size := self._steps.size(len(keep))) < self._size:
            self._size, place = size, keep.to(token_N.device)
            self._steps.keep(place, self._filled)
            token_N = token_N[place]
            self.row_N, self.unfinished_N = self.row_N[keep], self.unfinished_N[keep]
        self._steps.ids_N[: len(token_N)] = token_N
        self._filled += 1
        self._steps.advance(self._size, self._filled)
        self.logits_NV = self._steps.logits_NV[: len(token_N)]


def captured(step: Callable[[], None], pool: Any) -> Callable[[], None]:
    """Runs `step` once, and returns a CUDA graph of it to replay."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()  # libraries choose kernels and take workspaces at the first call
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        step()
    return graph.replay


def _sizes_below(rows: int) -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, ..."""
    power = 1
    while power < rows:
        yield power
        if power > 1 and power * 3 // 2 < rows:
            yield power * 3 // 2
        power *= 2


def _current(device: torch.device) -> AbstractContextManager[Any]:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
