"""What a supervised recipe means before it runs."""

from pathlib import Path

from pipeline.sft_config import ColdStartRecipe, RejectionRecipe, SFTRecipe, SupervisedRecipe

MIB = 2**20
Rows = list[tuple[str, str]]


def supervised_rows(recipe: SupervisedRecipe, parameters: int | None) -> Rows:
    """Quantities with how they come about; `parameters` is None for a start that is not here."""
    first = _file(recipe) if isinstance(recipe, SFTRecipe) else _collected(recipe)
    return first + _learning(recipe) + _memory(recipe, parameters)


def _file(recipe: SFTRecipe) -> Rows:
    data = recipe.data
    rows = f"{data.rows:,} rows" if data.rows else "every row"
    there = "" if data.source == "arithmetic" or Path(data.source).is_file() else " (not here)"
    return [("data", f"{rows} of {data.source}{there}")]


def _collected(recipe: ColdStartRecipe | RejectionRecipe) -> Rows:
    asked = recipe.collect
    samples = asked.questions * asked.per_prompt
    kept = min(asked.questions * min(asked.keep, asked.per_prompt), asked.rows or samples)
    rows: Rows = [
        ("teacher", recipe.teacher),
        ("sampled", f"{asked.questions:,} questions x {asked.per_prompt} answers = {samples:,}"),
        ("kept", f"at most {kept:,}: {asked.keep} of one question's good answers"),
    ]
    if isinstance(recipe, RejectionRecipe) and recipe.general.reasoning:
        share = recipe.general.reasoning
        general = round(kept / share)
        rows.append(("general", f"{general:,} rows at most, one to {share:g} of reasoning, of "
                                f"{recipe.general.source}"))  # fmt: skip
    return rows


def _learning(recipe: SupervisedRecipe) -> Rows:
    asked, problems = recipe.optimizer, recipe.evaluation.problems
    rate = f"{asked.learning_rate:g}"
    if asked.schedule == "cosine":
        rate += f", on a cosine to {asked.learning_rate * asked.floor:g}"
    rows: Rows = [
        ("optimizer steps", f"of {recipe.batch} rows each, {recipe.epochs} epochs"),
        ("learning rate", rate),
        ("held out", f"{recipe.data.held_out} rows"),
    ]
    return [*rows, ("evaluation", f"{problems} problems at both ends")] if recipe.examine else rows


def _memory(recipe: SupervisedRecipe, count: int | None) -> Rows:
    if count is None:
        return [("memory", f"unknown: {recipe.start} is not here to be measured")]
    per, held = recipe.trainer.held
    return [
        ("parameters", f"{count:,}"),
        ("memory", f"{per} bytes a parameter ({held}) = {per * count / MIB:,.1f} MiB, and "
                   "activations"),
    ]  # fmt: skip
