"""Flags of settings that are mappings with free names, as `--problems.gsm8k 1`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from veriloop.pipeline.config.load import parse_value
from veriloop.pipeline.config.registry import Recipe
from veriloop.pipeline.config.sections import Part
from veriloop.pipeline.errors import RecipeError

REMOVABLE = ("problems", "collect.problems", "data.problems")  # positive weights: 0 removes one


def split_flags(words: Sequence[str], recipe: Recipe) -> tuple[list[str], dict[str, Any]]:
    """The other words, and the values of flags into mappings by path: (field, ..., name, ...).

    A value is YAML; several words are a list. Raises RecipeError for a value that is no YAML.
    """
    others: list[str] = []
    values: dict[str, Any] = {}
    for flag, rest in _grouped(words):
        name, equals, value = flag.partition("=")
        path = _path_in_mapping(name[2:], recipe) if name.startswith("--") else ""
        if not path:
            others += [flag, *rest]
            continue
        values[path] = _value(name, [value, *rest] if equals else rest)
    return others, values


def merged(recipe: Recipe, values: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """`values` of a recipe with those of `split_flags`; other names of a mapping stay."""
    result = dict(values)
    defaults = recipe.model_dump(mode="json")
    for path, value in flags.items():
        _set(result, defaults, path.split("."), value, remove=path.rpartition(".")[0] in REMOVABLE)
    return result


def _set(
    values: dict[str, Any], defaults: Any, parts: Sequence[str], value: Any, *, remove: bool
) -> None:
    head, *rest = parts
    if not rest:
        if remove and value == 0:
            values.pop(head, None)
        else:
            values[head] = value
        return
    inner = defaults.get(head) or {} if isinstance(defaults, dict) else {}
    current = values.get(head)
    # A section that the file leaves out keeps its defaults; a mapping is copied before it changes.
    values[head] = dict(current if current is not None else inner)
    _set(values[head], inner, rest, value, remove=remove)


def _grouped(words: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Flags with the words after them; words before the first flag stand alone."""
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--") or not groups:
            groups.append((word, []))
        else:
            groups[-1][1].append(word)
    return groups


def _path_in_mapping(flag: str, recipe: Recipe) -> str:
    """The dotted path of a flag that leads into a mapping of the recipe; "" for any other."""
    section: Any = recipe
    parts = flag.split(".")
    for index, part in enumerate(parts):
        if isinstance(section, dict):
            fields = [word.replace("-", "_") for word in parts[index + 1 :]]
            return ".".join([*_underscored(parts[:index]), part, *fields])
        if not isinstance(section, Part):
            return ""
        section = getattr(section, part.replace("-", "_"), None)
    return ""


def _underscored(parts: Sequence[str]) -> list[str]:
    return [part.replace("-", "_") for part in parts]


def _value(flag: str, words: Sequence[str]) -> Any:
    try:
        parsed = [parse_value(word) for word in words]
    except RecipeError as failure:
        raise RecipeError(f"{flag} {' '.join(words)}: the value is {failure}") from failure
    if not parsed:
        raise RecipeError(f"{flag} needs a value")
    return parsed[0] if len(parsed) == 1 else parsed
