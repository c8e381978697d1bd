"""Code of the user that a recipe names: functions in files or modules, templates of prompts."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from veriloop.data.template import SYSTEM
from veriloop.pipeline.errors import did_you_mean

Options = Mapping[str, float | int | bool | str]  # settings of a function of the user


def is_function(name: str) -> bool:
    """Whether a setting names a function, as "path/to/file.py:name" or "package.module:name"."""
    return ":" in name


@cache
def load_function(spec: str) -> Callable[..., Any]:
    """The function "path/to/file.py:name" or "package.module:name".

    Raises ValueError naming the spec for a module that cannot be imported, and for a name that is
    no function in it, with the nearest one.
    """
    from veriloop.verifiers.registry import describe, import_file

    source, _, name = spec.rpartition(":")
    try:
        if source.endswith(".py"):
            module = import_file(Path(source).resolve())
        else:
            module = importlib.import_module(source)
    except Exception as failure:
        raise ValueError(f"{spec!r} cannot be imported: {describe(failure)}") from failure
    function = getattr(module, name, None)
    if not callable(function):
        functions = [key for key, value in vars(module).items() if callable(value)]
        raise ValueError(f"{source} has no function {name!r}.{did_you_mean(name, functions)}")
    return function


FUNCTION_PATTERN = "^.+:.+$"


def one_of_or_function(names: Sequence[str]) -> AfterValidator:
    """The check of a setting that is one of the names, or a function of the user."""

    def check(value: str) -> str:
        if value in names:
            return value
        if not is_function(value):
            raise ValueError(
                f"{value!r} is not known.{did_you_mean(value, names)} Known: {', '.join(names)}, "
                "or a function as path/to/file.py:name"
            )
        load_function(value)
        return value

    return AfterValidator(check)


def names_or_pattern(names: Sequence[str], pattern: str) -> WithJsonSchema:
    """The JSON schema of a setting that is one of the names, or text of this pattern."""
    text = {"type": "string", "pattern": pattern}
    return WithJsonSchema({"anyOf": [{"enum": list(names)}, text]})


TEMPLATES = ("r1_zero", "chat")  # of prompts; any other is a Jinja file


@cache
def prompt_template(path: str) -> Any:
    """The Jinja template in a file. Raises ValueError for a missing file, and for one that does not
    compile or does not use `prompt`."""
    from jinja2 import TemplateError, meta
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(keep_trailing_newline=False)
    try:
        text = Path(path).read_text(encoding="utf-8")
        variables = meta.find_undeclared_variables(environment.parse(text))
        template = environment.from_string(text)
    except (OSError, UnicodeDecodeError, TemplateError) as failure:
        raise ValueError(f"template {path!r}: {failure}") from failure
    if "prompt" not in variables:
        raise ValueError(f"template {path!r} does not use {{{{ prompt }}}}")
    return template


def check_template(value: str) -> str:
    """The value, if it names a template of prompts. Raises ValueError with the nearest name."""
    if value in TEMPLATES:
        return value
    if not value.endswith(".jinja"):
        raise ValueError(
            f"{value!r} is not known.{did_you_mean(value, TEMPLATES)} Known: "
            f"{', '.join(TEMPLATES)}, or a file ending in .jinja"
        )
    prompt_template(value)
    return value


def template_identity(value: str) -> str:
    """The name of a template; for a file, its name and the sha256 of its text."""
    if value in TEMPLATES:
        return value
    return f"{value} {sha256(Path(value).read_bytes()).hexdigest()}"


def check_system(value: str) -> str:
    """The text of a system message, given as its name or as text. Raises ValueError for one word
    that is close to a name, with that name."""
    near = did_you_mean(value.lower(), SYSTEM)
    if value not in SYSTEM and near and len(value.split()) == 1:
        raise ValueError(
            f"system={value!r} is not known.{near} Known: {', '.join(SYSTEM)}, or a text"
        )
    return SYSTEM.get(value, value)


SystemMessage = Annotated[str, AfterValidator(check_system), names_or_pattern(tuple(SYSTEM), r"^")]
PromptTemplate = Annotated[
    str,
    AfterValidator(check_template),
    names_or_pattern(TEMPLATES, r"^.+\.jinja$"),
]
