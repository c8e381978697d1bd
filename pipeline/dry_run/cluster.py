"""The plan's rows of a recipe that trains on several ranks or samples on servers."""

from veriloop.data.counts import counted
from veriloop.pipeline.config.cluster import ClusterConfig, ClusterSamplers
from veriloop.pipeline.config.preference import CollectPreferencesRecipe
from veriloop.pipeline.config.registry import StageRecipe
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.config.sections import Ranked
from veriloop.pipeline.dry_run.budget import Shapes
from veriloop.pipeline.dry_run.memory import MIB, Rows

Served = RLRecipe | CollectPreferencesRecipe  # whose answers servers can sample


def cluster_rows(recipe: StageRecipe, shapes: Shapes) -> Rows:
    """Placement, memory of each rank and bytes of a weight sync; none without `cluster`."""
    if not isinstance(recipe, Ranked | Served) or recipe.cluster == ClusterConfig():
        return []
    shape = shapes(recipe.start)
    parameters, sent = None if shape is None else shape.parameters, 0.0
    if isinstance(recipe, Served):
        sent = (parameters or 0) * {"float32": 4, "bfloat16": 2}[recipe.sampler.dtype] / MIB
    servers = _server_rows(recipe, sent) if isinstance(recipe, Served) else []
    return servers + (_rank_rows(recipe, parameters, sent) if isinstance(recipe, Ranked) else [])


def _server_rows(recipe: Served, sent: float) -> Rows:
    samplers, deadlines = recipe.cluster.samplers, recipe.cluster.deadlines
    if not samplers.served:
        return []
    size = f"{sent:,.1f} MiB" if sent else "weights"
    return [
        (
            "servers",
            f"{_servers(recipe)}; up to {counted(recipe.sampler.max_batch, 'request')} each; "
            f"a server silent for {deadlines.answer_s:g} s is left out",
        ),
        _way_row(samplers, size, deadlines.sync_s),
    ]


def _way_row(samplers: ClusterSamplers, size: str, sync_s: float) -> tuple[str, str]:
    if not samplers.sent:
        folder = samplers.folder or "the run folder"
        return (
            "weight files",
            f"{size} a sync in {folder}, loaded by each server within {sync_s:g} s",
        )
    by = {"gloo": "a process group of gloo", "nccl": "a process group of NCCL, untested",
          "ipc": "memory of this machine"}[samplers.weights]  # fmt: skip
    return "weights", f"{size} a sync through {by}; {sync_s:g} s for a server to take a part"


def _servers(recipe: Served) -> str:
    samplers = recipe.cluster.samplers
    if samplers.urls:
        return f"{len(samplers.urls)} vLLM: {', '.join(samplers.urls)}"
    each = f"{counted(samplers.gpus, 'GPU')} each" if samplers.gpus else "on a CPU"
    return f"{samplers.count} vLLM, started by Ray ({recipe.cluster.ray}), {each}"


def _rank_rows(recipe: Ranked, parameters: int | None, sent: float) -> Rows:
    cluster, trainer = recipe.cluster, recipe.cluster.trainer
    if cluster.ranks == 1:
        return []
    samples = "" if cluster.samplers.served else "samples, "
    rows = [
        (
            "cluster",
            f"{trainer.nodes} x {trainer.ranks} = {cluster.ranks} ranks; on each machine "
            f"`{cluster.launcher}`; rank 0 {samples}judges and writes",
        )
    ]
    if not isinstance(recipe, RLRecipe):
        return rows
    rows.append(("micro-batches", _micro_batches(recipe)))
    if parameters is None:
        return rows
    return [
        *rows,
        (
            "weight sync",
            f"{4 * parameters / MIB:,.1f} MiB gathered tensor by tensor, {sent:,.1f} MiB to "
            "the sampler",
        ),
    ]


def _micro_batches(recipe: RLRecipe) -> str:
    """The most of one optimizer step on a rank: every response has its greatest length."""
    rollout, rows = recipe.rollout, recipe.trainer.rows
    responses = rollout.prompts * rollout.per_prompt // recipe.algorithm.minibatches
    length = rollout.max_prompt + rollout.max_tokens
    row = max(recipe.trainer.row, length - 1)
    a_row = max(1, row // length)
    each = -(-responses // (a_row * rows * recipe.cluster.ranks))
    return (
        f"at most {each} on a rank and optimizer step: {responses:,} responses of at most "
        f"{length:,} tokens, {counted(rows, 'row')} of {row:,}"
    )
