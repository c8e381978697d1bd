"""Pick the sampling engine that the recipe names, or the best one that this machine has."""

import importlib.util
from collections.abc import Callable

from pipeline.config import SamplerConfig
from pipeline.sampling.sampler import Sampler
from pipeline.sampling.warm import kept_warm


def open_sampler(
    config: SamplerConfig, checkpoint: str, *, max_length: int, say: Callable[[str], None]
) -> Sampler:
    """An engine loaded with `checkpoint`. `max_length` counts prompt and response tokens.

    `engine: auto` takes vLLM where it is installed and otherwise torch, and says so. An engine
    that is asked for by name and missing is an error. Inside `warm_samplers` it can be the engine
    of an earlier stage, and more than `max_length` tokens can fit.
    """
    engine = config.engine
    installed = importlib.util.find_spec("vllm") is not None
    if engine == "auto":
        engine = "vllm" if installed else "torch"
        if not installed:
            say("sampler: vLLM is not installed here; using the torch sampler (same contract)")
    if engine == "vllm":
        if not installed:
            raise ModuleNotFoundError(
                "sampler.engine=vllm, but vLLM is not installed in this environment; install it "
                "(`make install` tries) or set sampler.engine to torch"
            )
    elif config.dtype != "float32":
        raise ValueError(f"sampler.dtype={config.dtype!r}: the torch sampler knows float32 only")
    return kept_warm(
        lambda length: _started(engine, config, checkpoint, length),
        engine,
        config,
        checkpoint,
        max_length,
    )


def _started(engine: str, config: SamplerConfig, checkpoint: str, max_length: int) -> Sampler:
    if engine == "vllm":
        from pipeline.sampling.vllm_engine import VllmSampler

        return VllmSampler(
            checkpoint,
            max_length=max_length,
            dtype=config.dtype,
            cache_gib=config.cache_gib,
            max_batch=config.max_batch,
        )
    from pipeline.sampling.torch_engine import TorchSampler

    return TorchSampler(checkpoint, max_batch=config.max_batch)
