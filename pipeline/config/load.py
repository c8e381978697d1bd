"""Locate, parse and validate recipe files."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails, to_jsonable_python

from veriloop.pipeline.config.fields import EXECUTION_SETTINGS, Part, is_setting
from veriloop.pipeline.config.reads import FORMER_DEFAULTS
from veriloop.pipeline.config.registry import STAGES, Recipe
from veriloop.pipeline.errors import RecipeError, did_you_mean, some_of
from veriloop.sandbox.remote.redaction import has_credentials, redacted

FOLDER = Path(__file__).parents[2] / "recipes"
RESUMABLE = ("evaluation", *EXECUTION_SETTINGS)  # may differ between a run and its resumption
WHOLE = ("problems", "sets")  # keys are names, not settings: overridden and compared as a whole
WEIGHTS = ("problems", "collect.problems", "data.problems")  # of sources, each above 0

NUMBERS = {  # tag: (form in YAML 1.2, first characters)
    "tag:yaml.org,2002:bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "tag:yaml.org,2002:int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "tag:yaml.org,2002:float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
}


class _Loader(yaml.SafeLoader):
    """Numbers and booleans of YAML 1.2: `1:30`, `yes` and `off` are texts, `1e-4` is a number.

    Rejects duplicate keys, of which PyYAML silently keeps the last.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 - read as a class attribute by PyYAML
        first: [(tag, form) for tag, form in forms if tag not in NUMBERS]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for index, (key, _) in enumerate(node.value):
            if key.value in keys[:index]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key {key.value!r}", key.start_mark
                )
        return super().construct_mapping(node, deep=deep)


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


for _tag, (_form, _first) in NUMBERS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_form})\Z"), list(_first))
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


def shipped() -> list[Path]:
    """Paths of the recipes that come with the project."""
    return sorted(FOLDER.rglob("*.yaml"))


def locate(name: str) -> Path:
    """The path of a recipe: a file, or a shipped recipe by a name such as `tiny/zero`."""
    for path in (Path(name), FOLDER / name, FOLDER / f"{name}.yaml", FOLDER.parent / name):
        if path.is_file():
            return path
    known = [p.relative_to(FOLDER).with_suffix("").as_posix() for p in shipped()]
    hint = did_you_mean(name.removeprefix("recipes/").removesuffix(".yaml"), known)
    if not hint and name.endswith((".yaml", ".yml")):
        raise RecipeError(
            f"no recipe {name!r}: {Path(name).absolute()} is no file; `veriloop recipes ls` lists "
            "those that are shipped"
        )
    raise RecipeError(f"no recipe {name!r}.{hint} Shipped: {', '.join(known)}")


def parse_value(text: str) -> Any:
    """The value of a flag, read as in a recipe. Raises RecipeError for what is not YAML."""
    try:
        value = yaml.load(text, _Loader)
        json.dumps(value, skipkeys=True, default=str)  # an alias of what it is within has no end
        return value
    except RecursionError as failure:
        raise RecipeError("not YAML: it nests too deeply") from failure
    except (yaml.YAMLError, ValueError) as failure:  # ValueError: of numbers with 4,300 digits
        text = str(failure).replace('in "<unicode string>", line', "in line")
        raise RecipeError(f"not YAML: {text}") from failure


def read(name: str) -> Recipe:
    """Load a recipe file. Raises RecipeError naming the key, its value and the nearest key."""
    return validate(read_values(name), str(locate(name)))


def read_values(name: str) -> dict[str, Any]:
    """The values of a recipe file, not validated. Raises RecipeError for a file without keys."""
    path = locate(name)
    try:
        values = parse_value(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as failure:
        raise RecipeError(f"{path} is not YAML: {failure}") from failure
    except RecipeError as failure:
        raise RecipeError(f"{path} is {failure}") from failure
    if not isinstance(values, dict):
        raise RecipeError(
            f"{path} holds {values!r} instead of keys; a recipe begins with `stage: ...`"
        )
    return values


def validate(values: Mapping[str, Any], where: str) -> Recipe:
    """The recipe with these values, read from `where`. Raises RecipeError as `read` does."""
    _refuse_credentials(values, where)
    if "stage" not in values:
        raise RecipeError(f"{where}: it has no key 'stage', which is one of {sorted(STAGES)}")
    stage = values["stage"]
    kind = STAGES.get(str(stage))
    if kind is None:
        hint = did_you_mean(str(stage), STAGES)
        raise RecipeError(f"{where}: stage {stage!r} is not one of {sorted(STAGES)}.{hint}")
    try:
        return kind.model_validate(values)
    except ValidationError as failure:
        raise RecipeError(f"{where}:\n{explain(failure, kind)}") from failure


def _refuse_credentials(value: Any, where: str, key: str = "") -> None:
    """Raise RecipeError if an address holds credentials: recipes are copied to records, reports,
    model cards and trackers."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _refuse_credentials(inner, where, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            _refuse_credentials(inner, where, key)
    elif isinstance(value, str) and has_credentials(value):
        raise RecipeError(
            f"{where}: {key}: {redacted(value)!r} holds credentials, and a recipe is copied to "
            "records, reports and trackers; set them in the environment instead, as in "
            "VERILOOP_REWRITER_KEY, VERILOOP_SERVICE_TOKEN, HF_TOKEN"
        )


def with_flags(values: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a recipe's values, overridden by those of flags; `a.b` is the key b of a.

    A section or mapping that the values leave out keeps its other defaults, and the weight 0
    removes a source. Raises RecipeError for a key in a value that has no keys.
    """
    merged = dict(values)
    for path, value in flags.items():
        *heads, last = path.split(".")
        kind: Any = STAGES.get(str(values.get("stage")))
        inner = merged
        for head in heads:
            kind, default = _inside(kind, head)
            section = inner.get(head)
            if not isinstance(section, Mapping | None):
                raise RecipeError(f"{head}: {section!r} is not a section, so {path} cannot be set")
            inner[head] = dict(default if section is None else section)
            inner = inner[head]
        if value == 0 and ".".join(heads) in WEIGHTS:
            inner.pop(last, None)
        else:
            inner[last] = value
    return merged


def _inside(kind: Any, name: str) -> tuple[Any, Mapping[str, Any]]:
    """The annotation of the section or mapping with this name in a `kind`, and the values that its
    default sets."""
    if get_origin(kind) in (Union, UnionType):
        kind = next((one for one in get_args(kind) if _fields(one)), None)
    if get_origin(kind) is dict:
        return get_args(kind)[1], {}
    annotation, default = _fields(kind).get(name, (None, MISSING))
    if isinstance(default, Part):
        default = default.model_dump(mode="json", exclude_unset=True)
    return annotation, default if isinstance(default, dict) else {}


def with_plugins(values: dict[str, Any], plugins: Sequence[str]) -> dict[str, Any]:
    """The values of a recipe with these plugins before its own, where its kind has plugins."""
    kind = STAGES.get(str(values.get("stage")))
    if not plugins or kind is None or "plugins" not in kind.model_fields:
        return values
    return {**values, "plugins": list(dict.fromkeys([*plugins, *(values.get("plugins") or ())]))}


def explain(failure: ValidationError, kind: type[Any]) -> str:
    """One line per mistake: the key, its value, what is allowed, the nearest key."""
    return "\n".join(
        f"  {'.'.join(map(str, error['loc'])) or 'recipe'}: {_mistake(error, kind)}"
        for error in failure.errors()
    )


def _mistake(error: ErrorDetails, kind: type[Any]) -> str:
    match error["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            known = sorted(_keys(kind, error["loc"][:-1]))
            hint = did_you_mean(str(error["loc"][-1]), known)
            return f"unknown key.{hint} Allowed: {', '.join(known)}"
        case "value_error":
            return error["msg"].removeprefix("Value error, ")
        case "missing":
            return "is required"
        case "model_type" | "dataclass_type":
            known = sorted(_keys(kind, error["loc"]))
            return f"must be a mapping with keys among {', '.join(known)}; got {error['input']!r}"
        case "tuple_type":
            return f"must be a list, got {error['input']!r}"
        case _:
            return f"{error['msg']}, got {error['input']!r}"


def refuse_changes(recorded: str, recipe: Part, same: Collection[str] = ()) -> None:
    """Raise RecipeError if a run is resumed with a recipe that differs from the recorded one.

    Settings that do not affect training (`RESUMABLE`) may differ. One that is newer than the record
    had its default, and one that nothing reads a former default. `same` are the keys of paths
    whose content is the same.
    """
    before = completed(json.loads(recorded), type(recipe))
    old, new = dict(flat(before)), dict(flat(recipe.model_dump(mode="json")))
    unread = getattr(getattr(recipe, "algorithm", None), "unread", ())
    former = {f"algorithm.{n}": value for n, value in FORMER_DEFAULTS.items() if n in unread}
    changed = [
        key
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
        and key not in same
        and not (key in former and former[key] == old.get(key))
        and not is_setting(key, RESUMABLE)
    ]
    if changed:
        changes = some_of([f"{k}: {old.get(k)!r} -> {new.get(k)!r}" for k in changed], 5)
        raise RecipeError(
            f"cannot resume with another recipe ({changes}); start a new run with another --output"
        )


def completed(values: Any, kind: Any) -> Any:
    """JSON values that an earlier version may have recorded of a `kind`, such as a recipe class,
    with the defaults of the settings that it did not have."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(values, list) and origin in (list, tuple):
        return [completed(value, arguments[0]) for value in values]
    if isinstance(values, dict) and origin is dict:
        return {key: completed(value, arguments[1]) for key, value in values.items()}
    if isinstance(values, dict) and (known := _fields(kind)):
        defaults = {name: default for name, (_, default) in known.items() if default is not MISSING}
        given = {
            key: completed(value, known[key][0]) if key in known else value
            for key, value in values.items()
        }
        return {**to_jsonable_python(defaults), **given}
    if origin in (Annotated, Union, UnionType):
        of_each = (completed(values, argument) for argument in arguments)
        return next((value for value in of_each if value != values), values)
    return values


def _fields(kind: Any) -> dict[str, tuple[Any, Any]]:
    """(annotation, default or MISSING) of the fields of a model or dataclass, by name."""
    if is_dataclass(kind):
        return {field.name: (field.type, field.default) for field in fields(kind)}
    return {
        name: (
            field.annotation,
            MISSING if field.is_required() else field.get_default(call_default_factory=True),
        )
        for name, field in getattr(kind, "model_fields", {}).items()
    }


def field_path(kind: Any, path: str) -> str:
    """A dotted path into a `kind` with underscores for the hyphens in names of fields; the keys of
    mappings, such as names of data sets, stay as they are."""
    names: list[str] = []
    for name in path.split("."):
        if known := _fields(kind):
            names.append(name.replace("-", "_"))
            kind = known[names[-1]][0] if names[-1] in known else None
        else:
            names.append(name)
            kind = get_args(kind)[1] if get_origin(kind) is dict else None
    return ".".join(names)


def flat(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of the leaves of nested mappings."""
    if isinstance(values, dict) and prefix not in WHOLE:
        for key, value in values.items():
            yield from flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, values


def _keys(kind: Any, path: tuple[Any, ...]) -> list[str]:
    """The keys allowed at `path` of a recipe model; list items have those of the item's model."""
    for key in path:
        fields = getattr(_section(kind), "model_fields", {})
        kind = fields[key].annotation if key in fields else kind
    section = _section(kind)
    fields = getattr(section, "model_fields", None) or section.__dataclass_fields__
    return [name for name in fields if not name.startswith("__")]


def _section(kind: Any) -> Any:
    """The model or dataclass in an annotation such as tuple[Part, ...]; None if it has none."""
    if hasattr(kind, "model_fields") or hasattr(kind, "__dataclass_fields__"):
        return kind
    sections = (_section(argument) for argument in get_args(kind))
    return next((section for section in sections if section is not None), None)
