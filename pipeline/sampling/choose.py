"""Pick the sampling engine that the recipe names, or the best one that this machine has."""

import importlib.util
from collections.abc import Callable, Collection
from typing import Any

from pipeline.config import SamplerConfig
from pipeline.sampling import engines
from pipeline.sampling.apart import ApartSampler
from pipeline.sampling.early import engine_of, taken
from pipeline.sampling.sampler import Sampler
from pipeline.sampling.warm import kept_warm


def open_sampler(
    config: SamplerConfig,
    checkpoint: str,
    *,
    max_length: int,
    say: Callable[[str], None],
    cores: Collection[int] = (),
) -> Sampler:
    """An engine loaded with `checkpoint`. `max_length` counts prompt and response tokens.

    `engine: auto` takes vLLM where it is installed and otherwise torch, and says so. An engine
    that is asked for by name and missing is an error. With `cores` the engine is in a process of
    its own, on these, whether or not the recipe asks for one. Inside `warm_samplers` it can be
    the engine of an earlier stage, and more than `max_length` tokens can fit.
    """
    engine = engine_of(config)
    if config.engine == "auto" and engine == "torch":
        say("sampler: vLLM is not installed here; using the torch sampler (same contract)")
    if engine == "vllm":
        if importlib.util.find_spec("vllm") is None:
            raise ModuleNotFoundError(
                "sampler.engine=vllm, but vLLM is not installed in this environment; install it "
                "(`make install` tries) or set sampler.engine to torch"
            )
    else:
        config.require_torch()

    def start(length: int) -> Sampler:
        settings: dict[str, Any] = {
            "max_length": length,
            "dtype": config.dtype,
            "cache_gib": config.cache_gib,
            "max_batch": config.max_batch,
            "sleep": config.sleep,
            "graphs": config.graphs,
        }
        if config.apart or cores:
            return ApartSampler(taken(engine, cores), checkpoint, **settings)
        if engine == "vllm":
            from pipeline.sampling.vllm_engine import require_own_model

            require_own_model(checkpoint)
        return engines.start(engine, checkpoint, **settings)

    return kept_warm(start, engine, config, checkpoint, max_length, cores)
