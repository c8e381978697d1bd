"""The plan's rows of a recipe that trains on several ranks or samples on servers."""

from veriloop.pipeline.config.cluster import ClusterConfig
from veriloop.pipeline.config.registry import StageRecipe
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.config.sections import Ranked
from veriloop.pipeline.dry_run.budget import Shapes
from veriloop.pipeline.dry_run.memory import MIB, Rows


def cluster_rows(recipe: StageRecipe, shapes: Shapes) -> Rows:
    """Placement, memory of each rank and bytes of a weight sync; none without `cluster`."""
    if not isinstance(recipe, Ranked) or recipe.cluster == ClusterConfig():
        return []
    shape = shapes(recipe.start)
    parameters, sent = None if shape is None else shape.parameters, 0.0
    if isinstance(recipe, RLRecipe):
        sent = (parameters or 0) * {"float32": 4, "bfloat16": 2}[recipe.sampler.dtype] / MIB
        return _server_rows(recipe, sent) + _rank_rows(recipe, parameters, sent)
    return _rank_rows(recipe, parameters, sent)


def _server_rows(recipe: RLRecipe, sent: float) -> Rows:
    samplers, deadlines = recipe.cluster.samplers, recipe.cluster.deadlines
    if not samplers.urls:
        return []
    size = f"{sent:,.1f} MiB" if sent else "weights"
    return [
        (
            "servers",
            f"{len(samplers.urls)} vLLM: {', '.join(samplers.urls)}; up to "
            f"{recipe.sampler.max_batch} asks each, {deadlines.answer_s:g} s for an answer",
        ),
        (
            "weight files",
            f"{size} a sync in {samplers.folder or 'the run folder'}, loaded by each server within "
            f"{deadlines.sync_s:g} s",
        ),
    ]


def _rank_rows(recipe: Ranked, parameters: int | None, sent: float) -> Rows:
    cluster, trainer = recipe.cluster, recipe.cluster.trainer
    if cluster.ranks == 1:
        return []
    rows = [
        (
            "cluster",
            f"{trainer.nodes} x {trainer.ranks} = {cluster.ranks} ranks; on each machine "
            f"`{cluster.launcher}`; rank 0 samples, judges and writes",
        )
    ]
    if parameters is None:
        return rows
    adapters = recipe.trainer.lora.rank > 0
    roles = {"weights" if adapters else "weights, gradients, two moments": 4 if adapters else 16}
    learns = isinstance(recipe, RLRecipe)
    if learns and recipe.algorithm.kl_coefficient:
        roles["reference"] = 4
    if learns and recipe.algorithm.critic == "separate":
        roles["critic"] = 16
    size = sum(roles.values()) * parameters / cluster.ranks / MIB
    parts = "; ".join(f"{role}: {count}" for role, count in roles.items())
    start = 4 * parameters / MIB
    rows.append(
        (
            "a rank holds",
            f"{size:,.1f} MiB in shards ({parts} bytes a parameter, over {cluster.ranks}), one "
            f"block at a time whole, and activations; {start:,.1f} MiB while the start loads",
        )
    )
    if not isinstance(recipe, RLRecipe):
        return rows
    return [
        *rows,
        (
            "weight sync",
            f"{4 * parameters / MIB:,.1f} MiB gathered tensor by tensor, {sent:,.1f} MiB to "
            "the sampler",
        ),
    ]
