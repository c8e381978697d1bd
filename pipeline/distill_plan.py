"""What a recipe of distillation means before it runs."""

from pathlib import Path

from pipeline.distill_config import DistillRecipe

MIB = 2**20
Rows = list[tuple[str, str]]


def distill_rows(recipe: DistillRecipe, student: int | None, teacher: int | None) -> Rows:
    """Quantities with how they come about; parameters are None for a model that is not here."""
    named = recipe.teacher or "none: the answers of a file"
    shown = f"{named}, {teacher:,} parameters" if teacher else named
    rows: Rows = [("method", recipe.method), ("teacher", shown)]
    rows += _on_policy(recipe) if recipe.method == "on_policy" else _offline(recipe)
    return rows + _memory(recipe, student, teacher)


def _on_policy(recipe: DistillRecipe) -> Rows:
    rollout, parts = recipe.rollout, recipe.minibatches
    rollouts = rollout.prompts * rollout.per_prompt
    told = {
        "sampled": "reverse KL, from the sampled token",
        "jsd": f"generalised JSD, beta {recipe.beta:g}, over the vocabulary",
    }.get(recipe.divergence, f"{recipe.divergence}, over the vocabulary")
    return [
        ("loss", told),
        (
            "rollouts a step",
            f"{rollout.prompts} prompts x {rollout.per_prompt} responses = {rollouts:,}",
        ),
        ("optimizer steps", f"{parts} a rollout of {rollouts // parts} responses each"),
        ("whole run", f"{recipe.steps} steps = {recipe.steps * rollouts:,} rollouts"),
    ]


def _offline(recipe: DistillRecipe) -> Rows:
    data = recipe.data
    rows = f"{data.rows:,} rows" if data.rows else "every row"
    there = "" if data.source == "arithmetic" or Path(data.source).is_file() else " (not here)"
    rate = f"{recipe.optimizer.learning_rate:g}"
    if recipe.optimizer.schedule == "cosine":
        rate += f", on a cosine to {recipe.optimizer.learning_rate * recipe.optimizer.floor:g}"
    found: Rows = [
        ("data", f"{rows} of {data.source}{there}"),
        ("optimizer steps", f"of {recipe.batch} rows each, {recipe.epochs} epochs"),
        ("learning rate", rate),
    ]
    if recipe.method == "logits":
        size = 8 * recipe.top_k + 4
        kept = f"{recipe.top_k} ids a token and the mass of the rest: {size} bytes on disk"
        found.insert(1, ("kept of the teacher", kept))
    return found


def _memory(recipe: DistillRecipe, student: int | None, teacher: int | None) -> Rows:
    if student is None or (recipe.teacher and teacher is None):
        missing = recipe.start if student is None else recipe.teacher
        return [("memory", f"unknown: {missing} is not here to be measured")]
    trained, held = recipe.trainer.held
    copies = {held: trained}
    if recipe.method == "on_policy":
        copies["sampler"] = {"float32": 4, "bfloat16": 2}[recipe.sampler.dtype]
    told = ", ".join(f"{name}: {size}" for name, size in copies.items())
    total = (sum(copies.values()) * student + 4 * (teacher or 0)) / MIB
    return [
        ("parameters", f"{student:,}"),
        ("memory", f"{sum(copies.values())} bytes a parameter ({told}), 4 of the teacher's = "
                   f"{total:,.1f} MiB, and activations"),
    ]  # fmt: skip
