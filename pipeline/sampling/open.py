"""Open the sampling engine of a recipe."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from veriloop.pipeline.config.cluster import ClusterConfig
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.model.device import CPU, find_device
from veriloop.pipeline.model.loading import require_files
from veriloop.pipeline.model.sharded import joined_ranks
from veriloop.pipeline.sampling import engine_process
from veriloop.pipeline.sampling.engine_cache import kept_warm
from veriloop.pipeline.sampling.prelaunch import engine_of, is_installed, taken
from veriloop.pipeline.sampling.process_engine import ApartSampler
from veriloop.pipeline.sampling.sampler import Sampler


def open_sampler(
    config: SamplerConfig,
    checkpoint: str,
    *,
    max_length: int,
    say: Callable[[str], None],
    cores: Collection[int] = (),
) -> Sampler:
    """An engine loaded with `checkpoint`. `max_length` counts prompt and response tokens.

    `engine: auto` is vLLM if installed, else torch, which is reported through `say`. Raises
    ModuleNotFoundError for a named engine that is not installed. With `cores` the engine always
    runs in a separate process on these. Inside `warm_samplers` it can be the engine of an earlier
    stage, with room for more than `max_length` tokens. Raises RecipeError for a checkpoint with
    missing or damaged files.
    """
    engine = engine_of(config)
    if config.engine == "auto" and engine == "torch":
        why = "the stage began with it" if is_installed() else "vLLM is not installed"
        say(f"sampler: {why}; using the torch sampler (same contract)")
    if engine == "vllm" and not is_installed():
        raise ModuleNotFoundError(
            "sampler.engine=vllm, but vLLM is not installed in this environment; install it "
            "(`make install` tries) or set sampler.engine to torch"
        )
    device = CPU
    if engine == "torch":
        device = find_device(config.device, "sampler.device")
        if device == CPU:
            config.require_cpu()

    require_files(checkpoint)  # before a process starts; the torch engine checks the tensors

    def start(length: int) -> Sampler:
        settings: dict[str, Any] = {
            "max_length": length,
            "dtype": config.dtype,
            "cache_gib": config.cache_gib,
            "max_batch": config.max_batch,
            "sleep": config.sleep,
            "graphs": config.graphs,
            "device": str(device),
        }
        # vLLM in this process would join the trainer's ranks.
        if config.apart or cores or (engine == "vllm" and joined_ranks().count > 1):
            process = taken(engine, cores)
            return ApartSampler(process, checkpoint, deadline_s=config.deadline_s, **settings)
        if engine == "vllm":
            from veriloop.pipeline.sampling.vllm_engine import require_own_model

            require_own_model(checkpoint)
        return engine_process.start_engine(engine, checkpoint, **settings)

    return kept_warm(start, engine, config, checkpoint, max_length, cores)


def open_servers(
    cluster: ClusterConfig,
    config: SamplerConfig,
    checkpoint: str,
    run: Path,
    *,
    max_length: int,
    say: Callable[[str], None],
) -> Sampler:
    """The servers of a section `cluster`, which sample once they have loaded weights.

    `run`: the folder of the run. `max_length` counts prompt and response tokens.
    """
    from veriloop.pipeline.sampling.served import ServedSampler  # imports an HTTP client

    servers = None
    if cluster.samplers.count:
        from veriloop.pipeline.sampling.ray_servers import RayServers

        servers = RayServers(cluster, config, checkpoint, max_length=max_length, say=say)
    return ServedSampler(
        cluster, config, checkpoint, run, max_length=max_length, say=say, servers=servers
    )
