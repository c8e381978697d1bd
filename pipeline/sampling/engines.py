"""The engines by name, and how each is started from a checkpoint."""

import importlib

from pipeline.sampling.sampler import Sampler


def import_early(engine: str) -> None:
    """Import what the engine needs before its checkpoint is known; the engine's own `start`, where
    it is missing, says so."""
    if engine == "vllm":
        from pipeline.sampling.vllm_engine import imported

        imported()
    else:
        importlib.import_module("pipeline.sampling.torch_engine")


def start(
    engine: str,
    checkpoint: str,
    *,
    max_length: int,
    dtype: str,
    cache_gib: float,
    max_batch: int,
    sleep: bool = False,
    graphs: bool = False,
) -> Sampler:
    """An engine in this process, loaded with the checkpoint; settings as in `SamplerConfig`."""
    if engine == "vllm":
        from pipeline.sampling.vllm_engine import VllmSampler

        return VllmSampler(
            checkpoint,
            max_length=max_length,
            dtype=dtype,
            cache_gib=cache_gib,
            max_batch=max_batch,
            sleep=sleep,
            graphs=graphs,
        )
    from pipeline.sampling.torch_engine import TorchSampler

    return TorchSampler(checkpoint, max_batch=max_batch)
