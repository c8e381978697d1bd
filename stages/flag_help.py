"""The help of a stage command: one line per flag, from the JSON schema of the recipe. What it says
of switches is held against the flags."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from veriloop.pipeline.config.registry import STAGES, Recipe
from veriloop.pipeline.errors import RecipeError, did_you_mean
from veriloop.pipeline.runs.console import clip

WIDTH = 100  # columns
COLUMN = 36  # where descriptions begin, after shorter flags
SHORTEST = 4  # columns of a shown value
RUN_FLAGS = {  # of every stage command, besides the fields of its recipe
    "--plugin FILE|MODULE": "Load more verifiers; may be repeated",
    "--output FOLDER": "Run folder; a new one in outputs/, with --resume the last one",
    "--resume": "Continue from the last complete checkpoint",
    "--allow-changed KIND": "With --resume: verifier, start or file may differ",
    "--dry-run": "Print the plan and start nothing",
}
UNGROUPED = ("problems", "sandbox", "checkpoint")  # mappings of names, and few flags
FOLDED = {"cluster", "sampler"}  # sections of which the whole help shows one line
_ON_OR_OFF = {"true", "false", "yes", "no", "on", "off"}
_METAVARS = {"integer": "INT", "number": "FLOAT", "string": "TEXT", "object": "KEY VALUE ..."}


class Flag(NamedTuple):
    """A field of a recipe that a flag sets."""

    path: str  # dotted, with underscores
    schema: Mapping[str, Any]
    value: Any  # in the recipe


def stage_help(recipe: Recipe, name: str, section: str = "") -> str:
    """The help of the stage of `recipe`, with the values of this recipe as defaults.

    With `section`: of its flags only. Raises RecipeError for a section that the recipe has not.
    """
    command = recipe.stage.replace("_", "-")
    about = (STAGES[recipe.stage].__doc__ or "").partition("\n")[0]
    lines = [
        f"usage: veriloop {command} RECIPE [--FLAG VALUE ...]\n{about}",
        f"Flags override the recipe. In parentheses: the values of {name}.",
    ]
    by_section = {"run": [_line(flag, text, "") for flag, text in RUN_FLAGS.items()]}
    for title, flags in groupby(sorted(recipe_flags(recipe), key=_section_order), key=_section):
        by_section[title or "recipe"] = list(map(_flag_line, flags))
    if section and section not in by_section:
        hint = did_you_mean(section, by_section)
        known = ", ".join(by_section)
        raise RecipeError(f"no section of flags {section!r}.{hint} Known: {known}")
    if section:
        shown = {section: by_section[section]}
    else:
        shown = {title: flags for title, flags in by_section.items() if title not in FOLDED}
        for title in sorted(by_section.keys() & FOLDED):
            text = f"Shows the {len(by_section[title])} flags of {title}"
            shown["recipe"].append(_line(f"--help {title}", text, ""))
    for title, flags in shown.items():
        lines += [f"\n{title}", *flags]
    return "\n".join(lines)


def recipe_flags(recipe: Recipe) -> list[Flag]:
    """The fields that flags set; entries of mappings are those of this recipe."""
    schema = STAGES[recipe.stage].model_json_schema()
    return list(_leaves(schema, schema["$defs"], recipe.model_dump(mode="json"), ""))


def require_plain_switches(words: Sequence[str], recipe: Recipe) -> None:
    """Raise RecipeError for a switch of the recipe with a value (`--sampler.apart false`) or with
    `no-` in front of its section (`--no-sampler.apart`), with the flags to write instead."""
    for word, after in pairwise([*words, ""]):
        flag, _, value = word.partition("=")
        value = value or after
        misplaced = flag.startswith("--no-") and "." in flag
        if not flag.startswith("--") or not (misplaced or value.lower() in _ON_OR_OFF):
            continue  # most words: the schema takes a while
        switches = {f.path for f in recipe_flags(recipe) if f.schema.get("type") == "boolean"}
        path = flag.removeprefix("--").removeprefix("no-").replace("-", "_").replace(".no_", ".")
        if path in switches:
            section, dot, name = path.replace("_", "-").rpartition(".")
            on, off = f"--{section}{dot}{name}", f"--{section}{dot}no-{name}"
            wrong = f"no flag {flag}" if misplaced else f"{flag} {value}: a switch takes no value"
            raise RecipeError(f"{wrong}; write {on} to turn it on, {off} to turn it off")


def _leaves(
    node: Mapping[str, Any], definitions: Mapping[str, Any], values: Mapping[str, Any], path: str
) -> Iterator[Flag]:
    """The flags below a node of the schema, which is a section or a mapping."""
    for name, value in values.items():
        field = node["properties"][name] if "properties" in node else _entry(node)
        target = definitions.get(field.get("$ref", "").rpartition("/")[2], {})
        field = {**target, **field}
        # The stage itself, and mappings of any values, which a recipe alone can hold.
        if "const" in field or field.get("additionalProperties") is True:
            continue
        if "properties" in field or (value and field.get("type") == "object"):
            yield from _leaves(field, definitions, value, f"{path}{name}.")
        elif "$ref" not in _entry(field):
            yield Flag(f"{path}{name}", field, value)


def _entry(node: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the entries of a mapping, described as the mapping."""
    entry = node.get("additionalProperties")
    return {**(entry if isinstance(entry, dict) else {}), "description": node.get("description")}


def _section(flag: Flag) -> str:
    """The section of the recipe; "" for mappings of names, small sections and other fields."""
    head, _, rest = flag.path.partition(".")
    return head if rest and head not in UNGROUPED else ""


def _section_order(flag: Flag) -> bool:
    return bool(_section(flag))


def _flag_line(flag: Flag) -> str:
    """`--flag METAVAR  First sentence of the description: choices (value)`."""
    section, dot, name = flag.path.replace("_", "-").rpartition(".")
    switch = flag.schema.get("type") == "boolean"
    word = f"--{section}{dot}{'[no-]' * switch}{name}"
    metavar = "" if switch else _metavar(flag.schema)
    sentence = re.split(r"\.(?:\s|$)", flag.schema["description"], maxsplit=1)[0]
    line = _line(f"{word} {metavar}".rstrip(), sentence, flag.value)
    choices = ", ".join(map(str, flag.schema.get("enum", ())))
    listed = _line(f"{word} {metavar}".rstrip(), f"{sentence}: {choices}", flag.value)
    return listed if choices and len(listed) <= WIDTH else line


def _line(flag: str, text: str, value: Any) -> str:
    line = f"  {flag:<{COLUMN - 4}}  {text}"
    shown, room = _shown(value), WIDTH - len(line) - len(" ()")
    return f"{line} ({clip(shown, room)})" if shown and room >= SHORTEST else line


def _shown(value: Any) -> str:
    """The value as it is written after a flag; "" for an empty one."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "none" if value is None else "" if value == {} else str(value)


def _metavar(schema: Mapping[str, Any]) -> str:
    """The kind of the value: INT, FLOAT, TEXT, NAME of a choice, or several of them."""
    if "enum" in schema:
        return "NAME"
    if "anyOf" in schema:
        kinds = sorted(schema["anyOf"], key=lambda kind: kind.get("type") != "array")
        return _metavar(kinds[0]) if "type" in kinds[0] else "TEXT"
    if schema.get("type") == "array":
        fixed = schema.get("prefixItems")
        return " ".join(map(_metavar, fixed)) if fixed else f"{_metavar(schema['items'])} ..."
    return _METAVARS.get(str(schema.get("type")), "VALUE")
