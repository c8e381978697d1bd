"""Sampling with plain torch: one prefill a prompt, a key-value cache, finished rows dropped.

Axes: P prompts, N = P * per_prompt rows, T positions of the padded prompts, V vocabulary.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline.policy import eos_ids, load_policy, load_tokenizer
from pipeline.sampling.sampler import Completion, Sampling, Told

STAYING = 7 / 8  # share of a batch's rows that go on, from which the others leave it


class TorchSampler:
    """The reference engine: slow beside vLLM on large models, exact, and runs everywhere."""

    name = "torch"
    pid: int | None = None

    def __init__(self, checkpoint: str, *, max_batch: int = 512) -> None:
        self._model = load_policy(checkpoint).eval()
        if getattr(self._model, "_is_stateful", False):
            kind = type(self._model).__name__
            raise ValueError(
                f"the torch sampler keeps keys and values; {kind} keeps a state instead: set "
                "sampler.engine to vllm"
            )
        self._tokenizer = load_tokenizer(checkpoint)
        self._ends = torch.tensor(eos_ids(self._model.generation_config, self._tokenizer))
        self._max_batch = max_batch
        self.version = 0

    @torch.no_grad()
    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        own = dict(self._model.named_parameters())
        given = dict(weights)
        if own.keys() != given.keys():
            wrong = sorted(own.keys() ^ given.keys())
            raise ValueError(f"{len(wrong)} weights do not match by name, first: {wrong[0]!r}")
        for name, weight in given.items():
            own[name].copy_(weight)
        self.version = version

    @torch.inference_mode()
    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, told: Told | None = None
    ) -> list[list[Completion]]:
        room = self._model.config.max_position_embeddings
        for i, prompt in enumerate(prompts):
            if len(prompt) + sampling.max_tokens > room:
                raise ValueError(
                    f"prompt {i} has {len(prompt)} tokens; with max_tokens={sampling.max_tokens} "
                    f"it exceeds the model's {room} positions"
                )
        noise = torch.Generator().manual_seed(sampling.seed)
        at_once = max(1, self._max_batch // sampling.per_prompt)
        groups: list[list[Completion]] = []
        for start in range(0, len(prompts), at_once):
            decoding = _Decoding(self, prompts[start : start + at_once], sampling, noise)
            groups += decoding.run(lambda p, group, start=start: told and told(start + p, group))
        return groups

    def sleep(self) -> None:
        raise NotImplementedError("the torch sampler has no card's memory to give back")

    def close(self) -> None:
        del self._model


class _Decoding:
    """One batch on its way from prompts to completions."""

    def __init__(
        self,
        engine: TorchSampler,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        noise: torch.Generator,
    ) -> None:
        self.model, self.tokenizer = engine._model, engine._tokenizer
        self.ends, self.sampling, self.noise = engine._ends, sampling, noise
        self.n = sampling.per_prompt
        self.written: list[list[int]] = [[] for _ in range(len(prompts) * self.n)]
        self.logp: list[list[float]] = [[] for _ in self.written]
        self.left = dict.fromkeys(range(len(prompts)), self.n)  # rows of a prompt that go on
        self.groups: dict[int, list[Completion]] = {}
        self.finish: list[Any] = ["length"] * len(self.written)
        self.row_N = torch.arange(len(self.written))  # the response of each row of the batch
        self.going_N = torch.ones(len(self.written), dtype=torch.bool)  # it has not ended
        self._prefill(prompts)

    def _prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        from pipeline.sampling.roomy_cache import roomy_cache

        longest = max(map(len, prompts))
        ids_PT = torch.zeros(len(prompts), longest, dtype=torch.int64)
        seen_PT = torch.zeros_like(ids_PT)
        for p, prompt in enumerate(prompts):  # padded on the left: the last column is the newest
            ids_PT[p, longest - len(prompt) :] = torch.tensor(prompt)
            seen_PT[p, longest - len(prompt) :] = 1
        self.cache = roomy_cache(self.model.config)
        logits_PV = self._forward(ids_PT, seen_PT)
        if self.n > 1:
            self.cache.batch_repeat_interleave(self.n)
        self.seen_NT = seen_PT.repeat_interleave(self.n, dim=0)
        self.logits_NV = logits_PV.repeat_interleave(self.n, dim=0)

    def _forward(self, ids_NT: Tensor, seen_NT: Tensor) -> Tensor:
        positions_NT = (seen_NT.cumsum(1) - 1).clamp(min=0)[:, -ids_NT.shape[1] :]
        return self.model(
            input_ids=ids_NT,
            attention_mask=seen_NT,
            position_ids=positions_NT,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]

    def run(self, told: Told) -> list[list[Completion]]:
        for written in range(1, self.sampling.max_tokens + 1):
            token_N, logp_N = self._choose()
            self._write(token_N, logp_N)
            self._tell(told)
            if written == self.sampling.max_tokens or not self.going_N.any():
                break
            self._advance(token_N)
        self.left = dict.fromkeys(self.left, 0)
        self._tell(told)
        return [self.groups[p] for p in range(len(self.groups))]

    def _tell(self, told: Told) -> None:
        """Make the completions of the prompts of which nothing goes on."""
        for p in [p for p, left in self.left.items() if not left]:
            del self.left[p]
            self.groups[p] = [
                Completion(
                    ids=tuple(self.written[row]),
                    logp=tuple(self.logp[row]),
                    finish=self.finish[row],
                )
                for row in range(p * self.n, (p + 1) * self.n)
            ]
            told(p, self.groups[p])

    def _choose(self) -> tuple[Tensor, Tensor]:
        temperature = self.sampling.temperature
        logp_NV = (self.logits_NV.float() / (temperature or 1.0)).log_softmax(-1)
        if temperature:
            logp_NV = _nucleus(logp_NV, self.sampling.top_p)
            exponential_NV = torch.empty_like(logp_NV).exponential_(generator=self.noise)
            token_N = (logp_NV - exponential_NV.log()).argmax(-1)  # Gumbel's trick
        else:
            token_N = logp_NV.argmax(-1)
        return token_N, logp_NV.gather(1, token_N[:, None]).squeeze(1)

    def _write(self, token_N: Tensor, logp_N: Tensor) -> None:
        """Take down the tokens of the rows that go on, and which of those end with them."""
        for row, token, logp in zip(
            self.row_N[self.going_N].tolist(),
            token_N[self.going_N].tolist(),
            logp_N[self.going_N].tolist(),
            strict=True,
        ):
            self.written[row].append(token)
            self.logp[row].append(logp)
        ended_N = self.going_N & (torch.isin(token_N, self.ends) | self._stopped())
        for row in self.row_N[ended_N].tolist():
            self.finish[row] = "stop"
            self.left[row // self.n] -= 1
        self.going_N &= ~ended_N

    def _stopped(self) -> Tensor:
        """Which rows stand at the end of a stop string."""
        stop = self.sampling.stop
        if not stop:
            return torch.zeros(len(self.row_N), dtype=torch.bool)
        window = max(map(len, stop)) + 8  # a token is at least one byte of the string
        tails = self.tokenizer.batch_decode(
            [self.written[row][-window:] for row in self.row_N.tolist()],
            skip_special_tokens=False,
        )
        return torch.tensor([any(s in tail for s in stop) for tail in tails])

    def _advance(self, token_N: Tensor) -> None:
        """One position further; rows that have ended leave together, since the others' keys and
        values are copied when any do."""
        keep = self.going_N.nonzero().squeeze(1)
        if len(keep) <= STAYING * len(token_N):
            token_N, self.row_N, self.seen_NT = token_N[keep], self.row_N[keep], self.seen_NT[keep]
            self.going_N = self.going_N[keep]
            self.cache.batch_select_indices(keep)
        self.seen_NT = torch.cat([self.seen_NT, self.seen_NT.new_ones(len(token_N), 1)], dim=1)
        self.logits_NV = self._forward(token_N[:, None], self.seen_NT)


def _nucleus(logp_NV: Tensor, top_p: float) -> Tensor:
    """Renormalised log-probs of the fewest likeliest tokens with `top_p` together; -inf elsewhere
    (Holtzman et al. 2020, arXiv 1904.09751, section 3.1)."""
    if top_p == 1.0:
        return logp_NV
    sorted_NV, order_NV = logp_NV.sort(dim=-1, descending=True)
    p_NV = sorted_NV.exp()
    beyond_NV = p_NV.cumsum(-1) - p_NV >= top_p  # the likelier ones are enough without it
    cut_NV = torch.zeros_like(beyond_NV).scatter(1, order_NV, beyond_NV)
    return logp_NV.masked_fill(cut_NV, -torch.inf).log_softmax(-1)
