"""Sampling with vLLM in this process; weights are replaced in place after every update."""

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._dynamo import config as dynamo

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.device import give_back_unused
from veriloop.pipeline.model.policy import eos_ids, load_generation_config, load_tokenizer
from veriloop.pipeline.sampling.memory_policy import memory_policy_kept
from veriloop.pipeline.sampling.sampler import (
    Completion,
    Digest,
    OnComplete,
    OnContinued,
    Sampling,
    Unfinished,
    continued,
    digests,
    require_room,
)
from veriloop.pipeline.sampling.vllm_cpu import (
    CACHE_BLOCK,
    STEP_TOKENS,
    draw_by_uniforms,
    norm_settings,
)
from veriloop.pipeline.sampling.vllm_weights import held_weights, repack_head
from veriloop.pipeline.training import rng
from veriloop.pipeline.training.gc_freeze import lasting

QUIET = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in this process: weights are passed by reference
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CONFIGURE_LOGGING": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


FREE_SHARE = 0.05  # of a GPU's memory, free at start; the cache size is set separately
GPU = 0  # of those that this process sees: where vLLM works


class VllmSampler:
    """vLLM's `LLM` with processed log-probs; on a GPU eager without `graphs`.

    On a GPU one seed makes all tokens of a call, in the order in which they are sampled: with seeds
    of their own vLLM samples row by row. On the CPU each response has its own seed, so its tokens
    do not depend on the others. `sleep` needs a GPU: raises RecipeError if vLLM runs on the CPU.
    """

    name = "vllm"
    pid: int | None = None

    def __init__(
        self,
        checkpoint: str,
        *,
        max_length: int,
        dtype: str = "float32",
        cache_gib: float = 1.0,
        max_batch: int = 512,
        sleep: bool = False,
        graphs: bool = True,
    ) -> None:
        from transformers import AutoConfig

        self.on_gpu = _on_gpu(sleep=sleep)
        self._graphs = graphs and self.on_gpu
        self._tied = bool(AutoConfig.from_pretrained(checkpoint).tie_word_embeddings)
        ends = eos_ids(load_generation_config(checkpoint), load_tokenizer(checkpoint))
        self._stop_ids = list(ends)
        self._max_length = max_length
        self.dtype = dtype
        with self._compiling():
            self._engine = _started(
                checkpoint,
                dtype=dtype,
                max_model_len=max_length,
                max_num_seqs=max_batch,
                kv_cache_memory_bytes=int(cache_gib * 2**30),
                enforce_eager=not self._graphs,  # 10-20 s or more, and on a CPU for little
                logprobs_mode="processed_logprobs",  # after the temperature, as in the trainer
                **_settings(on_gpu=self.on_gpu, sleep=sleep, max_length=max_length),
                **({} if self.on_gpu else norm_settings()),
            )
            if not self.on_gpu:
                self._engine.collective_rpc(draw_by_uniforms)
        self._asleep = False
        self.version = 0

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        with self._on_its_gpu():
            self._load(weights)
        self.version = version

    def _load(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        if self._asleep:
            give_back_unused()
            self._engine.wake_up(tags=["weights"])
        self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": _ready(weights)})
        if self._tied:
            self._engine.collective_rpc(_repack_head)
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()  # the trainer may change the weights afterwards
        if self._asleep:
            give_back_unused()
            self._engine.wake_up(tags=["kv_cache"])
            self._asleep = False
        if not self._engine.reset_prefix_cache():
            raise RuntimeError("vLLM kept its prefix cache: stale keys and values would be reused")

    def digests(self, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[str, Digest]]:
        with self._on_its_gpu():
            return self._engine.collective_rpc(_held_digests, args=(dict(shapes), self._tied))[0]

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        on_complete: OnComplete | None = None,
    ) -> list[list[Completion]]:
        require_room(prompts, sampling.max_tokens, self._max_length)
        parameters = [self._parameters(sampling, i) for i in range(len(prompts))]
        with self._on_its_gpu(), self._seeded(sampling.seed), self._compiling():
            return self._sampled(prompts, parameters, on_complete)

    def extend(
        self,
        responses: Sequence[Unfinished],
        sampling: Sampling,
        on_continued: OnContinued | None = None,
    ) -> list[Completion]:
        for response in responses:
            require_room([response.prompt], response.until, self._max_length)
        prompts = [(*response.prompt, *response.ids) for response in responses]
        parameters = [
            self._parameters(
                replace(sampling, per_prompt=1, max_tokens=response.until - len(response.ids)), i
            )
            for i, response in enumerate(responses)
        ]

        def report(index: int, group: Sequence[Completion]) -> None:
            if on_continued is not None:
                on_continued(index, continued(responses[index], group[0]))

        with self._on_its_gpu(), self._seeded(sampling.seed), self._compiling():
            groups = self._sampled(prompts, parameters, report)
        return [continued(r, group[0]) for r, group in zip(responses, groups, strict=True)]

    def _on_its_gpu(self) -> AbstractContextManager[Any]:
        """The engine's GPU as the current one: that of the trainer may be another."""
        return torch.cuda.device(GPU) if self.on_gpu else nullcontext()

    def _compiling(self) -> AbstractContextManager[None]:
        """Whether torch compiles functions of the engine; those of the trainer it always does.

        Compiling one small function takes 2 s at the first token and gains nothing on a CPU. CUDA
        graphs need compiled functions.
        """
        return dynamo.patch(disable=not self._graphs)

    def _seeded(self, seed: int) -> AbstractContextManager[None]:
        """On a GPU, the seed of vLLM's generators in this process."""
        return rng.seeded(seed) if self.on_gpu else nullcontext()

    def _sampled(
        self,
        prompts: Sequence[Sequence[int]],
        parameters: Sequence[Any],
        on_complete: OnComplete | None,
    ) -> list[list[Completion]]:
        request_ids = self._engine.enqueue(
            [{"prompt_token_ids": list(prompt)} for prompt in prompts],
            parameters,
            use_tqdm=False,
        )
        indices = {request.partition("-")[0]: i for i, request in enumerate(request_ids)}
        groups: dict[int, list[Completion]] = {}
        while self._engine.llm_engine.has_unfinished_requests():
            for output in self._engine.llm_engine.step():
                i = indices[output.request_id]
                groups[i] = [_completion(choice) for choice in output.outputs]
                if on_complete is not None:
                    on_complete(i, groups[i])
        return [groups[i] for i in range(len(prompts))]

    def sleep(self) -> None:
        with self._on_its_gpu():
            self._engine.sleep(level=2)  # drops the weights; `load_weights` restores them
        self._asleep = True

    def _parameters(self, sampling: Sampling, index: int) -> Any:
        from vllm import SamplingParams

        seeded = sampling.temperature > 0 and not self.on_gpu
        return SamplingParams(
            n=sampling.per_prompt,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            seed=sampling.seed_of(index * sampling.per_prompt) if seeded else None,
            stop=list(sampling.stop) or None,
            stop_token_ids=self._stop_ids,
            logprobs=0,  # of the sampled token only
            flat_logprobs=True,
            detokenize=bool(sampling.stop),
            skip_special_tokens=False,
        )

    def close(self) -> None:
        import gc

        with self._on_its_gpu():
            # when an engine is collected it ends the process groups of any other
            self._engine.llm_engine.engine_core.shutdown()
            del self._engine
            gc.collect()


def _started(checkpoint: str, **settings: Any) -> Any:
    """vLLM's engine without progress bars."""
    with _undeprecated(), _process_as_it_was():
        return imported()(checkpoint, disable_log_stats=True, use_tqdm_on_load=False, **settings)


@contextmanager
def _process_as_it_was() -> Iterator[None]:
    """Undo what vLLM changes in the whole process as it starts.

    On a CPU it makes `torch.set_num_threads` do nothing: later stages could not give half of the
    cores to their sampler. It binds all memory to one NUMA node, where a trainer may need more than
    one has. It seeds every generator with 0: a user's functions would draw other numbers after a
    start than with an engine that was kept. It makes its GPU the current one, which is the
    trainer's.
    """
    gpu = torch.cuda.current_device() if torch.cuda.is_initialized() else None
    set_num_threads, generators = torch.set_num_threads, rng.capture()
    try:
        with memory_policy_kept():
            yield
    finally:
        torch.set_num_threads = set_num_threads
        if gpu is not None:
            torch.cuda.set_device(gpu)
        rng.restore(generators)


def _ready(weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """One at a time, as merged weights are copies; synchronised, as vLLM has its own stream."""
    for name, weight in weights:
        if weight.is_cuda:
            torch.cuda.synchronize(weight.device)
        yield name, weight.detach()


def _on_gpu(*, sleep: bool) -> bool:
    """Whether vLLM runs on a GPU. Raises RecipeError if it cannot sleep."""
    imported()
    from vllm.platforms import current_platform

    gpu = current_platform.is_cuda()
    if sleep and not gpu:
        raise RecipeError(
            f"sampler.sleep=True needs a GPU, but vLLM runs on {current_platform.device_name}; set "
            "false"
        )
    return gpu


def _settings(*, on_gpu: bool, sleep: bool, max_length: int) -> dict[str, Any]:
    if on_gpu:
        return {
            "max_num_batched_tokens": STEP_TOKENS,
            "enable_chunked_prefill": True,
            "gpu_memory_utilization": FREE_SHARE,
            "enable_sleep_mode": sleep,
        }
    return {  # chunked prefill rewinds generators of requests, which fails on a CPU
        "block_size": CACHE_BLOCK,
        "max_num_batched_tokens": max(max_length, STEP_TOKENS),
        "enable_chunked_prefill": False,
    }


def imported() -> Any:
    """vLLM's `LLM`, set to be quiet and to run in this process.

    Imported in a thread of its own: vLLM keeps exceptions of its imports, and with them the frames
    of all callers and the models in those.
    """
    for variable, value in QUIET.items():
        os.environ.setdefault(variable, value)
    with _undeprecated(), lasting(), ThreadPoolExecutor(1) as thread:
        return thread.submit(_llm).result()


def _llm() -> Any:
    from vllm import LLM

    return LLM


def require_own_model(checkpoint: str) -> None:
    """Raise RecipeError for a model that vLLM runs by patching the class that the trainer uses."""
    from transformers import AutoConfig

    imported()
    from vllm.model_executor.models.registry import _VLLM_MODELS

    for name in AutoConfig.from_pretrained(checkpoint).architectures or ():
        module, kind = _VLLM_MODELS.get(name, ("transformers", "none"))
        if module == "transformers":
            raise RecipeError(
                f"sampler.apart=False: vLLM has no implementation of {name} ({kind}); it would "
                "patch transformers' class, which the trainer uses in the same process. Set "
                "sampler.apart: true, or sampler.engine: torch"
            )


@contextmanager
def _undeprecated() -> Iterator[None]:
    """Suppress the deprecation warnings of vLLM's imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield


def _completion(choice: Any) -> Completion:
    if choice.finish_reason not in ("stop", "length"):
        raise RuntimeError(f"vLLM ended a response with {choice.finish_reason!r}")
    return Completion(
        ids=tuple(choice.token_ids),
        logp=tuple(choice.logprobs.logprobs),
        finish=choice.finish_reason,
    )


def _repack_head(worker: Any) -> None:
    repack_head(worker.model_runner.get_model())


def _held_digests(
    worker: Any, shapes: Mapping[str, tuple[int, ...]], tied: bool
) -> list[tuple[str, Digest]]:
    """Of the weights that the engine computes with; runs in its worker."""
    return digests(held_weights(worker.model_runner.get_model(), shapes, tied=tied))
