"""The plan's rows of a recipe that trains on several ranks."""

from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.dry_run.memory import MIB, Rows


def cluster_rows(recipe: RLRecipe, parameters: int | None) -> Rows:
    """Placement, memory of each rank and bytes of a weight sync; none for one process."""
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
    if recipe.algorithm.kl_coefficient:
        roles["reference"] = 4
    if recipe.algorithm.critic == "separate":
        roles["critic"] = 16
    size = sum(roles.values()) * parameters / cluster.ranks / MIB
    parts = "; ".join(f"{role}: {count}" for role, count in roles.items())
    sent = parameters * {"float32": 4, "bfloat16": 2}[recipe.sampler.dtype]
    start = 4 * parameters / MIB
    return [
        *rows,
        (
            "a rank holds",
            f"{size:,.1f} MiB in shards ({parts} bytes a parameter, over {cluster.ranks}), one "
            f"block at a time whole, and activations; {start:,.1f} MiB while the start loads",
        ),
        (
            "weight sync",
            f"{4 * parameters / MIB:,.1f} MiB gathered tensor by tensor, {sent / MIB:,.1f} MiB to "
            "the sampler",
        ),
    ]
