"""Flags of mappings with free names, as `--problems.gsm8k 1`, and of lists of texts."""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, get_args, get_origin

from veriloop.pipeline.config.load import parse_value
from veriloop.pipeline.config.registry import Recipe
from veriloop.pipeline.config.sections import Part
from veriloop.pipeline.errors import RecipeError

LIST = re.compile(r"\[.*\]", re.DOTALL)


def split_flags(words: Sequence[str], recipe: Recipe) -> tuple[list[str], dict[str, Any]]:
    """The other words, and by path the values of flags into mappings, as in `sets.mine.path`, and
    of lists of texts.

    The words of a text, or of a list of texts, are taken as they are; any other value is YAML.
    Several words are a list. Raises RecipeError for a value that is no YAML.
    """
    others: list[str] = []
    values: dict[str, Any] = {}
    for flag, rest in _grouped(words):
        name, equals, value = flag.partition("=")
        given = [value, *rest] if equals else rest
        path, kind, inside = (
            _place(name[2:], recipe) if name.startswith("--") else ("", None, False)
        )
        if inside:
            values[path] = _value(name, given, kind)
        elif _of_texts(kind) and given:
            values[path] = _texts(given)
        else:
            others += [flag, *rest]
    return others, values


def _grouped(words: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Flags with the words after them; words before the first flag stand alone."""
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--") or not groups:
            groups.append((word, []))
        else:
            groups[-1][1].append(word)
    return groups


def _place(flag: str, recipe: Recipe) -> tuple[str, Any, bool]:
    """The dotted path of a flag of the recipe, the annotation of its value, and whether it leads
    into a mapping; "", None and False for any other flag.

    In the names of fields `-` is `_`; the keys of mappings are as they were written.
    """
    kind: Any = type(recipe)
    path: list[str] = []
    inside = False
    for part in flag.split("."):
        if (section := _section(kind)) is not None:
            path.append(part.replace("-", "_"))
            field = section.model_fields.get(path[-1])
            kind = None if field is None else field.annotation
        else:
            inside = inside or get_origin(kind) is dict
            path.append(part)
            kind = get_args(kind)[1] if get_origin(kind) is dict else None
        if kind is None and not inside:
            return "", None, False
    return ".".join(path), kind, inside


def _section(kind: Any) -> type[Part] | None:
    return kind if isinstance(kind, type) and issubclass(kind, Part) else None


def _value(flag: str, words: Sequence[str], kind: Any) -> Any:
    if not words:
        raise RecipeError(f"{flag} needs a value")
    if kind is str:
        return words[0] if len(words) == 1 else list(words)
    try:
        if get_origin(kind) is tuple:
            return _items(words, get_args(kind)[0])
        parsed = [parse_value(word) for word in words]
    except RecipeError as failure:
        raise RecipeError(f"{flag} {' '.join(words)}: the value is {failure}") from failure
    return parsed[0] if len(parsed) == 1 else parsed


def _of_texts(kind: Any) -> bool:
    """Whether an annotation is a list of any texts."""
    (item, *_) = get_args(kind) or (None,)
    item = get_args(item)[0] if get_origin(item) is Annotated else item
    return get_origin(kind) is tuple and item is str


def _texts(words: Sequence[str]) -> list[str]:
    """The words, or those of one word that is a list of several in YAML; an empty word is an empty
    list. One text in brackets, as `[END]`, is itself."""
    items = _items(words, str)
    return list(words) if len(items) == 1 else items


def _items(words: Sequence[str], kind: Any) -> Any:
    """The items of a list: the words, or those of one word that is a list in YAML; an empty word
    is an empty list."""
    if list(words) == [""]:
        return []
    if len(words) == 1 and LIST.fullmatch(words[0]):
        try:
            parsed = parse_value(words[0])
        except RecipeError:
            if kind is not str:
                raise
        else:
            if kind is not str or all(isinstance(item, str) for item in parsed):
                return parsed
    return list(words) if kind is str else [parse_value(word) for word in words]
