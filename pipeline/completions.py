"""OpenAI's completions by the torch sampler: what comes after a prompt, or how likely it is itself.

Axes: T tokens of a prompt, V vocabulary.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field

from pipeline.policy import eos_ids, load_generation_config, load_policy, load_tokenizer
from pipeline.sampling.sampler import Sampling
from pipeline.sampling.torch_engine import TorchSampler


class CompletionRequest(BaseModel):
    """What may be asked. A key that is not here is refused: to leave it out would answer another
    question."""

    model_config = ConfigDict(extra="forbid")

    prompt: str | list[int] | list[str] | list[list[int]]
    model: str = ""
    max_tokens: Annotated[int, Field(ge=0)] = 16
    temperature: float = 1.0
    top_p: float = 1.0
    n: Annotated[int, Field(ge=1)] = 1
    stop: str | list[str] | None = None
    seed: int | None = None  # none: 0
    echo: bool = False  # answer with the prompt and its log-probs
    logprobs: int | None = None  # with `echo`: of each token, and of the likeliest in its place
    skip_special_tokens: bool = True  # in the text of an answer

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [self.prompt]  # pyright: ignore[reportReturnType]
        return self.prompt  # pyright: ignore[reportReturnType]

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class Completions:
    """A checkpoint that answers requests, one after the other."""

    def __init__(self, checkpoint: Path, max_batch: int) -> None:
        self._checkpoint, self._one = checkpoint, Lock()
        self._tokenizer = load_tokenizer(checkpoint)
        self._ends = eos_ids(load_generation_config(checkpoint), self._tokenizer)
        self._sampler = TorchSampler(str(checkpoint), max_batch=max_batch)

    def answer(self, request: CompletionRequest) -> dict[str, Any]:
        """A text completion. Raises ValueError for what cannot be sampled or scored."""
        prompts = [self._ids(prompt) for prompt in request.prompts]
        with self._one:
            answered = self._scored if request.echo else self._sampled
            made = answered(prompts, request)
        choices = [{"index": index, **one} for index, one in enumerate(made)]
        return {"object": "text_completion", "model": request.model, "choices": choices}

    def _ids(self, prompt: str | list[int]) -> list[int]:
        ids = self._tokenizer(prompt).input_ids if isinstance(prompt, str) else prompt
        if not ids:
            raise ValueError("a prompt needs at least one token")
        return ids

    def _sampled(
        self, prompts: Sequence[list[int]], request: CompletionRequest
    ) -> list[dict[str, Any]]:
        if request.logprobs is not None:
            raise ValueError("logprobs are given with echo only")
        sampling = Sampling(
            per_prompt=request.n,
            temperature=request.temperature,
            top_p=request.top_p,
            max_tokens=request.max_tokens,
            seed=request.seed or 0,
            stop=request.stops,
        )
        return [
            {"text": self._text(one.ids, request), "logprobs": None, "finish_reason": one.finish}
            for group in self._sampler.sample(prompts, sampling)
            for one in group
        ]

    def _text(self, ids: Sequence[int], request: CompletionRequest) -> str:
        """What was written, up to the first stop string and without it."""
        kept = ids[:-1] if ids[-1] in self._ends else ids
        text = self._tokenizer.decode(list(kept), skip_special_tokens=request.skip_special_tokens)
        return text[: min((at for s in request.stops if (at := text.find(s)) >= 0), default=None)]

    def _scored(
        self, prompts: Sequence[list[int]], request: CompletionRequest
    ) -> list[dict[str, Any]]:
        if request.max_tokens > 1 or request.n > 1:
            raise ValueError("echo scores a prompt: max_tokens is 0 or 1, and n is 1")
        return [self._score(ids, request.max_tokens) for ids in prompts]

    @torch.inference_mode()
    def _score(self, ids: list[int], more: int) -> dict[str, Any]:
        """The prompt, and the likeliest `more` tokens after it, with their log-probs in nats."""
        room = self._policy.config.max_position_embeddings
        if len(ids) + more > room:
            raise ValueError(f"{len(ids) + more} tokens exceed the model's {room} positions")
        logp_TV = self._policy(input_ids=torch.tensor([ids])).logits[0].float().log_softmax(-1)
        best_T = logp_TV.max(-1)
        whole = [*ids, *best_T.indices[-1:].tolist()][: len(ids) + more]
        told = [self._tokenizer.decode([one]) for one in whole]
        own = [logp_TV[place, one].item() for place, one in enumerate(whole[1:])]
        likeliest = [self._tokenizer.decode([one]) for one in best_T.indices.tolist()]
        rows = zip(told[1:], own, likeliest, best_T.values.tolist(), strict=False)
        top = [{token: logp, other: highest} for token, logp, other, highest in rows]
        logprobs = {"tokens": told, "token_logprobs": [None, *own], "top_logprobs": [None, *top]}
        return {"text": "".join(told), "logprobs": logprobs, "finish_reason": "length"}

    @cached_property
    def _policy(self) -> Any:
        return load_policy(self._checkpoint).eval()
