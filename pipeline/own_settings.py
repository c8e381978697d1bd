"""What somebody chose in a recorded recipe: the settings that are not as they are by default."""

from typing import Any

from pydantic_core import to_jsonable_python

from pipeline.part import Part
from pipeline.recipe_kinds import STAGES
from pipeline.recipes import flat
from pipeline.report.identity_facts import differences
from pipeline.report.reading import Row


def own_settings(recipe: Row) -> list[tuple[str, Any, Any]]:
    """(key, default, here) of a recipe's settings that are not as they are by default; what has to
    be set has None for a default."""
    kind = STAGES.get(str(recipe.get("stage")))
    if kind is None:
        return []
    there = defaults(kind)
    found = differences(there, recipe)
    given = dict(flat(dict(recipe)))
    return [one for one in found if one[0] in given and one[0] not in ("stage", "name")]


def defaults(kind: type[Part]) -> dict[str, Any]:
    """What a recipe would hold that sets nothing, as JSON values; what must be set is not in it."""
    found: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if not field.is_required():
            found[name] = to_jsonable_python(field.get_default(call_default_factory=True))
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Part):
            found[name] = defaults(field.annotation)
    return found
