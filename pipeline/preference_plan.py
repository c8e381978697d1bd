"""What a recipe of preference optimisation or of a reward model means before it runs."""

from pipeline.preference_config import PreferenceRecipe, RewardModelRecipe

MIB = 2**20
Rows = list[tuple[str, str]]


def preference_rows(recipe: PreferenceRecipe | RewardModelRecipe, parameters: int | None) -> Rows:
    """Quantities with how they come about; `parameters` is None for a start that is not here."""
    rows = _preference(recipe) if isinstance(recipe, PreferenceRecipe) else _reward(recipe)
    return rows + _memory(recipe, parameters)


def _preference(recipe: PreferenceRecipe) -> Rows:
    schedule = recipe.schedule
    unit = "answers" if recipe.loss.name == "kto" else "pairs"
    return [
        ("loss", f"{recipe.loss.name}, {_reference(recipe)}"),
        ("schedule", f"{schedule.name}: {schedule.rounds} rounds x {schedule.epochs} passes"),
        ("data", _sampled(recipe) if schedule.samples else _data(recipe)),
        ("optimizer steps", f"of {recipe.batch} {unit} each"),
        ("measured on", f"{recipe.data.held_out} held-out rows"),
    ]


def _reference(recipe: PreferenceRecipe) -> str:
    if not recipe.loss.has_reference:
        return "without a reference"
    return {
        "offline": "the start is the reference, scored once and kept",
        "online": "the start is the reference, held in memory",
        "curriculum": "each round begins with a new reference",
        "iterative": "each round begins with a new reference",
    }[recipe.schedule.name]


def _data(recipe: PreferenceRecipe | RewardModelRecipe) -> str:
    data = recipe.data
    rows = f"{data.rows:,} rows" if data.rows else "every row but the held-out ones"
    return f"{rows} of {data.source}"


def _sampled(recipe: PreferenceRecipe) -> str:
    rollout, label = recipe.rollout, recipe.label
    judge = label.reward_model if label.by == "reward_model" else "the verifiers"
    return (
        f"{rollout.prompts} prompts x {rollout.per_prompt} answers a round, at most "
        f"{rollout.prompts * label.pairs} pairs, judged by {judge}"
    )


def _reward(recipe: RewardModelRecipe) -> Rows:
    anchors = recipe.anchors or "the best held-out answers"
    return [
        ("data", _data(recipe)),
        ("optimizer steps", f"of {recipe.batch} rows each, {recipe.epochs} passes"),
        ("measured on", f"{recipe.data.held_out} held-out rows"),
        ("zero point", f"mean reward of {anchors}"),
    ]


def _memory(recipe: PreferenceRecipe | RewardModelRecipe, count: int | None) -> Rows:
    if count is None:
        return [("memory", f"unknown: {recipe.start} is not here to be measured")]
    trained, held = recipe.trainer.held
    copies: dict[str, float] = {held: trained}
    if isinstance(recipe, PreferenceRecipe) and recipe.problems is not None:
        copies["sampler"] = 4
        if recipe.schedule.name == "online" and recipe.loss.has_reference:
            copies["reference"] = 4
    per = sum(copies.values())
    told = ", ".join(f"{name}: {size:g}" for name, size in copies.items())
    total = f"{per * count / MIB:,.1f} MiB, and activations"
    return [
        ("parameters", f"{count:,}"),
        ("memory", f"{per:g} bytes a parameter ({told}) = {total}"),
    ]
