"""Whether a stage of a run still stands, or why it has to be done again."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from pipeline import lineage
from pipeline.grade import open_judges
from pipeline.recipe_kinds import StageRecipe
from verifiers.registry import fingerprint


def outdated(entry: Mapping[str, Any], recipe: StageRecipe, folder: Path) -> str:
    """What is no longer as `entry` of run.json has it, in a few words; "" when all stands.

    Looks at the recipe, at the content of what it reads, at the verifiers, and for a stage that is
    done at the content of what it made. `folder` is the stage's own.
    """
    traced, values = entry.get("lineage", {}), recipe.model_dump(mode="json")
    if "recipe" not in traced:
        return "run.json does not say what it was made of"
    return (
        _recipe_changed(entry["inputs"].get("recipe", {}), traced, values)
        or _inputs_changed(traced["inputs"], lineage.inputs(values))
        or _verifiers_changed(entry, recipe, folder)
        or (_outputs_changed(traced.get("outputs", {})) if entry["status"] == "done" else "")
    )


def _recipe_changed(
    before: Mapping[str, Any], traced: Mapping[str, Any], values: Mapping[str, Any]
) -> str:
    inputs = {*traced["inputs"], *lineage.inputs(values)}
    if lineage.recipe_hash(values, inputs) == traced["recipe"]:
        return ""
    old, new = (lineage.deciding(one, inputs) for one in (before, values))
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    told = [f"{key}: {old.get(key)!r} -> {new.get(key)!r}" for key in changed[:3]]
    return f"its recipe changed ({', '.join(told) or 'in what it reads'})"


def _inputs_changed(
    before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]
) -> str:
    changed = [
        key
        for key in sorted(before.keys() | now.keys())
        if key not in before or key not in now or before[key]["sha256"] != now[key]["sha256"]
    ]
    return f"what it reads changed ({', '.join(changed)})" if changed else ""


def _verifiers_changed(entry: Mapping[str, Any], recipe: StageRecipe, folder: Path) -> str:
    """A stage that has not ended has its verifiers in its folder only."""
    before = entry["lineage"].get("verifiers") or lineage.judged_by(folder)
    try:
        now = _judging(list(before), getattr(recipe, "verifier_service", ""))
    except KeyError as unknown:
        return f"a verifier is gone ({unknown.args[0]})"
    changed = [
        f"{name}: {before[name]} -> {now[name]}" for name in before if before[name] != now[name]
    ]
    return f"its verifiers changed ({', '.join(changed)})" if changed else ""


def _judging(names: list[str], service: str) -> dict[str, str]:
    if not service or not names:
        return fingerprint(names)
    with closing(open_judges(names, service)) as pool:
        return pool.fingerprint(names)


def _outputs_changed(made: Mapping[str, Mapping[str, str]]) -> str:
    states = {name: lineage.state(one) for name, one in made.items()}
    told = [f"{name} {state}: {made[name]['path']}" for name, state in states.items() if state]
    return f"what it made is not there as it was ({', '.join(told)})" if told else ""
