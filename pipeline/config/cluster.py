"""The section `cluster` of a recipe: ranks that train together, and servers that sample."""

import os
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from veriloop.pipeline.config.fields import Count, NotNegative, Part, Positive
from veriloop.pipeline.errors import RecipeError

TRAINS_NOTHING = "collect_preferences"  # a stage with servers that sample and without ranks


class ClusterTrainer(Part):
    nodes: Count = 1
    """Machines that train."""
    ranks: Count = 1
    """Processes of each machine. One for each of its GPUs."""
    gpu_gib: NotNegative = 0.0
    """Memory of a GPU, GiB. A run whose plan needs more is refused; 0: not checked."""
    host_gib: NotNegative = 0.0
    """The same of a machine's own memory."""


def _servers(urls: tuple[str, ...]) -> tuple[str, ...]:
    """The base URLs without trailing slashes. Raises ValueError for anything else."""
    if not urls:
        return urls
    from veriloop.sandbox.remote.connection import Address  # imports an HTTP client

    bases = tuple(Address.read(url).url for url in urls)
    if twice := [url for url in bases if bases.count(url) > 1]:
        raise ValueError(f"urls={urls}: {twice[0]} is named twice; name each server once")
    return bases


class ClusterSamplers(Part):
    urls: Annotated[tuple[str, ...], AfterValidator(_servers)] = ()
    """vLLM servers that sample and run already. () and `count: 0`: the engine of `sampler`."""
    count: Annotated[int, Field(ge=0)] = 0
    """vLLM servers that Ray starts for this run, see `cluster.ray`."""
    gpus: Annotated[int, Field(ge=0)] = 1
    """GPUs of each server that Ray starts; 0: it runs on a CPU."""
    weights: Literal["auto", "files", "gloo", "nccl", "ipc"] = "auto"
    """How they get new weights. auto: files.

    By files in a shared folder, through a process group of gloo (between CPUs) or NCCL (between
    GPUs), or by memory of the same machine (ipc).
    """
    folder: str = ""
    """Shared folder for these files. "": the run folder; every server must see it."""

    @property
    def sent(self) -> bool:
        """Whether weights are sent to the servers without files."""
        return self.weights not in ("auto", "files")

    @property
    def served(self) -> bool:
        """Whether servers sample, and not an engine of the run."""
        return bool(self.urls or self.count)


class Deadlines(Part):
    rank_s: Positive = 600.0
    """Seconds that a rank may be late, in an update or to join after rank 0. Rank 0 itself joins
    when it has fetched models and data."""
    answer_s: Positive = 900.0
    """Seconds in which a server answers none of its requests. After that others are asked."""
    sync_s: Positive = 120.0
    """Seconds for a server to be reached and to load weights."""


class RanksConfig(Part):
    trainer: ClusterTrainer = ClusterTrainer()
    """Processes that divide weights, optimizer and micro-batches among them."""
    deadlines: Deadlines = Deadlines()
    """Bounds on waiting for other processes."""

    @property
    def ranks(self) -> int:
        return self.trainer.nodes * self.trainer.ranks

    @property
    def launcher(self) -> str:
        """The command that starts the ranks on each machine, without what finds the others."""
        nodes = f" --nnodes {self.trainer.nodes}" if self.trainer.nodes > 1 else ""
        # without -- torchrun reads --start of the words that follow as its own --start-method
        return f"torchrun{nodes} --nproc-per-node {self.trainer.ranks} -m -- veriloop"


class ClusterConfig(RanksConfig):
    samplers: ClusterSamplers = ClusterSamplers()
    """Servers that sample instead of an engine of this run."""
    ray: str = ""
    """Ray cluster that starts the servers: auto, its address, or local for one of this machine."""

    @model_validator(mode="after")
    def _servers_come_from_one_place(self) -> Self:
        samplers = self.samplers
        if unread := _unread(samplers):
            raise ValueError(unread)
        if samplers.urls and samplers.count:
            raise ValueError(
                f"cluster.samplers has urls={samplers.urls} and count={samplers.count}: name "
                "servers that run already or let Ray start some, not both"
            )
        if samplers.count and not self.ray:
            raise ValueError(
                f"cluster.samplers.count={samplers.count} without cluster.ray: Ray starts these "
                "servers; set cluster.ray to auto, to its address, or to local"
            )
        if self.ranks > 1 and samplers.sent and self.deadlines.sync_s >= self.deadlines.rank_s:
            raise ValueError(
                f"cluster.deadlines: sync_s={self.deadlines.sync_s:g} and "
                f"rank_s={self.deadlines.rank_s:g} with cluster.samplers.weights="
                f"{samplers.weights}: while a server is waited for, the other ranks wait in the "
                "middle of the weights; set sync_s below rank_s"
            )
        if self.ray and not samplers.count:
            raise ValueError(
                f"cluster.ray={self.ray!r} with cluster.samplers.count=0: Ray starts nothing else; "
                "set a count, or ray: ''"
            )
        return self


def _unread(samplers: ClusterSamplers) -> str:
    """What is wrong with a setting that nothing reads; "" without one."""
    named = {name: getattr(samplers, name) for name in ("gpus", "weights", "folder")}
    for name, value in named.items():
        if value == ClusterSamplers.model_fields[name].default:
            continue
        if not samplers.served:
            return (
                f"cluster.samplers.{name}={value!r} without urls or count: an engine of the run "
                f"samples; name servers, or leave {name} out"
            )
        if name == "gpus" and samplers.urls:
            return (
                f"cluster.samplers.gpus={value} with urls: it is for servers that Ray starts; "
                "leave it out"
            )
    return ""


def require_suited(samplers: ClusterSamplers, sampler: Any, device: str) -> None:
    """Raise ValueError for settings of `sampler` that only an engine of the run has, and for a way
    of the weights that does not suit the trainer's `device`."""
    if not samplers.served:
        return
    _require_way(samplers, device)
    if sampler.engine == "torch":
        raise ValueError(
            "sampler.engine=torch with servers in cluster.samplers: these are vLLM's; set "
            "engine: auto or vllm"
        )
    for name in ("device", "apart", "deadline_s", "sleep"):
        value, default = getattr(sampler, name), type(sampler).model_fields[name].default
        if value != default:
            raise ValueError(
                f"sampler.{name}={value} with servers in cluster.samplers: it is for an engine of "
                f"the run itself; set {default}"
            )
    if samplers.count and samplers.gpus > 1 and sampler.dtype == "bfloat16":
        raise ValueError(
            f"cluster.samplers.gpus={samplers.gpus} with sampler.dtype=bfloat16: weights that a "
            "server divides among GPUs cannot be read back, by which bfloat16 is verified; set "
            "gpus: 1, or dtype: float32"
        )


def _require_way(samplers: ClusterSamplers, device: str) -> None:
    way = f"cluster.samplers.weights={samplers.weights}"
    if samplers.weights == "nccl":
        if device == "cpu":
            raise ValueError(f"{way} with trainer.device=cpu: NCCL sends memory of GPUs; set gloo")
        if samplers.count and not samplers.gpus:
            raise ValueError(
                f"{way} with cluster.samplers.gpus=0: NCCL sends memory of GPUs; set gloo"
            )
    if samplers.folder and samplers.sent:
        raise ValueError(
            f"{way} with cluster.samplers.folder={samplers.folder!r}: only files are written there;"
            " set weights: files, or no folder"
        )


def cluster_of(recipe: Any) -> ClusterConfig:
    """The section `cluster` of a stage's recipe; one of a single process if it has none."""
    return getattr(recipe, "cluster", ClusterConfig())


def world_size() -> int:
    """The number of processes that torchrun started; 1 without it. Raises RecipeError as
    `launched_rank` does."""
    return _number_in("WORLD_SIZE", 1)


def _number_in(variable: str, default: int) -> int:
    text = os.environ.get(variable, "").strip()
    if text and not text.isdecimal():
        raise RecipeError(f"{variable}={text!r} in the environment is no number; unset it")
    return int(text) if text else default


def launched_rank(recipe: Any) -> int:
    """This process's rank among those of the recipe; 0 if it is the only one.

    Raises RecipeError if torchrun started another number of processes than the recipe asks for,
    and for a variable of it that is no number.
    """
    cluster = cluster_of(recipe)
    world = world_size()
    if world == cluster.ranks:
        return _number_in("RANK", 0) if world > 1 else 0
    if world > 1 and (not hasattr(recipe, "cluster") or recipe.stage == TRAINS_NOTHING):
        raise RecipeError(
            f"WORLD_SIZE={world}: the stage {recipe.stage!r} runs in one process; start it "
            "without torchrun"
        )
    trainer = cluster.trainer
    raise RecipeError(
        f"cluster.trainer asks for {trainer.nodes} x {trainer.ranks} = {cluster.ranks} ranks, but "
        f"WORLD_SIZE={world}: start it with `{cluster.launcher} ...`, or set "
        "--cluster.trainer.nodes and --cluster.trainer.ranks"
    )
