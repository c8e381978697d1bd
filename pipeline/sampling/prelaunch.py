"""Start a sampler's process before this one imports torch, so that both load concurrently."""

import importlib.util
from collections.abc import Collection

from veriloop.pipeline.config.cluster import ClusterConfig
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.sampling.process_engine import EngineProcess
from veriloop.sandbox.host import affinity

_waiting: EngineProcess | None = None
_kept = ""


def engine_of(config: SamplerConfig) -> str:
    """The engine of the recipe; `auto` is that of `keep`, else vllm if installed, else torch."""
    if config.engine != "auto":
        return config.engine
    return _kept or ("vllm" if is_installed() else "torch")


def is_installed() -> bool:
    """Whether vLLM is installed."""
    return importlib.util.find_spec("vllm") is not None


def keep(engine: str | None) -> None:
    """Have `auto` be the engine with which a resumed stage began; None: the rule of a new stage.

    Raises RecipeError if that engine is not installed any more.
    """
    global _kept
    if engine == "vllm" and not is_installed():
        raise RecipeError(
            "the stage began with vLLM as its sampler, which is not installed here, and the torch "
            "sampler draws other samples: install vLLM, or start a new run with another --output"
        )
    _kept = engine if engine in ("torch", "vllm") else ""


def halves() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The cores of trainer and sampler when both work concurrently. A single core is shared."""
    cores = sorted(affinity())
    middle = len(cores) // 2
    return tuple(cores[:middle] or cores), tuple(cores[middle:])


def begin(config: SamplerConfig, cores: Collection[int] = ()) -> None:
    """Start the process that `taken` will return."""
    global _waiting
    forget()
    _waiting = EngineProcess(engine_of(config), cores)


def served(recipe: object) -> bool:
    """Whether servers of its section `cluster` sample for the recipe."""
    cluster = getattr(recipe, "cluster", None)
    return isinstance(cluster, ClusterConfig) and cluster.samplers.served


def begin_for(*recipes: object) -> None:
    """Start the process of the first recipe whose sampler runs in a separate one."""
    for recipe in recipes:
        sampler, rollout = getattr(recipe, "sampler", None), getattr(recipe, "rollout", None)
        ahead = getattr(rollout, "ahead", 0)
        if served(recipe):
            continue
        if isinstance(sampler, SamplerConfig) and (sampler.apart or ahead):
            begin(sampler, halves()[1] if ahead else ())
            return


def taken(engine: str, cores: Collection[int] = ()) -> EngineProcess:
    """The process already started for this engine and these cores, or a new one."""
    global _waiting
    started, _waiting = _waiting, None
    if started is not None:
        if (started.engine, started.cores) == (engine, tuple(sorted(cores))):
            return started
        started.stop()
    return EngineProcess(engine, cores)


def forget() -> None:
    """End a process that was started and never used."""
    global _waiting
    if _waiting is not None:
        _waiting.stop()
        _waiting = None
