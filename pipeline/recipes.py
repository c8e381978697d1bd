"""Find, read and check recipe files."""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pipeline.failures import RecipeError
from pipeline.part import Part
from pipeline.recipe_kinds import STAGES, Recipe

FOLDER = Path(__file__).parent.parent / "recipes"
MAY_CHANGE = (
    "evaluation",
    "checkpoint",
    "tensorboard",
    "trackers",
    "show_unpaid",
    "verifier_workers",
    "verifier_service",
    "trainer.device",
    "trainer.threads",
    "trainer.memory_gib",
    "sampler.apart",
    "sampler.sleep",
    "sampler.graphs",
)
WHOLE = ("problems", "sets")  # their keys are names, not settings: given and compared whole


class _Loader(yaml.SafeLoader):
    """PyYAML keeps the last of two equal keys without a word; here that is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for at, (key, _) in enumerate(node.value):
            if key.value in keys[:at]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands twice", key.start_mark
                )
        return super().construct_mapping(node, deep=deep)


def shipped() -> list[Path]:
    """The recipes that come with the project."""
    return sorted(FOLDER.rglob("*.yaml"))


def locate(name: str) -> Path:
    """A file by its path, or a shipped recipe by a name such as `tiny/zero`."""
    for path in (Path(name), FOLDER / name, FOLDER / f"{name}.yaml", FOLDER.parent / name):
        if path.is_file():
            return path
    known = [p.relative_to(FOLDER).with_suffix("").as_posix() for p in shipped()]
    close = get_close_matches(name.removeprefix("recipes/").removesuffix(".yaml"), known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise RecipeError(f"no recipe {name!r}.{hint} Shipped: {', '.join(known)}")


def read(name: str) -> Recipe:
    """The recipe in a file. Raises RecipeError naming the key, its value and the nearest one."""
    return checked(written(name), str(locate(name)))


def written(name: str) -> dict[str, Any]:
    """The keys of a recipe file as they stand there. Raises RecipeError for what holds none."""
    path = locate(name)
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as failure:
        raise RecipeError(f"{path} is not YAML: {failure}") from failure
    if not isinstance(values, dict):
        raise RecipeError(
            f"{path} holds no keys, but {values!r}; a recipe begins with `stage: ...`"
        )
    return values


def checked(values: Mapping[str, Any], where: str) -> Recipe:
    """The recipe of these values, which stand at `where`. Raises RecipeError as `read` does."""
    kind = STAGES.get(str(values.get("stage")))
    if kind is None:
        close = get_close_matches(str(values.get("stage")), STAGES, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise RecipeError(
            f"{where}: stage {values.get('stage')!r} is not one of {sorted(STAGES)}.{hint}"
        )
    try:
        return kind.model_validate(values)
    except ValidationError as failure:
        raise RecipeError(f"{where}:\n{explained(failure, kind)}") from failure


def with_flags(values: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """A file's values with those of flags, `a.b` naming the key b of a, in their place."""
    made = {key: dict(one) if isinstance(one, dict) else one for key, one in values.items()}
    for path, value in flags.items():
        head, _, rest = path.partition(".")
        made[head] = with_flags(made.get(head) or {}, {rest: value}) if rest else value
    return made


def explained(failure: ValidationError, kind: type[Any]) -> str:
    """One line a mistake: where, what stands there, what is allowed, the nearest key."""
    return "\n".join(
        f"  {'.'.join(map(str, error['loc'])) or 'recipe'}: {_mistake(error, kind)}"
        for error in failure.errors()
    )


def _mistake(error: ErrorDetails, kind: type[Any]) -> str:
    match error["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            known = sorted(_keys(kind, error["loc"][:-1]))
            close = get_close_matches(str(error["loc"][-1]), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            return f"unknown key.{hint} Allowed: {', '.join(known)}"
        case "value_error":
            return error["msg"].removeprefix("Value error, ")
        case "missing":
            return "is required, and missing"
        case "model_type" | "dataclass_type":
            known = sorted(_keys(kind, error["loc"]))
            return f"must hold keys of these: {', '.join(known)}; got {error['input']!r}"
        case _:
            return f"{error['msg']}, got {error['input']!r}"


def refuse_changes(recorded: str, recipe: Part) -> None:
    """Raise RecipeError when a run is resumed under another recipe than it was started with.

    Settings that do not touch the training itself may differ.
    """
    old, new = dict(flat(json.loads(recorded))), dict(flat(recipe.model_dump(mode="json")))
    changed = [
        key
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
        and not any(key == may or key.startswith(f"{may}.") for may in MAY_CHANGE)
    ]
    if changed:
        told = ", ".join(f"{k}: {old.get(k)!r} -> {new.get(k)!r}" for k in changed[:5])
        raise RecipeError(
            f"cannot resume under another recipe ({told}); start a new run with another --output"
        )


def flat(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of nested mappings, as `with_flags` names them."""
    if isinstance(values, dict) and prefix not in WHOLE:
        for key, value in values.items():
            yield from flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, values


def _keys(kind: Any, path: tuple[Any, ...]) -> list[str]:
    """The keys allowed at `path` of a recipe model; places in a list have those of its parts."""
    for step in path:
        fields = getattr(_part(kind), "model_fields", {})
        kind = fields[step].annotation if step in fields else kind
    found = _part(kind)
    fields = getattr(found, "model_fields", None) or found.__dataclass_fields__
    return [name for name in fields if not name.startswith("__")]


def _part(kind: Any) -> Any:
    """The group of settings in an annotation such as tuple[Part, ...]; None where there is none."""
    if hasattr(kind, "model_fields") or hasattr(kind, "__dataclass_fields__"):
        return kind
    return next((found for one in get_args(kind) if (found := _part(one)) is not None), None)
