"""Decides whether a recorded stage is current, or why it must be run again."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from veriloop.pipeline.config.load import completed
from veriloop.pipeline.config.registry import StageRecipe
from veriloop.pipeline.config.services import Services
from veriloop.pipeline.errors import some_of
from veriloop.pipeline.rollouts.grade import open_judges
from veriloop.pipeline.runs import lineage
from veriloop.verifiers.registry import fingerprint, with_settings


def stale_reason(entry: Mapping[str, Any], recipe: StageRecipe, folder: Path) -> str:
    """Why the stage of this run.json entry must be run again; "" if it is current.

    Compares the recipe, the content of the inputs, the verifiers and, for a finished stage, the
    content of the outputs. A setting that is newer than the entry had its default. `folder` is the
    stage's folder.
    """
    traced = entry.get("lineage", {})
    if "recipe" not in traced:
        return "run.json has no lineage for it"
    return (
        _recipe_changes(entry["inputs"].get("recipe", {}), traced, recipe)
        or _input_changes(traced["inputs"], lineage.inputs(recipe.model_dump(mode="json")))
        or _verifier_changes(entry, recipe, folder)
        or (_output_changes(traced.get("outputs", {})) if entry["status"] == "done" else "")
    )


def _recipe_changes(
    recorded: Mapping[str, Any], traced: Mapping[str, Any], recipe: StageRecipe
) -> str:
    values = recipe.model_dump(mode="json")
    inputs = {*traced["inputs"], *lineage.inputs(values)}
    old = lineage.deciding(completed(recorded, type(recipe)), inputs)
    new = lineage.deciding(values, inputs)
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    changes = some_of([f"{key}: {old.get(key)!r} -> {new.get(key)!r}" for key in changed], 3)
    return f"its recipe changed ({changes})" if changes else ""


def _input_changes(
    before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]
) -> str:
    changed = [
        key
        for key in sorted(before.keys() | now.keys())
        if (key not in before and now[key].get("kind") != "data")  # which older runs did not hash
        or (key in before and key not in now)
        or (key in before and before[key]["sha256"] != now[key]["sha256"])
    ]
    return f"its inputs changed ({', '.join(changed)})" if changed else ""


def _verifier_changes(entry: Mapping[str, Any], recipe: StageRecipe, folder: Path) -> str:
    # an unfinished stage has its verifiers' versions in its folder only
    before = entry["lineage"].get("verifiers") or lineage.verifier_fingerprints(folder)
    try:
        now = current_fingerprints(list(before), recipe)
    except KeyError as unknown:
        return f"a verifier no longer exists ({unknown.args[0]})"
    changed = [
        f"{name}: {before[name]} -> {now[name]}" for name in before if before[name] != now[name]
    ]
    return f"its verifiers changed ({', '.join(changed)})" if changed else ""


def current_fingerprints(names: Sequence[str], recipe: object) -> dict[str, str]:
    """The fingerprints of these verifiers now, with the recipe's settings, local or at its
    `verifier_service`. Raises KeyError for one that does not exist."""
    judged = getattr(recipe, "collect", recipe)
    services: Services = getattr(judged, "verifier_service", "")
    if not services or not names:
        now = fingerprint(names)
    else:
        with closing(open_judges(names, services)) as pool:
            now = pool.fingerprint(names)
    return with_settings(now, getattr(judged, "verifier_facts", {}))


def _output_changes(outputs: Mapping[str, Mapping[str, str]]) -> str:
    states = {name: lineage.state(output) for name, output in outputs.items()}
    changes = [
        f"{name} {state}: {outputs[name]['path']}" for name, state in states.items() if state
    ]
    return f"its outputs changed ({', '.join(changes)})" if changes else ""
